"""A history filled by blocks is the one filled row by row, whatever the order of the rows."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stabilizer.runs.blocks import MAX_ROWS, Blocks
from stabilizer.runs.history import History

NAMES = st.sampled_from([("a",), ("a", "b"), ("b", "a"), ("c",), ()])
ROWS = st.lists(st.tuples(st.integers(-3, 60), NAMES, st.floats(allow_nan=False), st.sampled_from([0.0, 5.0])))


def filled(rows, by_blocks):
    history, blocks = History(), Blocks()
    for step, names, value, t in rows:
        values = dict.fromkeys(names, value)
        if by_blocks:
            blocks.add(step, values, t)
        else:
            history.append(step, values, t)
    for block in blocks.blocks:
        history.extend(block)
    return history


def same(one, other):
    ours, theirs = one.view(), other.view()
    assert one.step == other.step and ours.names() == theirs.names()
    pairs = [(ours.times(), theirs.times()), *((ours.series(name), theirs.series(name)) for name in ours.names())]
    for mine, yours in pairs:
        np.testing.assert_array_equal(mine.steps, yours.steps)
        np.testing.assert_array_equal(mine.values, yours.values)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, ascending=st.booleans())
def test_blocks_fill_a_history_as_rows_do(rows, ascending):
    rows = sorted(rows, key=lambda row: row[0]) if ascending else rows
    same(filled(rows, True), filled(rows, False))


def test_a_long_table_in_several_blocks_then_single_rows():
    rows = [(step, ("a", "b"), step * 0.5, 1.0) for step in range(2 * MAX_ROWS + 100)]
    more = [(step, ("a",), 7.0, 1.0) for step in range(2 * MAX_ROWS + 100, 2 * MAX_ROWS + 103)]
    same(filled(rows + more, True), filled(rows + more, False))


def test_a_view_handed_out_before_keeps_what_it_saw():
    history = filled([(step, ("a",), 1.0, 0.0) for step in range(100)], True)
    seen = history.view().series("a")
    blocks = Blocks()
    for step in range(100, 300):
        blocks.add(step, {"a": math.nan})
    history.extend(blocks.blocks[0])
    assert len(seen) == 100 and (seen.values == 1.0).all() and len(history.view().series("a")) == 300
