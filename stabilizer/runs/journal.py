"""What the journal of a run says: whether it is whole, what was tried so far, and where it puts each knob.

`actions.jsonl` is written by the training process alone, one line an entry, each with the hash of the one before. So a
line that was edited, taken out or put in shows; that lines were cut off at the end can't be seen from the chain alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stabilizer.core.records import Action, Event, Origin, Reason, RecordError, decode
from stabilizer.runs.chain import chain_hash
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
    """Check a journal from its first line and report the first broken link: everything after it is in doubt."""
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


def first(actions: Iterable[Action]) -> dict[str, Action]:
    """The first entry of every action, in the order in which the actions came up."""
    began: dict[str, Action] = {}
    for action in actions:
        began.setdefault(action.action, action)
    return began


def origin_of_event(event: Event) -> Origin:
    """Who made a change that an event declares; empty where it declares no action."""
    if "action" not in event.data:
        return ""
    stated = event.data.get("origin")
    return stated if stated in ("remedy", "person") else "person" if "by" in event.data else "remedy"


def origin_of(entry: Action) -> Origin:
    """Who began an action. Journals from before the field was written tell a person's action by its remedy."""
    return entry.origin or ("person" if entry.remedy == BY_HAND else "remedy")


def by_remedies(actions: Iterable[Action]) -> list[Action]:
    """The entries of actions that a remedy began, a person's answers to them included."""
    began: dict[str, Origin] = {}
    return [a for a in actions if began.setdefault(a.action, origin_of(a)) == "remedy"]


def reason_of(entry: Action) -> Reason:
    """Why an action ended. Journals from before the field was written tell it by what else an entry holds."""
    if entry.reason:
        return entry.reason
    if "interrupted" in entry.data:
        return "interrupted"
    if entry.entry == "reverted":
        if "released" in entry.data:
            return "over"
        return "person" if entry.remedy == BY_HAND else "failed" if "ticks" in entry.data else ""
    return "no-gain" if entry.entry in ("rejected", "expired") and entry.data.get("probe") else ""


def turned(entry: Action) -> dict[str, float]:
    """Knobs as an entry left them: an applied change at its end, an undone one at its beginning."""
    place = {"applied": 1, "reverted": 0, "failed": 0}.get(entry.entry)
    if place is None:
        return {}
    return {knob: value for knob, values in entry.change.items() if (value := values[place]) is not None}


def knobs(initial: Mapping[str, float], actions: Iterable[Action]) -> dict[str, float]:
    """The knobs as the journal has them, from their values when the run began."""
    values = dict(initial)
    begun: set[str] = set()
    for entry in actions:
        if entry.entry in ("approved", "applied"):
            begun.add(entry.action)
        if entry.entry != "failed" or entry.action in begun:  # one that never began has turned nothing back
            values |= turned(entry)
    return values


FIRST_WAIT = 20
"""Steps before a return that would have won nothing is looked at again; each further wait is twice as long."""
_DIGITS = re.compile(r"\d+")
_FREED: frozenset[Reason] = frozenset({"over", "interrupted", "replaced", "no-need"})
"""Reasons after which a remedy may be proposed again for the same incident."""


@dataclass(frozen=True)
class Holding:
    """A change that was kept only for as long as steps would be too large without it."""

    remedy: str
    incident: int
    cause: str
    onset: int


@dataclass(frozen=True)
class Wait:
    """When a return that would have won nothing is due to be looked at again."""

    until: float
    """Step; infinite once it was looked at."""
    steps: int
    """How long the wait is, or was."""


@dataclass
class Memory:
    """What was tried on a run and what that cost: everything that decides what may still be done.

    `fold` makes it; nobody else changes it.
    """

    applied: int = 0
    """Fixes that were applied."""
    extra: int = 0
    """Steps thrown away or run on the side."""
    failures: Counter[int] = field(default_factory=Counter)
    """Failed trials by incident."""
    rollbacks: Counter[str] = field(default_factory=Counter)
    """Returns to a checkpoint by cause."""
    moves: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Knob -> when it was last moved, and which way."""
    courses: dict[str, int] = field(default_factory=dict)
    """Knob -> the last step at which a fix that goes there row by row turns it."""
    orders: dict[str, int] = field(default_factory=dict)
    """Order -> when a fix last gave it."""
    proposed: set[tuple[int, str]] = field(default_factory=set)
    """Incident and remedy that were tried or proposed."""
    waits: dict[tuple[int, str], Wait] = field(default_factory=dict)
    """Incident and remedy -> when they are due again."""
    kept: dict[str, dict[str, tuple[float | None, float | None]]] = field(default_factory=dict)
    """Action -> its change, of changes that were kept and not undone since."""
    holding: dict[str, Holding] = field(default_factory=dict)
    """Action -> what it was kept against, of kept changes that slow learning."""
    rates: dict[str, float] = field(default_factory=dict)
    """Action -> the learning rate that it keeps while the schedule is away."""
    released: set[str] = field(default_factory=set)
    """Remedies that were undone because what they were for had passed."""
    put_right: set[int] = field(default_factory=set)
    """Incidents in which an undeclared change was undone for good."""
    outlived: set[tuple[int, str]] = field(default_factory=set)
    """Incident and finding that were made harmless and go on."""
    came: dict[int, int] = field(default_factory=dict)
    """Incident -> the first step at which the reward that had failed was back."""
    restored: int | None = None
    """The first step under a setting that was put back and kept."""
    rested_from: int | None = None
    """The step at which the last trial ended."""
    numbered: int = 0
    """The highest number of an action so far."""

    def tried_by(self, incident: int, remedy: str, step: int) -> bool:
        """Whether a remedy was tried or proposed for an incident and is not due again at a step."""
        wait = self.waits.get((incident, remedy))
        return (incident, remedy) in self.proposed and (wait is None or step < wait.until)


def fold(entries: Iterable[Action]) -> Memory:
    """What the entries of remedies' actions add up to, the same for a live run and after a restart."""
    told = by_remedies(entries)
    last = newest(told)
    follow_ups = {entry.action for entry in told if "builds_on" in entry.data}
    memory = Memory()
    for entry in told:
        memory.extra += int(entry.data.get("extra_steps", 0))
        memory.numbered = max(memory.numbered, *map(int, _DIGITS.findall(entry.action)[-1:]), 0)
        _note_proposal(memory, entry, follow_up=entry.action in follow_ups)
        if entry.entry == "applied":
            _note_applied(memory, entry, cut=reason_of(last[entry.action]) == "interrupted")
        elif entry.entry == "verified":
            _note_kept(memory, entry)
        elif entry.entry == "reverted":
            _note_reverted(memory, entry)
        if entry.entry in ("verified", "reverted") and reason_of(entry) == "failed":
            memory.failures[entry.incident] += 1
    return memory


def _note_proposal(memory: Memory, entry: Action, *, follow_up: bool) -> None:
    """What continues another trial is no proposal for the incident, and may still be proposed by itself."""
    looked, reason = (entry.incident, entry.remedy), reason_of(entry)
    if entry.remedy == BY_HAND:
        return
    if reason in _FREED:
        memory.proposed.discard(looked)
    elif reason == "no-gain":
        steps = 2 * memory.waits[looked].steps if looked in memory.waits else FIRST_WAIT
        memory.waits[looked] = Wait(entry.step + steps, steps)
        memory.proposed.add(looked)
    elif not follow_up:
        memory.proposed.add(looked)
        if entry.entry == "proposed" and looked in memory.waits:  # what speaks against it now does not pass with time
            memory.waits[looked] = Wait(math.inf, memory.waits[looked].steps)


def _note_applied(memory: Memory, entry: Action, *, cut: bool) -> None:
    """What a restart cut off is tried again, so its orders do not count."""
    data = entry.data
    memory.applied += 1
    memory.orders |= {} if cut else {str(order): entry.step for order in data.get("orders", ())}
    for knob, (before, after) in entry.change.items():
        if before != after:
            memory.moves[knob] = (entry.step, (after or 0.0) - (before or 0.0))
    begins = int(data.get("back_to", entry.step))
    memory.courses |= {knob: begins + len(values) for knob, values in data.get("course", {}).items()}
    if cause := data.get("back_for"):
        memory.rollbacks[str(cause)] += 1
    if "holds" in data:
        memory.rates[entry.action] = float(data["holds"])


def _note_kept(memory: Memory, entry: Action) -> None:
    data = entry.data
    memory.kept[entry.action] = dict(entry.change)
    memory.rested_from = entry.step
    memory.restored = data.get("restored", memory.restored)
    memory.outlived |= {(entry.incident, str(name)) for name in data.get("outlived", ())}
    if came := data.get("came"):
        memory.came[entry.incident] = int(came)
    if data.get("put_right") or "restored" in data:
        memory.put_right.add(entry.incident)
    if against := data.get("against"):
        memory.holding[entry.action] = Holding(
            entry.remedy, entry.incident, str(against["cause"]), int(against["onset"])
        )


def _note_reverted(memory: Memory, entry: Action) -> None:
    memory.kept.pop(entry.action, None)
    memory.holding.pop(entry.action, None)
    reason = reason_of(entry)
    if reason in ("failed", "over"):
        memory.rested_from = int(entry.data.get("back_to", entry.step))
    if reason == "over":
        memory.released.add(entry.remedy)
    elif reason == "person":  # no remedy turns these knobs back soon
        for knob, (before, after) in entry.change.items():
            memory.moves[knob] = (entry.step, (before or 0.0) - (after or 0.0))
