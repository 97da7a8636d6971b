"""A shared signal equals one computed from scratch, however the column grew and whoever asked before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stabilizer.runs import column
from stabilizer.runs.column import Column

STEPS = st.lists(st.tuples(st.sampled_from(["add", "ask", "fork"]), st.integers(0, 60)), max_size=120)


def running_sum(values: np.ndarray, known: int, last: float | None) -> list[float]:
    return list(np.cumsum(values[known:]) + (last or 0.0))


def check(one: Column, count: int, reach: int) -> None:
    shared = one.signal("sum", running_sum, count)
    np.testing.assert_allclose(shared[-reach:], np.cumsum(one.values[:count])[-reach:])
    assert len(shared) >= min(count, reach)


@settings(max_examples=200, deadline=None)
@given(operations=STEPS)
def test_a_shared_signal_equals_a_recomputed_one(operations) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column, "REACH", 8)
        patch.setattr(column, "AHEAD", 4)
        one, reach = Column(4), 8
        for number, (what, step) in enumerate(operations):
            if what == "add":
                one.add(step, float(number))
            elif what == "fork":
                one = one.fork(one.upto(step))
            else:
                check(one, one.upto(step), reach)
        check(one, one.size, reach)


def test_a_long_column_keeps_a_bounded_part_of_its_signals() -> None:
    one = Column()
    for step in range(6 * column.REACH):
        one.add(step, 1.0)
        one.signal("sum", running_sum, one.size)
    assert one.nbytes <= one.steps.nbytes + one.values.nbytes + 8 * 4 * column.REACH
    check(one, one.size, column.REACH)


def test_a_series_that_was_handed_out_does_not_change() -> None:
    one = Column(4)
    for step in (1, 2, 4):
        one.add(step, float(step))
    steps, values = one.steps[:3], one.values[:3]
    for step, value in ((2, 20.0), (3, 30.0), (9, 90.0), (10, 100.0)):
        one.add(step, value)
    assert steps.tolist() == [1, 2, 4] and values.tolist() == [1.0, 2.0, 4.0]
    assert one.steps[: one.size].tolist() == [1, 2, 3, 4, 9, 10]
    assert one.values[: one.size].tolist() == [1.0, 20.0, 30.0, 4.0, 90.0, 100.0]
