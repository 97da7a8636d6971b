"""A run in memory."""

from __future__ import annotations

import numpy as np
import pytest

from stabilizer.records import Event
from stabilizer.runs.history import History
from tests.series import history


def test_a_run_without_some_metrics_is_the_same_run_otherwise() -> None:
    run = History({"steps": 3}, attempt=1)
    for step in (1, 2, 3):
        run.append(step, {"time/step_s": 0.1, "reward/mean": float(step)})
    rest = run.without("time/")
    assert rest.names() == ["reward/mean"] and list(rest.view().series("reward/mean").values) == [1, 2, 3]
    assert (rest.step, rest.attempt, rest.about) == (3, 1, {"steps": 3})
    assert "time/step_s" in run.view(), "the run itself keeps what it logged"


def test_a_note_declares_a_change_only_where_it_names_one() -> None:
    run = history({"control/lr_scale": "0.04x20 1x20"})
    run.events.append(Event(21, "note", "somebody looked in"))
    assert not run.view().declared(21)
    run.events.append(Event(21, "note", "a held rate follows", data={"change": {"control/lr_scale": [0.04, 1.0]}}))
    assert run.view().declared(21) and not run.view(20).declared(20)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_found_however_it_came_in(bad: float) -> None:
    appended, merged, late = History(), History(), History()
    for run in (appended, merged, late):
        for step in (1, 2, 4):
            run.append(step, {"x": float(step)})
    appended.append(5, {"x": bad})
    merged.append(2, {"x": bad})
    late.append(3, {"x": bad})
    for run, left in ((appended, [1, 2, 4]), (merged, [1, 4]), (late, [1, 2, 4]), (late.fork(4, 1), [1, 2])):
        series = run.view().series("x")
        assert series.finite().values.tolist() == left
        assert series.last(9).finite().values.tolist() == series.between(0, 9).finite().values.tolist() == left
    assert appended.view(4).series("x").finite().values.tolist() == [1, 2, 4]
