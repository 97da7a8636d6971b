"""The rows of a run in the order they were written, as (attempt, step): 16 bytes each, however many there are."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

Tick = tuple[int, int]


class Ticks(Sequence[Tick]):
    """Grows at its end. A slice of it is a list."""

    def __init__(self) -> None:
        self._attempts = array("q")
        self._steps = array("q")

    def append(self, attempt: int, step: int) -> None:
        """Add a row."""
        self._attempts.append(attempt)
        self._steps.append(step)

    @property
    def distinct(self) -> int:
        """How many different rows there are."""
        rows = np.array([self._attempts, self._steps], np.int64)
        return np.unique(rows, axis=1).shape[1] if len(self) else 0

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, place: int) -> Tick: ...
    @overload
    def __getitem__(self, place: slice) -> list[Tick]: ...
    def __getitem__(self, place: int | slice) -> Tick | list[Tick]:
        if isinstance(place, slice):
            return list(zip(self._attempts[place], self._steps[place], strict=True))
        return self._attempts[place], self._steps[place]

    def __iter__(self) -> Iterator[Tick]:
        return zip(self._attempts, self._steps, strict=True)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]
