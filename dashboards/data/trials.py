"""Trials of remedies: each with its hypothesis, its entries in the journal and its paired fork."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stabilizer.core.knobs import change_words
from stabilizer.core.records import Action
from stabilizer.core.text import short
from stabilizer.runs.journal import BY_HAND
from stabilizer.runs.listing import whole_number, word
from stabilizer.runs.story import interventions, twin_words

ENTRY_WORDS = {
    "after_step": "counted from step",
    "back_for": "because of",
    "back_to": "back to the state after step",
    "builds_on": "continues",
    "extra_steps": "steps repeated",
    "guard": "guard:",
    "guard_level": "guard level before",
    "guard_noise": "guard noise",
    "ticks": "steps judged",
}
"""Words for keys of the journal; others are shown as they are written."""
INTERNAL = frozenset({"request", "put_right"})
"""Keys of the journal that only the training process needs."""


@dataclass(frozen=True)
class Entry:
    """One entry of a trial in the journal."""

    entry: str
    step: int
    text: str
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hypothesis:
    """The promise recorded before anything was changed."""

    why: str
    expects: str
    guard: str
    horizon: str
    undo: tuple[str, ...]
    rollback: str


@dataclass(frozen=True)
class Trial:
    """One application of a remedy: the change, and everything the journal says of it, oldest entry first."""

    action: str
    remedy: str
    incident: int
    safety: str
    change: tuple[str, ...]
    entries: tuple[Entry, ...]
    hypothesis: Hypothesis | None = None
    twin: str = ""
    """The result without the change, from a paired fork; empty where nothing was applied, or a person applied it."""

    @property
    def outcome(self) -> str:
        """The newest entry."""
        return self.entries[-1].entry

    @property
    def waiting(self) -> bool:
        """Whether it waits for a person's answer."""
        return self.outcome == "proposed"

    @property
    def applied(self) -> bool:
        """Whether the change was made, whatever its outcome."""
        return any(entry.entry == "applied" for entry in self.entries)


def trials_of(actions: Iterable[Action]) -> tuple[Trial, ...]:
    """The trials of a journal, the newest first."""
    groups: dict[str, list[Action]] = {}
    for action in actions:
        groups.setdefault(action.action, []).append(action)
    return tuple(_trial(entries) for entries in reversed(groups.values()))


def _trial(entries: Sequence[Action]) -> Trial:
    changed = next((entry.change for entry in reversed(entries) if entry.change), {})
    first = entries[0]
    return Trial(
        action=first.action,
        remedy=first.remedy,
        incident=first.incident,
        safety=first.safety,
        change=tuple(change_words(changed)),
        entries=tuple(Entry(entry.entry, entry.step, entry.text, _entry_facts(entry.data)) for entry in entries),
        hypothesis=_hypothesis(entries),
        twin=_twin(entries),
    )


def facts_of(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Names and values in words. Structures are left out: the entry's own text describes them."""
    return tuple((str(key), short(value)) for key, value in values.items() if not isinstance(value, Mapping))


def _entry_facts(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The facts of a journal's entry in words, without numbers that are not finite."""
    told = {key: value for key, value in data.items() if key not in INTERNAL and _known(value)}
    return tuple((ENTRY_WORDS.get(key, key.replace("_", " ")), value) for key, value in facts_of(told))


def _known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _twin(entries: Sequence[Action]) -> str:
    """The result of the paired fork, if one was run. It can speak against a change that was then not made."""
    forked = any(isinstance(entry.data.get("twin"), Mapping) for entry in entries)
    applied = any(entry.entry == "applied" for entry in entries)
    if not forked and (not applied or entries[0].remedy == BY_HAND):
        return ""
    try:
        return twin_words(interventions([*entries, replace(entries[-1], entry="applied")])[0])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return "a twin was run, but its result can't be read"


def _hypothesis(entries: Sequence[Action]) -> Hypothesis | None:
    entry = next((entry for entry in entries if isinstance(entry.data.get("hypothesis"), Mapping)), None)
    if entry is None:
        return None
    card: Mapping[str, Any] = entry.data["hypothesis"]
    made = next((later.data for later in reversed(entries) if later.entry == "applied" and "guard" in later.data), {})
    if made:  # measured just before the change, which may be long after the proposal
        card = {**card, **{name: made[name] for name in ("guard", "guard_level") if name in made}}
    back, horizon = whole_number(card.get("rollback_to")), card.get("horizon_steps")
    return Hypothesis(
        why=entry.text.partition("; expected within")[0],
        expects=word(card.get("expects")),
        guard=_guard(card),
        horizon=f"{short(horizon)} steps" if horizon is not None else "",
        undo=_undo(card.get("undo")),
        rollback=f"rolls back to the state after step {back:,} first" if back is not None else "",
    )


def _undo(undo: Any) -> tuple[str, ...]:
    if not isinstance(undo, Mapping):
        return ()
    return tuple(f"{knob}: back to {short(value)}" for knob, value in undo.items())


def _guard(card: Mapping[str, Any]) -> str:
    """The metric that must not suffer, its level, and how far below it still counts as noise."""
    metric, level, noise = word(card.get("guard")), card.get("guard_level"), card.get("guard_noise")
    if not metric:
        return ""
    if not isinstance(level, (int, float)) or level == float("-inf"):
        return f"{metric} (no earlier level known)"
    words = f"{metric} stays at {short(level)} or above"
    return f"{words} (tolerance {short(2 * noise)}, twice its noise)" if isinstance(noise, (int, float)) else words
