"""One metric in memory: its values along the steps, and the signals that detectors compute from them.

A signal (a running level, a CUSUM) is causal: its row i depends on values up to i alone. A column therefore computes
only the rows it lacks, and a view of an earlier step reads the same signal up to that step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from stabilizer.runs.spilled import KEPT_ROWS, LEAST_ROWS, Spilled

Advance = Callable[[np.ndarray, int, Any], Sequence[Any]]
"""(values so far, number of rows already known, newest known row or None) -> the missing rows: one number, or one tuple
of numbers, for each value. Some of the newest values may be later than the step that was asked for. A signal that also
depends on something other than the values must leave those out."""

REACH = 2048
"""Newest rows of a signal that a caller can rely on. Older rows are dropped."""

AHEAD = 32
"""Rows computed beyond the one asked for, where the values exist: one call costs as much as several rows."""

LARGEST = 1e60
"""A larger number is stored as an infinity: its fourth power would overflow a float. 32-bit training reaches 3e38."""

SMALLEST_ROOM = 64
"""Rows a new column has room for."""


def bounded(values: np.ndarray) -> np.ndarray:
    """The values, with those beyond `LARGEST` replaced by infinities."""
    beyond = np.abs(values) > LARGEST
    return np.where(beyond, np.copysign(np.inf, values), values) if beyond.any() else values


def read_only(part: np.ndarray) -> np.ndarray:
    """A part of an array that was just taken: who computes in place must not change what all others see."""
    part.flags.writeable = False
    return part


class Column:
    """One metric. Steps ascend; a second value of one step replaces the first; room doubles when it runs out.

    The arrays of a series that was handed out never change: later rows lie behind its end, and everything else copies.
    """

    __slots__ = ("_asked", "_signals", "_spilled", "given", "newest", "size", "spills", "steps", "values", "whole")

    def __init__(self, room: int = SMALLEST_ROOM, *, spills: bool = False):
        self.size = 0
        self.whole = True
        """Whether all values are finite."""
        self.spills = spills
        """Whether old rows of a long run may leave the memory of this process."""
        self._spilled: Spilled | None = None
        self.newest = -(2**63)
        """The newest step; below every step while there is none."""
        self.steps = np.empty(room, np.int64)
        self.values = np.empty(room)
        self._signals: dict[Hashable, _Signal] = {}
        self._asked = (-(2**63), 0)
        """A step before the newest one, and how many rows there are up to it."""
        self.given: Any = None
        """The series that was handed out last: detectors ask for the same one many times a step."""

    @property
    def nbytes(self) -> int:
        """Bytes held by the values and by the signals computed from them."""
        return self.steps.nbytes + self.values.nbytes + sum(signal.nbytes for signal in self._signals.values())

    def add(self, step: int, value: float) -> None:
        """Add a value, or replace the one of that step."""
        if step <= self.newest:
            self._insert(step, value)
            return
        size = self.size
        if size == len(self.steps):
            self._make_room(2 * size)
        self.steps[size], self.values[size] = step, value
        self.size, self.newest = size + 1, step
        if not isfinite(value):
            self.whole = False
        if self._spilled is not None and size % KEPT_ROWS == 0:
            self._spilled.pass_by(size - KEPT_ROWS)

    def extend(self, steps: np.ndarray, values: np.ndarray) -> None:
        """Add values whose steps ascend and all lie behind the newest one."""
        if not len(steps):
            return
        size = self.size + len(steps)
        if size > len(self.steps):
            self._make_room(max(2 * len(self.steps), size))
        self.steps[self.size : size], self.values[self.size : size] = steps, values
        if self._spilled is not None and self.size // KEPT_ROWS < size // KEPT_ROWS:
            self._spilled.pass_by(size - KEPT_ROWS)
        self.size, self.newest = size, int(steps[-1])
        self.whole = self.whole and bool(np.isfinite(values).all())

    def upto(self, step: int) -> int:
        """How many rows there are up to and with a step."""
        if self.newest <= step:
            return self.size
        asked = self._asked
        if asked[0] != step:
            asked = self._asked = step, int(self.steps[: self.size].searchsorted(step, side="right"))
        return asked[1]

    def signal(self, key: Hashable, advance: Advance, count: int) -> np.ndarray:
        """The signal known by `key`, up to row `count`."""
        signal = self._signals.setdefault(key, _Signal())
        if not signal.reaches(count):  # a look far back: computed again, and not kept
            signal = _Signal()
        if signal.size < count:
            values = self.values[: min(self.size, count + AHEAD)]
            signal.extend(advance(values, signal.size, signal.newest()))
        return signal.upto(count)

    def fork(self, count: int) -> Column:
        """A copy of the first `count` rows that grows on its own."""
        other = Column(max(count, SMALLEST_ROOM), spills=self.spills)
        if count:
            other.extend(self.steps[:count], self.values[:count])
        other._signals = {key: signal.fork(count) for key, signal in self._signals.items()}
        return other

    def _make_room(self, room: int) -> None:
        self._spilled = None
        if self.spills and room >= LEAST_ROWS:
            with contextlib.suppress(OSError):
                self._spilled = Spilled(room)
        if self._spilled is not None:
            steps, values = self._spilled.steps, self._spilled.values
        else:
            steps, values = np.empty(room, np.int64), np.empty(room)
        steps[: self.size], values[: self.size] = self.steps[: self.size], self.values[: self.size]
        self.steps, self.values = steps, values

    def _insert(self, step: int, value: float) -> None:
        """Put in, or replace, a row that is not the newest. Signals lose their rows from there on."""
        self._spilled = self.given = None  # the arrays are replaced by copies
        self._asked = (-(2**63), 0)
        self.whole = self.whole and isfinite(value)
        steps, values = self.steps[: self.size], self.values[: self.size]
        index = int(steps.searchsorted(step))
        if steps[index] == step:
            self.values = self.values.copy()
            self.values[index] = value
        else:
            self.steps, self.values = np.insert(steps, index, step), np.insert(values, index, value)
            self.size += 1
        self._signals = {key: signal.fork(index) for key, signal in self._signals.items()}


class _Signal:
    """The newest rows of a causal signal. Rows older than `REACH` are dropped, so that neither the cost of a step nor
    the memory grows with the run."""

    def __init__(self) -> None:
        self.size = 0
        """Rows known so far, dropped ones included."""
        self._rows = np.empty(0)
        self._first = 0
        """Number of the oldest row kept."""

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def reaches(self, count: int) -> bool:
        """Whether the `REACH` rows before number `count` are still here."""
        return self._first == 0 or count - self._first >= REACH

    def newest(self) -> Any:
        return self._rows[self.size - self._first - 1].tolist() if self.size else None

    def upto(self, count: int) -> np.ndarray:
        return read_only(self._rows[: count - self._first])

    def extend(self, missing: Sequence[Any]) -> None:
        rows = np.asarray(missing, float)
        held = self.size - self._first
        self.size += len(rows)
        if held and held + len(rows) <= len(self._rows):
            self._rows[held : held + len(rows)] = rows
            return
        kept = (np.concatenate((self._rows[:held], rows)) if held else rows)[-2 * REACH :]
        self._rows = np.concatenate((kept, np.empty_like(kept)))  # room for as many again
        self._first = self.size - len(kept)

    def fork(self, count: int) -> _Signal:
        """A copy of the first `count` rows; empty where the rows before them were dropped."""
        other = _Signal()
        if self.reaches(count):
            other.size, other._first = min(count, self.size), self._first
            other._rows = self._rows[: max(0, other.size - self._first)].copy()
        return other
