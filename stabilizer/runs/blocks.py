"""Consecutive rows of numbers with the same names, read as one table.

A log of a million numbers is often ten thousand rows of the same hundred names. A table of floats takes a tenth of the
memory of as many dictionaries, and a `History` takes it in column by column instead of number by number.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

MAX_ROWS = 4096
"""Rows of one block; a longer table becomes several."""


class Block:
    """Rows with the same names, in the order they were written."""

    __slots__ = ("_values", "names", "steps", "times")

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.steps: list[int] = []
        self.times: list[float] = []
        """When each row was written, in seconds since the epoch; 0 where that is not known."""
        self._values = array("d")

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, values: Iterable[float], t: float = 0.0) -> None:
        """Add a row; `values` in the order of `names`. OverflowError, and no row, for a number beyond a float."""
        row = array("d", values)
        self._values.extend(row)
        self.steps.append(step)
        self.times.append(t)

    def ascending(self) -> bool:
        """Whether each step is greater than the one before."""
        return all(map(operator.lt, self.steps, self.steps[1:]))

    def table(self) -> np.ndarray:
        """One row a step, one column a name; must not be changed."""
        return np.array(self._values, float).reshape(len(self.steps), len(self.names))

    def rows(self) -> Iterator[tuple[int, dict[str, float], float]]:
        """The rows one by one: step, values, time."""
        table = self.table()
        for first in range(0, len(table), MAX_ROWS):  # a bounded number at a time, to bound memory
            some = slice(first, first + MAX_ROWS)
            for step, values, t in zip(self.steps[some], table[some].tolist(), self.times[some], strict=True):
                yield step, dict(zip(self.names, values, strict=True)), t


class Blocks:
    """Collects rows into blocks: a row with other names than the one before begins a new block."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def add(self, step: int, values: Mapping[str, float], t: float = 0.0) -> None:
        """Add a row."""
        names = tuple(values)
        if not self.blocks or self.blocks[-1].names != names or len(self.blocks[-1]) >= MAX_ROWS:
            self.blocks.append(Block(names))
        self.blocks[-1].add(step, values.values(), t)
