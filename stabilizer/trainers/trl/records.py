"""Gathers TRL's records into tables: consecutive records with the same keys and only numbers.

Most of a log is like that. Records are converted a few at a time and released at once, while they are still in the
processor's cache.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any

import numpy as np

from stabilizer.formats.rows import LARGEST_STEP
from stabilizer.runs.blocks import Block

FEW = 8
"""Fewest records for which a table is faster."""
AT_ONCE = 32
"""Records that are turned into numbers together."""
SUMMARY = "train_runtime"
"""Key of the final summary, which has a step but is not a row of training."""


@dataclass(frozen=True)
class Table:
    """Records with the same keys: a row each, a column a key."""

    keys: tuple[str, ...]
    values: np.ndarray

    def column(self, key: str) -> np.ndarray:
        """The numbers under one key."""
        return self.values[:, self.keys.index(key)]

    def entries(self, names: tuple[str, ...]) -> Iterator[Block | tuple[int, dict[str, float]]]:
        """The rows under other names, those of the keys without `step`: as a block, or one by one where two keys got
        the same name. Where the steps go back, which a restart does, that row comes in a block of its own, so that
        those behind it stay quick to read."""
        steps = self.column("step").astype(np.int64)
        place = self.keys.index("step")
        last = place == len(self.keys) - 1
        values = self.values[:, :-1] if last else np.delete(self.values, place, axis=1)
        if len(set(names)) < len(names):
            for step, row in zip(steps.tolist(), values.tolist(), strict=True):
                yield step, dict(zip(names, row, strict=True))
            return
        back = np.flatnonzero(np.diff(steps) <= 0) + 1
        few = len(back) * FEW <= len(steps)
        cuts: list[int] = np.unique(np.concatenate((back, back + 1))).tolist() if few else []
        for some, rows in zip(np.split(steps, cuts), np.split(values, cuts), strict=True):
            if len(some):
                yield Block.of(names, some.tolist(), rows)


def taken(records: list[Any]) -> Iterator[Any]:
    """The records of a list, which is emptied on the way."""
    records.reverse()
    while records:
        yield records.pop()


def gather(records: Iterable[Any]) -> list[Any]:
    """The records in their order, as tables as far as they go, else as they are."""
    found: list[Any] = []
    for keys, group in groupby(records, keys_of):
        tables: list[np.ndarray] = []
        while some := list(islice(group, AT_ONCE)):
            values = _numbers(keys, some) if len(some) >= FEW or tables else None
            if values is not None:
                tables.append(values)
                continue
            found += [Table(keys, np.concatenate(tables)), *some] if tables else some
            tables = []
        found += [Table(keys, np.concatenate(tables))] if tables else []
    return found


def keys_of(record: Any) -> tuple[str, ...]:
    """The keys of a table or of a record; none of what is neither."""
    if type(record) is dict:
        return tuple(record)
    return record.keys if isinstance(record, Table) else ()


def _numbers(keys: tuple[str, ...], records: list[dict[str, Any]]) -> np.ndarray | None:
    """A row of numbers per record; None when any value is not a number or a step is missing."""
    if "step" not in keys or SUMMARY in keys or not {type(record["step"]) for record in records} <= {int, float}:
        return None
    count = len(records) * len(keys)
    try:
        values = np.frombuffer(struct.pack(f"{count}d", *chain.from_iterable(map(dict.values, records))))
    except (struct.error, OverflowError):  # a text, null, an object; an integer beyond any float
        return None
    table = values.reshape(len(records), len(keys))
    steps = table[:, keys.index("step")]
    return table if ((steps >= 0) & (steps < LARGEST_STEP) & (steps == np.floor(steps))).all() else None
