"""A run in memory: columns of numbers along the steps, and the view detectors get of them.

`History` is one lineage of a run: what happened on the way to its present state. A rollback forks it: the new history
starts with the part before the rollback and grows on its own, and the old one stays as it was.

`RunView` is a history up to a step, the only thing a detector ever sees. It can't show the future, so the answer at
step s does not change when later steps exist. Signals that many detectors need (see `column.py`) are computed once per
row and shared; a law test checks that a shared signal equals one computed from scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from stabilizer.core.records import Event
from stabilizer.core.settings import setting_at
from stabilizer.runs.blocks import Block
from stabilizer.runs.column import LARGEST, REACH, Advance, Column, bounded, read_only

T = TypeVar("T")

REBASELINE = frozenset({"schedule", "data-stage", "resume", "rollback", "intervention"})
"""Kinds of event after which a detector compares with the numbers that follow, and no longer with those before."""


def place(steps: np.ndarray, step: int) -> int:
    """The first row at a step or later. Old rows of a long run lie in a file (`spilled`), and are asked only for an old
    step: a search over all of them would bring a part of each file back into memory."""
    start = len(steps) - REACH
    if start > 0 and steps[start] <= step:
        return start + int(steps[start:].searchsorted(step))
    if len(steps) and step <= steps[0]:
        return 0
    return int(steps.searchsorted(step))


class Series(NamedTuple):
    """Values of one metric and the steps they were measured at, oldest first. NaN and Inf are among them."""

    steps: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> Series:
        """Only the points whose value is finite."""
        keep = np.isfinite(self.values)
        return self if keep.all() else Series(self.steps[keep], self.values[keep])

    def last(self, count: int) -> Series:
        """The newest `count` points."""
        start = len(self.steps) - count
        return self if start <= 0 else type(self)(self.steps[start:], self.values[start:])

    def part(self, start: int, stop: int) -> Series:
        """Rows `start` to before `stop`."""
        return type(self)(self.steps[start:stop], self.values[start:stop])

    def between(self, first: int, last: int) -> Series:
        """Points with first <= step <= last."""
        return self.part(place(self.steps, first), place(self.steps, last + 1))


class _FiniteSeries(Series):
    """A series that is known to hold no NaN and no Inf, so that nobody has to look through it."""

    __slots__ = ()

    def finite(self) -> Series:
        return self


REMEMBERED = 4096
"""Answers kept for views that look back: a tenth of a run of 20,000 rows, for two questions."""


@dataclass
class History:
    """One lineage of a run, growing at its end. `about` holds what `run.json` says (config, trainer, clock)."""

    about: Mapping[str, Any] = field(default_factory=dict)
    step: int = -1
    attempt: int = 0
    events: list[Event] = field(default_factory=list)
    forks: list[int] = field(default_factory=list)
    """First steps of the attempts this lineage continued with, oldest first."""
    spills: bool = False
    """Whether old rows may leave the memory of this process: for runs that are watched live, and may be long."""
    _columns: dict[str, Column] = field(default_factory=dict)
    _times: Column = field(default_factory=Column)
    _answers: dict[Hashable, Any] = field(default_factory=dict, init=False)
    """What was asked at earlier steps, by question and step (`RunView.remember`)."""

    def __post_init__(self) -> None:
        self._times.spills = self.spills

    def without(self, prefix: str) -> History:
        """The same run without the metrics whose names begin with `prefix`."""
        return replace(
            self, _columns={name: column for name, column in self._columns.items() if not name.startswith(prefix)}
        )

    def renamed(self, names: Mapping[str, str]) -> History:
        """The same run with other names for some metrics."""
        return replace(self, _columns={names.get(name, name): column for name, column in self._columns.items()})

    def append(self, step: int, values: Mapping[str, float], t: float = 0.0) -> None:
        """Add the numbers of a step, written at `t` if that is known. Two rows of one step merge."""
        step = int(step)
        row = {name: float(value) for name, value in values.items()}  # OverflowError before anything is added
        if step <= self.step:
            self._answers.clear()  # an earlier step was seen without this row
        if t:
            self._times.add(step, t)
        for name, value in row.items():
            if abs(value) > LARGEST:
                value = float(np.copysign(np.inf, value))
            self._column(name).add(step, value)
        self.step = max(self.step, step)

    def extend(self, block: Block) -> None:
        """Add many rows of the same names: the same as appending one after the other, and many times as fast."""
        columns = [self._column(name) for name in block.names]
        newest = max(column.newest for column in (*columns, self._times))
        if not len(block) or block.steps[0] <= newest or not block.ascending():
            for step, values, t in block.rows():
                self.append(step, values, t)
            return
        steps, times = np.array(block.steps, np.int64), np.array(block.times)
        for column, values in zip(columns, bounded(block.table()).T, strict=True):
            column.extend(steps, values)
        self._times.extend(steps[times != 0], times[times != 0])
        self.step = max(self.step, int(steps[-1]))

    def _column(self, name: str) -> Column:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = Column(spills=self.spills)
        return column

    def fork(self, from_step: int, attempt: int) -> History:
        """The history a new attempt starts with: everything before `from_step`."""
        counts = {name: column.upto(from_step - 1) for name, column in self._columns.items()}
        columns = {name: self._columns[name].fork(count) for name, count in counts.items() if count}
        events = [event for event in self.events if event.step < from_step]
        last = max((column.newest for column in columns.values()), default=-1)
        times = self._times.fork(self._times.upto(from_step - 1))
        return History(self.about, last, attempt, events, [*self.forks, from_step], self.spills, columns, times)

    def names(self) -> list[str]:
        """Metrics this history has, in order of appearance."""
        return list(self._columns)

    @property
    def nbytes(self) -> int:
        """Bytes held by the numbers and by the signals computed from them."""
        return sum(column.nbytes for column in self._columns.values())

    def view(self, step: int | None = None) -> RunView:
        """What was known at `step` (now, when not given)."""
        return RunView(self, self.step if step is None else step)


_NO_ROWS = Column(0)


class RunView:
    """A run up to a step: the only argument of a detector."""

    __slots__ = ("_history", "_ignored", "_once", "step")

    def __init__(self, history: History, step: int, ignored: str = ""):
        self._history = history
        self._ignored = ignored
        self._once: dict[Hashable, Any] = {}
        self.step = step

    def __contains__(self, name: str) -> bool:
        return self._column(name).upto(self.step) > 0

    @property
    def attempt(self) -> int:
        """Which attempt this lineage belongs to."""
        return self._history.attempt

    @property
    def forks(self) -> list[int]:
        """First steps of the attempts this lineage continued with."""
        return [step for step in self._history.forks if step <= self.step]

    def names(self) -> list[str]:
        """Metrics measured at or before this step."""
        return list(self.once(_names, len(self._history._columns)))

    def series(self, name: str) -> Series:
        """All points of a metric so far; empty when it was never measured."""
        return self._series(self._column(name))

    def times(self) -> Series:
        """When each step was written, in seconds since the epoch, for those that record it."""
        return self._series(self._history._times)

    def latest(self, name: str) -> float | None:
        """The newest value of a metric, however old; None when there is none."""
        column = self._column(name)
        count = column.upto(self.step)
        return float(column.values[count - 1]) if count else None

    def rows(self, name: str) -> int:
        """Rows in which a metric was measured since the last declared change."""
        steps = self.series(name).steps
        return len(steps) - place(steps, self.baseline_start())

    def at(self, step: int) -> RunView:
        """The same run, seen from an earlier step."""
        return self.once(_seen_from, min(step, self.step), self._ignored)

    def ignoring(self, action: str) -> RunView:
        """The same run, as if the events of one fix had not been declared. Its success is judged in this view."""
        return self.once(_seen_from, self.step, action)

    def causal(self, name: str, key: Hashable, advance: Advance) -> np.ndarray:
        """A shared signal of a metric: row i belongs to point i of `series(name)` and depends on points <= i."""
        column = self._column(name)
        return np.empty(0) if column is _NO_ROWS else column.signal(key, advance, column.upto(self.step))

    def once(self, function: Callable[..., T], *of: Hashable) -> T:
        """`function(view, *of)`, computed once per view however many detectors ask."""
        key = (function, of)
        if key not in self._once:
            self._once[key] = function(self, *of)
        return cast(T, self._once[key])

    def release(self) -> None:
        """Forget what was computed once. Much of that refers back to the view, so that large arrays would stay until
        Python looks for circles, which it seldom does."""
        known, self._once = self._once, {}
        for value in known.values():
            if isinstance(value, RunView):
                value.release()

    def remember(self, function: Callable[[RunView], T]) -> T:
        """`once`, kept for later views that look back at this step with the same question."""
        key = (function, self.step, self._ignored, len(self._history.events))
        answers = self._history._answers
        if key not in answers:
            answers[key] = function(self)
            if len(answers) > REMEMBERED:
                del answers[next(iter(answers))]
        return cast(T, answers[key])

    def events(self, kinds: Iterable[str] | None = None) -> list[Event]:
        """Events declared so far, oldest first."""
        wanted = None if kinds is None else frozenset(kinds)
        return [
            event
            for event in self._history.events
            if event.step <= self.step
            and (wanted is None or event.kind in wanted)
            and not (self._ignored and event.data.get("action") == self._ignored)
        ]

    def declared(self, step: int, knob: str = "") -> bool:
        """Whether a change was declared within one step of `step`; events of an ignored fix count too.

        A note declares nothing, unless it names a change. What names its knobs declares no change of another `knob`.
        """
        near = [e for e in self._history.events if abs(e.step - step) <= 1 and e.step <= self.step]
        return any(not knob or knob in e.data["change"] if "change" in e.data else e.kind != "note" for e in near)

    def baseline_start(self) -> int:
        """The first step whose numbers compare with today's: that of the newest declared change, or the run's first."""
        declared = len(self._history.events)  # events may be added while a view lives
        return self.once(_baseline_start, declared) if declared else 0

    def config(self, key: str, default: Any = None) -> Any:
        """A value of the run's configuration by dotted key, or `default`."""
        return setting_at(self._history.about.get("config"), key, default)

    def about(self, key: str, default: Any = None) -> Any:
        """A field of `run.json`: `trainer`, `clock`, `steps` (planned), `metrics` (definitions)."""
        return self._history.about.get(key, default)

    def _column(self, name: str) -> Column:
        return self._history._columns.get(name, _NO_ROWS)

    def _series(self, column: Column) -> Series:
        count = column.upto(self.step)
        given: Series | None = column.given
        if given is None or len(given.steps) != count:
            kind = _FiniteSeries if column.whole else Series
            given = column.given = kind(read_only(column.steps[:count]), read_only(column.values[:count]))
        return given


def _names(view: RunView, _known: int) -> list[str]:
    return [name for name in view._history._columns if name in view]


def _baseline_start(view: RunView, _declared: int) -> int:
    return max((event.step for event in view.events(REBASELINE)), default=0)


def _seen_from(view: RunView, step: int, ignored: str) -> RunView:
    return RunView(view._history, step, ignored)
