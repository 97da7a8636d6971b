"""Rows of numbers that follow one another with the same names, kept as one table: how much is read at once.

A log of a million numbers is ten thousand rows of the same hundred names. As a table of floats it takes a tenth of the
memory of as many dictionaries, and goes into the columns of a `History` column by column instead of number by number.
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

    __slots__ = ("_table", "_values", "names", "steps", "times")

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.steps: list[int] = []
        self.times: list[float] = []
        """When each row was written, in seconds since the epoch; 0 where that is not known."""
        self._values = array("d")
        self._table: np.ndarray | None = None

    @classmethod
    def of(cls, names: tuple[str, ...], steps: list[int], table: np.ndarray) -> Block:
        """The block of a table that is there already, a row a step, a column a name. It is kept as it is: nothing is
        added to it later, and nobody else changes it."""
        block = cls(names)
        block.steps, block.times = steps, [0.0] * len(steps)
        block._table = table
        return block

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, values: Iterable[float], t: float = 0.0) -> None:
        """One more row; `values` in the order of `names`. OverflowError, and no row, for what is beyond a float."""
        row = array("d", values)
        self._values.extend(row)
        self.steps.append(step)
        self.times.append(t)

    def ascending(self) -> bool:
        """Whether every step lies behind the one before."""
        return all(map(operator.lt, self.steps, self.steps[1:]))

    def table(self) -> np.ndarray:
        """A row a step, a column a name; only to be read."""
        if self._table is not None:
            return self._table
        return np.array(self._values, float).reshape(len(self.steps), len(self.names))

    def column(self, name: str) -> np.ndarray:
        """The values of one name."""
        place = self.names.index(name)
        if self._table is not None:
            return self._table[:, place].copy()
        whole = np.frombuffer(self._values).reshape(len(self.steps), len(self.names))
        return whole[:, place].copy()  # no view: one would keep rows from being added

    def rows(self) -> Iterator[tuple[int, dict[str, float], float]]:
        """The rows one by one: step, values, time."""
        table = self.table()
        for first in range(0, len(table), MAX_ROWS):  # as many at a time as can't fill the memory
            some = slice(first, first + MAX_ROWS)
            for step, values, t in zip(self.steps[some], table[some].tolist(), self.times[some], strict=True):
                yield step, dict(zip(self.names, values, strict=True)), t


class Blocks:
    """Rows being gathered into blocks: a row with other names than the one before begins a new one."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def add(self, step: int, values: Mapping[str, float], t: float = 0.0) -> None:
        """One more row."""
        names = tuple(values)
        if not self.blocks or self.blocks[-1].names != names or len(self.blocks[-1]) >= MAX_ROWS:
            self.blocks.append(Block(names))
        self.blocks[-1].add(step, values.values(), t)
