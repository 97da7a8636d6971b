"""A run in memory: columns of numbers along the steps, and the view detectors get of them.

`History` is one lineage of a run: what happened on the way to its present state. A rollback forks it: the new history
starts with the part before the rollback and goes its own way, the old one stays what it was.

`RunView` is a history up to a step, the only thing a detector ever sees. It can't show the future, so the answer at
step s does not change when later steps exist. Signals that many detectors need (a running level, a CUSUM) are memoised
as arrays whose entry i depends on values up to i alone; a view cuts them at its own step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stabilizer.core.records import Event
from stabilizer.core.settings import setting_at
from stabilizer.runs.blocks import FEW, Block

Advance = Callable[[np.ndarray, int, Any], Sequence[Any]]
"""(values so far, for how many of them the signal is known, its newest row or None) -> the rows that are missing: a
number, or a tuple of numbers, per value. Some of the newest values may be newer than what was asked for: a signal that
rests on more than the values leaves them out."""

REACH = 2048
"""Newest rows of a signal that whoever asks for it can count on."""

AHEAD = 32
"""Rows for which a signal is worked out at once, where they are there already: a call costs as much as some rows do."""

MOST_PLANS = 64
"""Sets of names whose steps are remembered to go together."""

LARGEST = 1e60
"""A larger number is kept as an infinity: its fourth power is beyond a float. Training in 32 bits reaches 3e38."""

T = TypeVar("T")

REBASELINE = frozenset({"schedule", "data-stage", "resume", "rollback", "intervention"})
"""Declared events after which yesterday's normal is no longer normal."""


class Series(NamedTuple):
    """Values of one metric and the steps they were measured at, oldest first. NaN and Inf are among them."""

    steps: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> Series:
        """Only the points that are numbers one can calculate with."""
        with np.errstate(over="ignore"):
            power = float(self.values.dot(self.values))
        if power - power == 0.0:  # the quick way to say that all are
            return self
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
        start, stop = self.steps.searchsorted(first), self.steps.searchsorted(last, side="right")
        if start == 0 and stop == len(self.steps):
            return self
        return type(self)(self.steps[start:stop], self.values[start:stop])


class _AllFinite(Series):
    """Points of a metric that was never anything but a number: detectors ask for those dozens of times a step."""

    __slots__ = ()

    def finite(self) -> Series:
        return self


_EMPTY = _AllFinite(np.empty(0, np.int64), np.empty(0))


class _Column:
    """One metric: its line in the rows that it is logged with, and the signals made of it."""

    __slots__ = ("kind", "memo", "place", "rows", "values")

    rows: _Rows
    place: int
    values: np.ndarray

    def __init__(self) -> None:
        self.memo: dict[Any, _Memo] = {}
        self.kind: type[Series] = _AllFinite
        """What its points are handed out as: plain once anything came that is no number."""

    @classmethod
    def alone(cls) -> _Column:
        """One that is logged with no other."""
        return _Rows([cls()]).columns[0]

    def upto(self, step: int) -> int:
        rows = self.rows
        return rows.size if rows.newest <= step else rows.upto(step)

    def series(self, count: int) -> Series:
        return self.kind(self.rows.steps[:count], self.values[:count])

    def causal(self, key: Any, advance: Advance, count: int) -> np.ndarray:
        memo = self.memo.get(key)
        if memo is None:
            memo = self.memo[key] = _Memo()
        if not memo.reaches(count):  # a look far back: computed once more, and not kept
            memo = _Memo()
        if memo.size < count:
            ahead = min(self.rows.size, count + AHEAD)
            memo.extend(advance(self.values[:ahead], memo.size, memo.newest()))
        return memo.upto(count)


class _Rows:
    """Metrics that have always been logged together: their steps, and a line of values for each.

    A step of training has the same many names as the one before, and adds them all at once. Steps ascend, several rows
    of one step are merged (the last value wins), and room is grown by doubling.
    """

    __slots__ = ("_looked", "columns", "newest", "size", "sound", "steps", "values")

    def __init__(self, columns: list[_Column], steps: np.ndarray | None = None, values: np.ndarray | None = None):
        self.columns = columns
        self.size = 0
        self.newest = -(2**63)
        """The newest step, as a number that compares quickly: every question to a view asks for it."""
        self.sound = all(column.kind is _AllFinite for column in columns)
        """Nothing but numbers ever came."""
        self._looked = (self.newest, 0)
        """A step that was looked at while there were newer ones, and the rows up to it: all questions of a look ask."""
        self.steps = np.empty(64, np.int64) if steps is None else steps
        self._deal(np.empty((len(columns), 64)) if values is None else values)

    def _deal(self, values: np.ndarray) -> None:
        """Give every column its line."""
        self.values = values
        for place, column in enumerate(self.columns):
            column.rows, column.place, column.values = self, place, values[place]

    def _filled(self, size: int) -> _Rows:
        self.size = size
        self.newest = int(self.steps[size - 1]) if size else self.newest
        return self

    def add(self, step: int, values: np.ndarray, *, finite: bool) -> None:
        """Add a row of values."""
        if not finite:
            self.sound = False
            for column, value in zip(self.columns, values.tolist(), strict=True):
                if value - value != 0.0:
                    column.kind = Series
        size = self.size
        if self.newest >= step:
            self._insert(step, values)
            return
        if size == len(self.steps):
            self._grow(2 * size)
        self.steps[size] = step
        self.values[:, size] = values
        self.size, self.newest = size + 1, step

    def extend(self, steps: np.ndarray, values: np.ndarray) -> None:
        """Add ascending steps that all lie behind the newest one."""
        size = self.size + len(steps)
        if size > len(self.steps):
            self._grow(max(2 * len(self.steps), size))
        for column, finite in zip(self.columns, np.isfinite(values).all(1).tolist(), strict=True):
            if not finite:
                column.kind, self.sound = Series, False
        self.steps[self.size : size] = steps
        self.values[:, self.size : size] = values
        self._filled(size)

    def _grow(self, room: int) -> None:
        steps, values = np.empty(room, np.int64), np.empty((len(self.columns), room))
        steps[: self.size], values[:, : self.size] = self.steps[: self.size], self.values[:, : self.size]
        self.steps = steps
        self._deal(values)

    def _insert(self, step: int, values: np.ndarray) -> None:
        """Put in, or merge, what comes late."""
        self._looked = (-(2**63), 0)
        index = int(self.steps[: self.size].searchsorted(step))
        if index < self.size and self.steps[index] == step:
            self._deal(self.values.copy())  # views handed out earlier keep what they saw
            self.values[:, index] = values
        else:
            self.steps = np.insert(self.steps[: self.size], index, step)
            self._deal(np.insert(self.values[:, : self.size], index, values, axis=1))
            self.size += 1
        for column in self.columns:
            column.memo = {key: memo.fork(index) for key, memo in column.memo.items()}

    def split(self, some: list[_Column]) -> _Rows:
        """Some of the columns, from now on in rows of their own."""
        if len(some) == len(self.columns):
            return self
        places = [column.place for column in some]
        rest = [column for column in self.columns if column.place not in set(places)]
        apart = _Rows(some, self.steps.copy(), self.values[places])._filled(self.size)
        self.columns, kept = rest, self.values[[column.place for column in rest]]
        self._deal(kept)
        return apart

    def upto(self, step: int) -> int:
        if self.newest <= step:
            return self.size
        if self._looked[0] != step:
            self._looked = (step, int(self.steps[: self.size].searchsorted(step, side="right")))
        return self._looked[1]

    @property
    def nbytes(self) -> int:
        memos = (memo for column in self.columns for memo in column.memo.values())
        return self.steps.nbytes + self.values.nbytes + sum(memo.nbytes for memo in memos)

    def fork(self, count: int) -> _Rows:
        columns = [_Column() for _ in self.columns]
        for other, column in zip(columns, self.columns, strict=True):
            other.kind = column.kind
            other.memo = {key: memo.fork(count) for key, memo in column.memo.items()}
        room = max(count, 64)
        return _Rows(columns, self.steps[:room].copy(), self.values[:, :room].copy())._filled(count)


class _Memo:
    """The newest rows of a causal signal. Older ones than `REACH` are let go, so that neither a step's cost nor what it
    leaves in memory grows with the run."""

    def __init__(self) -> None:
        self.size = 0
        """Rows known so far, with those that were let go."""
        self._rows = np.empty(0)
        self._first = 0
        """Number of the oldest row kept."""

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def reaches(self, count: int) -> bool:
        """Whether the rows before number `count` are at hand, as far back as anybody looks."""
        return self._first == 0 or count - self._first >= REACH

    def newest(self) -> Any:
        return self._rows[self.size - self._first - 1].tolist() if self.size else None

    def upto(self, count: int) -> np.ndarray:
        return self._rows[: count - self._first]

    def extend(self, missing: Sequence[Any]) -> None:
        held = self.size - self._first
        if held < len(self._rows) and len(missing) == 1:
            self._rows[held] = missing[0]
            self.size += 1
            return
        rows = np.asarray(missing, float)
        self.size += len(rows)
        if held + len(rows) <= len(self._rows):
            self._rows[held : held + len(rows)] = rows
            return
        kept = (np.concatenate((self._rows[:held], rows)) if held else rows)[-2 * REACH :]
        self._rows = np.concatenate((kept, np.empty_like(kept)))  # as many again, so that this is seldom
        self._first = self.size - len(kept)

    def fork(self, count: int) -> _Memo:
        other = _Memo()
        if self.reaches(count):
            other.size, other._first = min(count, self.size), self._first
            other._rows = self._rows[: other.size - self._first].copy()
        return other


_UNKNOWN = object()


def _bounded(values: np.ndarray) -> np.ndarray:
    """The values, those beyond `LARGEST` as infinities."""
    beyond = np.abs(values) > LARGEST
    return np.where(beyond, np.copysign(np.inf, values), values) if beyond.any() else values


_Plan = list[tuple[_Rows, "np.ndarray | None"]]


@dataclass
class History:
    """One lineage of a run, growing at its end. `about` holds what the run says of itself (config, trainer, clock)."""

    about: Mapping[str, Any] = field(default_factory=dict)
    step: int = -1
    attempt: int = 0
    events: list[Event] = field(default_factory=list)
    forks: list[int] = field(default_factory=list)
    """First steps of the attempts this lineage went on with, oldest first."""
    _columns: dict[str, _Column] = field(default_factory=dict)
    _times: _Column = field(default_factory=_Column.alone)
    _plans: dict[tuple[str, ...], _Plan] = field(default_factory=dict, init=False)
    """Where the values of a step go, by the names it has: most have the same."""
    _places: dict[tuple[str, ...], list[tuple[_Rows, np.ndarray, list[int]]]] = field(default_factory=dict, init=False)
    """Where some metrics that are asked for together are: in which rows, on which lines, and which of them."""
    _settings: tuple[Any, dict[Any, Any]] = field(default_factory=lambda: (None, {}), init=False)
    """The configuration, and what was asked of it."""

    def without(self, prefix: str) -> History:
        """The same run, had it not logged the metrics whose names begin so."""
        kept = {name: column for name, column in self._columns.items() if not name.startswith(prefix)}
        return replace(self, _columns=kept)

    def append(self, step: int, values: Mapping[str, float], t: float = 0.0) -> None:
        """Add the numbers of a step, written at `t` if that is known; a step that is there is merged with."""
        if t:
            self._times.rows.add(step, np.array([t]), finite=t - t == 0.0)
        step = int(step)
        row = np.fromiter(values.values(), float, len(values))
        finite = bool(np.logical_and.reduce(np.abs(row) <= LARGEST))
        if not finite:
            row = _bounded(row)
        for rows, places in self._plan(tuple(values)):
            rows.add(step, row if places is None else row[places], finite=finite)
        self.step = max(self.step, step)

    def extend(self, block: Block) -> None:
        """Add many rows of the same names; the same as appending one after the other, and many times as fast."""
        steps = np.array(block.steps, np.int64)
        plan = self._plan(tuple(block.names))
        known = max(rows.newest for rows in (*(rows for rows, _ in plan), self._times.rows))
        if len(steps) < FEW or steps[0] <= known or not block.ascending():
            for step, values, t in block.rows():
                self.append(step, values, t)
            return
        table = _bounded(block.table().T)
        for rows, places in plan:
            rows.extend(steps, table if places is None else table[places])
        times = np.array(block.times)
        self._times.rows.extend(steps[times != 0], times[None, times != 0])
        self.step = max(self.step, int(steps[-1]))

    def _plan(self, names: tuple[str, ...]) -> _Plan:
        """The rows that a step with these names adds to, and which of its values go there; None for all, in order."""
        plan = self._plans.get(names)
        if plan is not None:
            return plan
        self._places.clear()
        columns = self._columns
        new = {name: _Column() for name in names if name not in columns}
        if new:
            _Rows(list(new.values()))
            columns.update(new)
        at = {columns[name]: place for place, name in enumerate(names)}
        plan: _Plan = []
        whole = True
        for rows in dict.fromkeys(column.rows for column in at):
            here = [column for column in rows.columns if column in at]
            whole &= len(here) == len(rows.columns)
            places = [at[column] for column in here]
            all_of_them = places == list(range(len(names)))
            plan.append((rows.split(here), None if all_of_them else np.array(places)))
        if not whole or len(self._plans) >= MOST_PLANS:
            self._plans.clear()  # what was together is no more
        self._plans[names] = plan
        return plan

    def _where(self, names: tuple[str, ...]) -> list[tuple[_Rows, np.ndarray, list[int]]]:
        """`_places` of some names; those never measured are nowhere."""
        known = self._places.get(names)
        if known is None:
            found: dict[int, list[int]] = {}
            columns = [self._columns.get(name) for name in names]
            for which, column in enumerate(columns):
                if column is not None:
                    found.setdefault(id(column.rows), []).append(which)
            known = self._places[names] = [
                (columns[some[0]].rows, np.array([columns[which].place for which in some]), some)
                for some in found.values()
            ]
        return known

    def fork(self, from_step: int, attempt: int) -> History:
        """The history a new attempt starts with: everything before `from_step`."""
        copies: dict[int, _Rows] = {}
        columns = {}
        for name, column in self._columns.items():
            rows = column.rows
            if count := rows.upto(from_step - 1):
                copy = copies.get(id(rows)) or copies.setdefault(id(rows), rows.fork(count))
                columns[name] = copy.columns[column.place]
        events = [event for event in self.events if event.step < from_step]
        last = max((rows.newest for rows in copies.values()), default=-1)
        times = self._times.rows.fork(self._times.upto(from_step - 1)).columns[0]
        return History(self.about, last, attempt, events, [*self.forks, from_step], columns, times)

    def names(self) -> list[str]:
        """Metrics this history has, in order of appearance."""
        return list(self._columns)

    @property
    def nbytes(self) -> int:
        """Bytes held by the numbers and by the signals made of them."""
        rows = {id(column.rows): column.rows for column in self._columns.values()}
        return sum(some.nbytes for some in rows.values())

    def view(self, step: int | None = None) -> RunView:
        """What was known at `step` (now, when not given)."""
        return RunView(self, self.step if step is None else step)


class RunView:
    """A run up to a step: a pure question's only argument."""

    __slots__ = ("_baseline", "_history", "_ignored", "_names", "_once", "_series", "step")

    def __init__(self, history: History, step: int, ignored: str = ""):
        self._history = history
        self._ignored = ignored
        self._once: dict[Any, Any] = {}
        self._series: dict[str, Series] = {}
        self._names: list[str] | None = None
        self._baseline = (-1, 0)
        self.step = step

    def __contains__(self, name: str) -> bool:
        column = self._history._columns.get(name)
        return column is not None and column.upto(self.step) > 0

    @property
    def attempt(self) -> int:
        """Which attempt this lineage belongs to."""
        return self._history.attempt

    def names(self) -> list[str]:
        """Metrics measured at or before this step."""
        if self._names is None:
            there: dict[_Rows, bool] = {}  # most names are logged together: one look for all of them
            self._names = []
            for name, column in self._history._columns.items():
                rows = column.rows
                if rows not in there:
                    there[rows] = rows.upto(self.step) > 0
                if there[rows]:
                    self._names.append(name)
        return list(self._names)

    def series(self, name: str) -> Series:
        """All points of a metric so far; empty when it was never measured."""
        known = self._series.get(name)
        if known is None:
            column = self._history._columns.get(name)
            if column is None:
                known = _EMPTY
            else:
                rows = column.rows
                count = rows.size if rows.newest <= self.step else rows.upto(self.step)
                known = column.kind(rows.steps[:count], column.values[:count])
            self._series[name] = known
        return known

    def times(self) -> Series:
        """When each step was written, in seconds since the epoch, for those that say so."""
        column = self._history._times
        return column.series(column.upto(self.step))

    @property
    def forks(self) -> list[int]:
        """First steps of the attempts this lineage went on with."""
        return [step for step in self._history.forks if step <= self.step]

    def latest(self, name: str) -> float | None:
        """The newest value of a metric, however old; None when there is none."""
        column = self._history._columns.get(name)
        if column is None:
            return None
        rows = column.rows
        count = rows.size if rows.newest <= self.step else rows.upto(self.step)
        return column.values.item(count - 1) if count else None

    def rows(self, name: str) -> int:
        """Rows in which a metric was measured since the last declared change."""
        column = self._history._columns.get(name)
        if column is None:
            return 0
        start, count = self.baseline_start(), column.upto(self.step)
        return count - int(column.rows.steps[:count].searchsorted(start)) if start else count

    def newest(self, names: tuple[str, ...]) -> list[float | None]:
        """`latest` of many metrics at once."""
        out: list[float | None] = [None] * len(names)
        for rows, lines, which in self._history._where(names):
            if count := rows.upto(self.step):
                for place, value in zip(which, rows.values[lines, count - 1].tolist(), strict=True):
                    out[place] = value
        return out

    def moved(self, names: tuple[str, ...], back: int) -> list[str]:
        """Which metrics' newest value differs from the one so many rows ago, or the oldest: a cheap look."""
        found: list[int] = []
        for rows, lines, which in self._history._where(names):
            count = rows.upto(self.step)
            if count > 1:
                differs = rows.values[lines, count - 1] != rows.values[lines, max(0, count - back)]
                found += [which[place] for place in differs.nonzero()[0].tolist()]
        return [names[place] for place in sorted(found)]

    def varied(self, names: tuple[str, ...], since: int) -> list[str]:
        """Which metrics did not have one value in all rows from a step on: a cheap look."""
        found: list[int] = []
        for rows, lines, which in self._history._where(names):
            count = rows.upto(self.step)
            first = int(rows.steps[:count].searchsorted(since))
            if first < count - 1:
                values = rows.values[lines, first:count]
                found += [which[place] for place in (values != values[:, -1:]).any(1).nonzero()[0].tolist()]
        return [names[place] for place in sorted(found)]

    def sound(self, names: tuple[str, ...]) -> bool:
        """Whether some metrics, and those logged with them, were never anything but numbers: a cheap look."""
        return all(rows.sound for rows, _, _ in self._history._where(names))

    def at(self, step: int) -> RunView:
        """The same run, seen from an earlier step."""
        return RunView(self._history, min(step, self.step), self._ignored)

    def ignoring(self, action: str) -> RunView:
        """The same run, as if the events of one fix had not been declared: what its success is judged by."""
        return RunView(self._history, self.step, action)

    def causal(self, name: str, key: Any, advance: Advance) -> np.ndarray:
        """A memoised signal of a metric: entry i belongs to point i of `series(name)` and rests on points <= i."""
        column = self._history._columns.get(name)
        return np.empty(0) if column is None else column.causal(key, advance, column.upto(self.step))

    def once(self, function: Callable[..., T], *of: Any) -> T:
        """`function(view, *of)`, computed once however many detectors ask."""
        key = (function, of)
        if key not in self._once:
            self._once[key] = function(self, *of)
        return self._once[key]

    def events(self, kinds: Iterable[str] | None = None) -> list[Event]:
        """Events declared so far, oldest first."""
        if not self._history.events:
            return []
        wanted = None if kinds is None else frozenset(kinds)
        return [
            event
            for event in self._history.events
            if event.step <= self.step
            and (wanted is None or event.kind in wanted)
            and not (self._ignored and event.data.get("action") == self._ignored)
        ]

    def declared(self, step: int) -> bool:
        """Whether anything was declared within a step of this one: who turned a knob is a fact, whatever is ignored.

        A note declares nothing, unless it names a change.
        """
        events = self._history.events
        near = [e for e in events if abs(e.step - step) <= 1 and e.step <= self.step]
        return any(e.kind != "note" or "change" in e.data for e in near)

    def baseline_start(self) -> int:
        """The first step whose numbers compare with today's: that of the newest declared change, or the run's first."""
        declared = len(self._history.events)
        if self._baseline[0] != declared:
            start = max((event.step for event in self.events(REBASELINE)), default=0) if declared else 0
            self._baseline = (declared, start)
        return self._baseline[1]

    def config(self, key: str, default: Any = None) -> Any:
        """A value of the run's configuration by dotted key, or `default`."""
        known = self._known_of_config()
        value = known.get(key)
        if value is None:  # as it is at most once, or where it is None
            value = known[key] = setting_at(self._history.about.get("config"), key, _UNKNOWN)
        return default if value is _UNKNOWN else value

    def of_config(self, function: Callable[[RunView], T]) -> T:
        """`function(view)`, of one that asks for nothing but settings: worked out once a run."""
        known = self._known_of_config()
        if function not in known:
            known[function] = function(self)
        return known[function]

    def _known_of_config(self) -> dict[Any, Any]:
        """What was asked of the configuration before."""
        history = self._history
        config = history.about.get("config")
        if history._settings[0] is not config:
            history._settings = (config, {})
        return history._settings[1]

    def about(self, key: str, default: Any = None) -> Any:
        """What the run says of itself: `trainer`, `clock`, `steps` (planned), `metrics` (definitions)."""
        return self._history.about.get(key, default)
