"""Parquet files of a few kilobytes that hold hundreds of gigabytes: reading stops in time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as arrow

from stabilizer.core import parquet
from stabilizer.training.data.table import read_table
from tests.bounded import stabilizer

ROWS = 150_000


def texts(first: int):
    """One short text, and from row `first` on one of five million letters."""
    which = pa.array(np.arange(ROWS) >= first).cast(pa.int32())
    return pa.DictionaryArray.from_arrays(which, pa.array(["a", "x" * 5_000_000]))


def bomb(path, kind: str):
    """Each kind is a few kilobytes on disk."""
    columns = {
        "texts": {"step": [1] * ROWS, "prompt": texts(0), "completion": texts(0), "reward": [0.5] * ROWS},
        "late": {"step": [1] * ROWS, "prompt": texts(ROWS - 900), "completion": ["b"] * ROWS, "reward": [0.5] * ROWS},
        "lists": {"step": [1] * 40, "prompt": [np.zeros(100_000, int)] * 40, "completion": ["b"] * 40},
        "nothing": {"step": np.ones(5_000_000, int), "prompt": pa.nulls(5_000_000), "completion": pa.nulls(5_000_000)},
    }[kind]
    # Statistics would compare each long text with the longest: most of the time that a bomb takes to make.
    packed = {"compression": "zstd", "store_schema": False, "row_group_size": 10**9, "write_statistics": False}
    arrow.write_table(pa.table(columns), path, **packed)
    assert path.stat().st_size < 100_000
    return path


@pytest.mark.parametrize("kind", ["texts", "late", "lists", "nothing"])
def test_a_small_file_of_endless_rows_is_refused_within_a_gigabyte(tmp_path, kind):
    path = bomb(tmp_path / "completions_00001.parquet", kind)
    done = stabilizer("diagnose", path)
    assert done.code == 2 and str(path) in done.err and "Traceback" not in done.err
    assert "more than" in done.err and done.peak < 2**30


def test_a_small_data_set_of_endless_rows_is_refused(tmp_path):
    path = bomb(tmp_path / "data.parquet", "late")
    with pytest.raises(ValueError, match=r"data\.parquet: its rows hold more than"):
        read_table(str(path))


def test_an_honest_file_comes_back_as_it_was(tmp_path):
    table = pa.table({"a": [1, None, 3], "b": [["x", "y"], [], None], "c": [{"k": 1}, None, {"k": 2}]})
    arrow.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    assert parquet.read(tmp_path / "a.parquet").to_pylist() == table.to_pylist()
    arrow.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    assert parquet.read(tmp_path / "b.parquet").column_names == ["a", "b", "c"]
