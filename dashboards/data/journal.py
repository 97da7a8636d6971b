"""The journal of a run as its page tells it: every fix as an experiment, what people turned, and every new start."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dashboards.data.state import Trial, journal_of
from stabilizer.core.records import Action, Event
from stabilizer.core.text import change_words, short
from stabilizer.runs.journal import BY_HAND, Chain, verify
from stabilizer.runs.listing import whole_number, word
from stabilizer.runs.reader import RunReader
from stabilizer.runs.story import interventions, twin_words

MAX_JOURNAL = 16 * 1024 * 1024
"""Bytes of a journal that are checked link by link; a larger one is not a journal any more."""
MAX_BY_HAND = 100


@dataclass(frozen=True)
class Hypothesis:
    """What was promised before anything was changed."""

    why: str
    expects: str
    guard: str
    horizon: str
    undo: tuple[str, ...]
    rollback: str


@dataclass(frozen=True)
class Tried:
    """A trial with its hypothesis and its twin."""

    trial: Trial
    hypothesis: Hypothesis | None
    twin: str
    """What would have happened without it; empty where nothing was made, or a person made it."""


@dataclass(frozen=True)
class Turned:
    """Something a person asked for: a knob, an order, a pause."""

    step: int
    by: str
    text: str
    change: tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    """A start of the training process, or a return to an earlier state."""

    number: int
    from_step: int
    parent: int | None
    reason: str
    text: str


@dataclass(frozen=True)
class Journal:
    """Everything the page says."""

    tried: tuple[Tried, ...]
    turned: tuple[Turned, ...]
    attempts: tuple[Attempt, ...]
    chain: Chain | None
    """None when the journal is too large to be checked here."""


class Chains:
    """Checked journals, each checked again only when it changed. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[tuple[int, int], Chain]] = {}

    def of(self, run: Path) -> Chain | None:
        """Whether the journal of a run is as it was written."""
        path = run / "actions.jsonl"
        try:
            status = path.stat()
        except OSError:
            return Chain(0, 0, "")
        stamp = status.st_mtime_ns, status.st_size
        if status.st_size > MAX_JOURNAL:
            return None
        with self._lock:
            known = self._known.get(path)
            if known is None or known[0] != stamp:
                known = self._known[path] = (stamp, verify(path))
                while len(self._known) > 100:
                    del self._known[next(iter(self._known))]
            return known[1]


def journal(reader: RunReader, chain: Chain | None) -> Journal:
    """The journal of a run as its reader has it now."""
    lives: dict[str, list[Action]] = {}
    for action in reader.actions:
        lives.setdefault(action.action, []).append(action)
    by_hand = [event for event in reader.events if event.data.get("by") and event.data.get("action") not in lives]
    return Journal(
        tried=tuple(tried(trial, lives[trial.action]) for trial in journal_of(reader.actions)),
        turned=tuple(_turned(event) for event in reversed(by_hand[-MAX_BY_HAND:])),
        attempts=_attempts(reader),
        chain=chain,
    )


def tried(trial: Trial, life: Sequence[Action]) -> Tried:
    """A trial with what its entries say of its hypothesis and its twin."""
    made = any(entry.entry == "applied" for entry in life)
    forked = any(isinstance(entry.data.get("twin"), Mapping) for entry in life)
    by_hand = life[0].remedy == BY_HAND
    return Tried(trial, _hypothesis(life), _twin(life) if forked or (made and not by_hand) else "")


def _twin(life: Sequence[Action]) -> str:
    """What the fork measured; one that spoke against the change is told as well, though nothing was made."""
    try:
        return twin_words(interventions([*life, replace(life[-1], entry="applied")])[0])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return "a twin was run, but what it says can't be read"


def _hypothesis(life: Sequence[Action]) -> Hypothesis | None:
    entry = next((entry for entry in life if isinstance(entry.data.get("hypothesis"), Mapping)), None)
    if entry is None:
        return None
    card: Mapping[str, Any] = entry.data["hypothesis"]
    made = next((later.data for later in reversed(life) if later.entry == "applied" and "guard" in later.data), {})
    if made:  # measured just before the change, which may be long after the proposal
        card = {**card, **{name: made[name] for name in ("guard", "guard_level") if name in made}}
    undo, back, horizon = card.get("undo"), whole_number(card.get("rollback_to")), card.get("horizon_steps")
    return Hypothesis(
        why=entry.text.partition("; expected within")[0],
        expects=word(card.get("expects")),
        guard=_guard(card),
        horizon=f"{short(horizon)} steps" if horizon is not None else "",
        undo=tuple(f"{knob}: back to {short(value)}" for knob, value in undo.items())
        if isinstance(undo, Mapping)
        else (),
        rollback=f"goes back to the state after step {back:,} first" if back is not None else "",
    )


def _guard(card: Mapping[str, Any]) -> str:
    """The metric that must not suffer, its level, and how far below it still counts as noise."""
    metric, level, noise = word(card.get("guard")), card.get("guard_level"), card.get("guard_noise")
    if not metric:
        return ""
    if not isinstance(level, (int, float)) or level == float("-inf"):
        return f"{metric}; its level before was not known"
    words = f"{metric} stays at {short(level)} or above"
    return f"{words}, give or take {short(2 * noise)} (twice its noise)" if isinstance(noise, (int, float)) else words


def _turned(event: Event) -> Turned:
    change = event.data.get("change")
    lines: list[str] = []
    if isinstance(change, Mapping):
        pairs = {k: tuple(v) for k, v in change.items() if isinstance(v, (list, tuple)) and len(v) == 2}
        lines = change_words(pairs)
    return Turned(event.step, short(event.data.get("by"))[:80], event.text, tuple(lines))


def _attempts(reader: RunReader) -> tuple[Attempt, ...]:
    """Every start, the first one included, with the event that says why."""
    rows = reader.about.get("attempts")
    found = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or whole_number(row.get("attempt")) is None:
            continue
        number = row["attempt"]
        events = [e for e in reader.events if e.attempt == number and e.kind in ("resume", "rollback")]
        text = events[0].text if events else ""
        start = whole_number(row.get("from_step")) or 0
        found.append(Attempt(number, start, whole_number(row.get("parent")), word(row.get("reason")), text))
    return tuple(reversed(found))
