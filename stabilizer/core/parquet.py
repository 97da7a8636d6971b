"""Parquet files of unknown origin, within bounds: a few kilobytes can hold hundreds of gigabytes of equal rows.

What a file says of its own size is looked at first, and not believed: the rows are decoded a few at a time, and
reading stops where they are more than a file of that size may hold. Needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS = 8
"""Rows decoded at once: each may hold a long text."""
FREE_BYTES = 16 * 2**20
"""Bytes that a file of any size may hold once decoded."""
EXPANSION = 200
"""Further bytes for each byte of the file. Prompts that are repeated, as a group of completions has them, reach 50."""
VALUE_BYTES = 8
"""Bytes that each value counts as at least: a column of nothing takes no memory here, but it does as Python's."""


class TooMuch(ValueError):
    """A file that holds more than it may."""


def read(
    path: Path, *, max_rows: int | None = None, wanted: Callable[[pyarrow.Field], bool] = lambda field: True
) -> pyarrow.Table:
    """The wanted columns of a file. TooMuch beyond a bound, otherwise errors of pyarrow and of the system."""
    import pyarrow
    from pyarrow import parquet

    with path.open("rb") as opened, parquet.ParquetFile(opened, pre_buffer=False) as packed:
        names = [field.name for field in packed.schema_arrow if wanted(field)]
        limit = FREE_BYTES + EXPANSION * path.stat().st_size
        groups = [packed.metadata.row_group(place) for place in range(packed.metadata.num_row_groups)]
        size, rows = sum(group.total_byte_size for group in groups), packed.metadata.num_rows
        batches: list[pyarrow.RecordBatch] = []
        _check(rows, max_rows, max(size, VALUE_BYTES * rows * len(names)), limit)
        size = rows = 0
        for batch in packed.iter_batches(batch_size=BATCH_ROWS, columns=names, use_threads=False):
            size += max(batch.nbytes, VALUE_BYTES * batch.num_rows * len(names))
            rows += batch.num_rows
            _check(rows, max_rows, size, limit)
            batches.append(batch)
        schema = pyarrow.schema([packed.schema_arrow.field(name) for name in names])
        return pyarrow.Table.from_batches(batches, batches[0].schema if batches else schema).combine_chunks()


def _check(rows: int, max_rows: int | None, size: int, limit: int) -> None:
    if max_rows is not None and rows > max_rows:
        raise TooMuch(f"{rows:,} rows are more than the {max_rows:,} that are read")
    if size > limit:
        raise TooMuch(
            f"its rows hold more than {limit // 2**20:,} MiB, too much for a file of its size; write it again with"
            " smaller texts, or in parts"
        )
