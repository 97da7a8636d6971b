"""The data of the journal page: trials, manual actions and attempts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dashboards.data.followed_run import Reader
from dashboards.data.trials import trials_of
from stabilizer.core.knobs import change_words
from stabilizer.core.records import Event
from stabilizer.core.text import short
from stabilizer.runs.journal import Chain, verify
from stabilizer.runs.listing import whole_number, word
from stabilizer.runs.story import TrialStory

MAX_JOURNAL = 16 * 1024 * 1024
"""Bytes of a journal that are checked link by link; a larger one is not a journal any more."""
MAX_MANUAL = 100


@dataclass(frozen=True)
class ManualAction:
    """Something a person requested: a changed knob, an order, a pause."""

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
    """Everything the page shows."""

    trials: tuple[TrialStory, ...]
    manual: tuple[ManualAction, ...]
    attempts: tuple[Attempt, ...]
    chain: Chain | None
    """None when the journal is too large to be checked here."""


class Chains:
    """Checked journals, each checked again only when it changed. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[tuple[int, int], Chain]] = {}

    def of(self, run: Path) -> Chain | None:
        """The check of a run's hash chain."""
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


def journal(reader: Reader, chain: Chain | None) -> Journal:
    """The journal of a run as its reader has it now."""
    actions = {action.action for action in reader.actions}
    manual = [event for event in reader.events if event.data.get("by") and event.data.get("action") not in actions]
    return Journal(
        trials=trials_of(reader.actions),
        manual=tuple(_manual(event) for event in reversed(manual[-MAX_MANUAL:])),
        attempts=_attempts(reader),
        chain=chain,
    )


def _manual(event: Event) -> ManualAction:
    change = event.data.get("change")
    lines: list[str] = []
    if isinstance(change, Mapping):
        pairs = {k: tuple(v) for k, v in change.items() if isinstance(v, (list, tuple)) and len(v) == 2}
        lines = change_words(pairs)
    return ManualAction(event.step, short(event.data.get("by"))[:80], event.text, tuple(lines))


def _attempts(reader: Reader) -> tuple[Attempt, ...]:
    """Every attempt, the first one included, with the event that explains it."""
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
