"""Old rows of a long run leave the memory of the process, and nobody can tell by the numbers."""

from __future__ import annotations

import gc
import os
import pickle

import numpy as np
import pytest

from stabilizer.runs import column as columns
from stabilizer.runs import spilled
from stabilizer.runs.column import Column
from stabilizer.runs.history import History
from stabilizer.runs.ticks import Ticks


@pytest.fixture
def early(monkeypatch):
    """Rows are taken out of memory early, to keep the test short."""
    monkeypatch.setattr(columns, "LEAST_ROWS", 1024)
    monkeypatch.setattr(columns, "KEPT_ROWS", 512)


def filled(rows: int, *, spills: bool) -> Column:
    column = Column(spills=spills)
    for step in range(rows):
        column.add(step, step / 7)
    return column


def test_a_column_in_a_file_holds_the_same_numbers(early):
    kept, away = filled(9000, spills=False), filled(9000, spills=True)
    assert away._spilled is not None and kept._spilled is None
    for column in (kept, away):  # in the middle: a late row, and another value of a row that is there
        column.add(-5, 1.0)
        column.add(4000, 2.0)
        column.extend(np.arange(9000, 20_000), np.arange(9000, 20_000) / 3)
    assert np.array_equal(kept.steps[: kept.size], away.steps[: away.size])
    assert np.array_equal(kept.values[: kept.size], away.values[: away.size])
    assert np.array_equal(kept.fork(50).values[:50], away.fork(50).values[:50])


def test_a_series_that_was_handed_out_outlives_the_growth_of_its_column(early):
    history = History(spills=True)
    for step in range(3000):
        history.append(step, {"a": float(step)})
    series = history.view().series("a")
    for step in range(3000, 30_000):
        history.append(step, {"a": -1.0})
    del history
    gc.collect()
    assert np.array_equal(series.values, np.arange(3000.0))


def test_files_are_closed_with_their_columns_and_never_too_many(early, monkeypatch):
    gc.collect()
    before = spilled._open_files
    monkeypatch.setattr(spilled, "MOST_FILES", before + 3)  # a column that grows needs two for a moment
    held = [filled(2000, spills=True) for _ in range(4)]
    assert [column._spilled is not None for column in held] == [True, True, False, False]
    assert all(column.values[1999] == 1999 / 7 for column in held)
    held.clear()
    gc.collect()
    assert spilled._open_files == before


def test_a_full_disk_leaves_the_numbers_in_memory(early, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    column = filled(5000, spills=True)
    assert column._spilled is None and column.values[4999] == 4999 / 7


def test_a_series_without_gaps_is_known_to_be_finite_until_it_is_not():
    history = History()
    for step in range(10):
        history.append(step, {"a": float(step), "b": float(step)})
    whole = history.view().series("a")
    assert whole.finite() is whole
    history.append(10, {"a": float("nan"), "b": 1e300})
    history.append(5, {"b": 3.0})
    view = history.view()
    assert len(view.series("a").finite()) == 10 and len(view.series("b").finite()) == 10
    assert len(history.fork(10, 1).view().series("a").finite()) == 10


def test_ticks_are_a_list_of_pairs_that_takes_little_memory():
    ticks, pairs = Ticks(), [(0, 1), (0, 2), (1, 2), (1, 3), (1, 3)]
    for attempt, step in pairs:
        ticks.append(attempt, step)
    assert ticks == pairs and list(ticks) == pairs and ticks[-1] == (1, 3) and ticks[1:3] == pairs[1:3]
    assert len(ticks) == 5 and ticks.distinct == 4 and (1, 2) in ticks and bool(ticks) and not Ticks()
    assert ticks != pairs[:4] and Ticks().distinct == 0


def test_rows_at_equal_distances_take_no_memory_each():
    ticks, pairs = Ticks(), [(0, step) for step in range(0, 10_000, 10)]
    pairs += [(1, step) for step in range(500, 900, 10)] + [(1, 900), (1, 903), (1, 903), (1, 950), (2, 7)]
    for attempt, step in pairs:
        ticks.append(attempt, step)
        assert ticks[-1] == (attempt, step)
    assert ticks == pairs and [ticks[place] for place in range(-len(pairs), 0)] == pairs
    assert [ticks[990:1010], ticks[::-7], ticks[5:2], ticks[1040:]] == [
        pairs[990:1010], pairs[::-7], pairs[5:2], pairs[1040:]
    ]  # fmt: skip
    assert ticks.distinct == len(set(pairs)) and len(pickle.dumps(ticks)) < 1_000
    with pytest.raises(IndexError):
        ticks[len(pairs)]
