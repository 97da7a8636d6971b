"""What the journal of a run says: whether it is whole, and how every action stands.

`actions.jsonl` is written by the training process alone, one line an entry, each with the hash of the one before. So a
line that was edited, taken out or put in shows; that lines were cut off at the end can't be seen from the chain alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabilizer.records import Action, RecordError, decode
from stabilizer.runs.directory import chain_hash
from stabilizer.runs.reader import Tail

BY_HAND = "by-hand"
"""The remedy of an entry that a person caused: a knob turned, an order given, a kept fix undone."""


@dataclass(frozen=True)
class Chain:
    """What checking a journal found."""

    entries: int
    torn: int
    """Lines that are no record, as a crash in the middle of a write leaves them; the chain goes on behind them."""
    broken: str
    """The first broken link in words; empty when the chain holds."""


def verify(path: Path) -> Chain:
    """Check a journal from its first line; the first broken link is told, for everything behind it is in doubt."""
    tail = Tail(path)
    before, count, torn = "", 0, 0
    for number, line in enumerate(tail.lines(), 1):
        try:
            entry: Action = decode(Action, line)
        except RecordError:
            torn += 1
            continue
        what = f"line {number} ({entry.action} {entry.entry} at step {entry.step})"
        if entry.hash != chain_hash(entry):
            return Chain(count, torn, f"{what} was changed after it was written: its hash is not that of what it says")
        if entry.prev != before or entry.n != count:
            return Chain(count, torn, f"{what} does not follow the line before it: an entry is missing, new or moved")
        before, count = entry.hash, count + 1
    return Chain(count, torn + tail.skipped, "")


def newest(actions: Iterable[Action]) -> dict[str, Action]:
    """The newest entry of every action, in the order in which the actions came up."""
    latest: dict[str, Action] = {}
    for action in actions:
        latest[action.action] = action
    return latest


def twin_words(twin: Mapping[str, Any]) -> str:
    """What the paired fork says would have happened, or that nobody asked."""
    with_it, without, steps = twin.get("with"), twin.get("without"), twin.get("steps")
    if not isinstance(with_it, (int, float)) or not isinstance(without, (int, float)):
        return "no twin was run, so what would have happened without it is not known"
    metric = str(twin.get("metric", "the metric"))
    span = f"after {steps} steps " if isinstance(steps, int) else ""
    return f"{span}{metric} was {with_it:.4g} with it and {without:.4g} in the twin without it"
