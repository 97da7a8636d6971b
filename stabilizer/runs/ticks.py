"""The rows of a run in the order they were written, as (attempt, step): a few bytes for all rows at equal distances."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

Tick = tuple[int, int]


class Ticks(Sequence[Tick]):
    """Grows at its end. A slice of it is a list.

    Rows of one attempt whose steps lie equally far apart are one part. A run that logs at changing distances has a part
    for every two rows, and needs 16 bytes for each.
    """

    def __init__(self) -> None:
        self._size = 0
        self._starts = array("q")
        """Number of the first row of each part; then its attempt, its step, and the distance of its rows."""
        self._attempts = array("q")
        self._steps = array("q")
        self._apart = array("q")

    def append(self, attempt: int, step: int) -> None:
        """Add a row."""
        within = self._size - self._starts[-1] if self._size else 0
        if within == 1 and attempt == self._attempts[-1]:
            self._apart[-1] = step - self._steps[-1]
        elif not within or (attempt, step) != (self._attempts[-1], self._steps[-1] + within * self._apart[-1]):
            self._starts.append(self._size)
            self._attempts.append(attempt)
            self._steps.append(step)
            self._apart.append(0)
        self._size += 1

    @property
    def distinct(self) -> int:
        """How many different rows there are."""
        if not self._size:
            return 0
        starts, apart = np.array(self._starts), np.array(self._apart)
        counts = np.diff(starts, append=self._size)
        within = np.arange(self._size) - np.repeat(starts, counts)
        steps = np.repeat(np.array(self._steps), counts) + within * np.repeat(apart, counts)
        rows = np.array([np.repeat(np.array(self._attempts), counts), steps])
        return int(np.unique(rows, axis=1).shape[1])

    def _rows(self, start: int, stop: int) -> Iterator[Tick]:
        """Rows `start` to before `stop`."""
        for part in range(max(bisect_right(self._starts, start) - 1, 0), len(self._starts)):
            first, attempt, step = self._starts[part], self._attempts[part], self._steps[part]
            end = self._starts[part + 1] if part + 1 < len(self._starts) else self._size
            for row in range(max(start, first), min(stop, end)):
                yield attempt, step + (row - first) * self._apart[part]
            if end >= stop:
                return

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> Tick: ...
    @overload
    def __getitem__(self, place: slice) -> list[Tick]: ...
    def __getitem__(self, place: int | slice) -> Tick | list[Tick]:
        if isinstance(place, slice):
            rows = range(self._size)[place]
            first, last = sorted((rows[0], rows[-1])) if rows else (0, -1)
            return list(self._rows(first, last + 1))[:: rows.step]
        row = range(self._size)[place]
        part = bisect_right(self._starts, row) - 1
        return self._attempts[part], self._steps[part] + (row - self._starts[part]) * self._apart[part]

    def __iter__(self) -> Iterator[Tick]:
        return self._rows(0, self._size)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]
