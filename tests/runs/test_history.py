"""A run in memory."""

from __future__ import annotations

import numpy as np
import pytest

from stabilizer.core.records import Event
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
def test_a_non_finite_number_is_found_however_it_was_added(bad: float) -> None:
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


def test_metrics_logged_together_and_apart_keep_their_own_rows() -> None:
    run, alone = History(), {}
    rows = [
        (0, "v"),
        (1, "abc"),
        (2, "abc"),
        (3, "ab"),
        (4, "abcv"),
        (2, "bc"),
        (5, "c"),
        (6, "acb"),
        (6, "a"),
        (90, "d"),
    ]
    for number, (step, names) in enumerate(rows):
        values = {name: float(number + place) for place, name in enumerate(names)}
        run.append(step, values)
        for name, value in values.items():
            alone.setdefault(name, History()).append(step, {name: value})
    view = run.view()
    for name, one in alone.items():
        assert view.series(name).steps.tolist() == one.view().series(name).steps.tolist()
        assert view.series(name).values.tolist() == one.view().series(name).values.tolist()
    assert [view.latest(name) for name in ("a", "nowhere", "d")] == [8.0, None, 9.0]
    assert run.fork(5, 1).view().names() == ["v", "a", "b", "c"]


def test_a_view_of_an_earlier_step_knows_no_later_metric() -> None:
    run = History()
    run.append(1, {"reward/mean": 1.0})
    run.append(2, {"reward/mean": 1.0, "accuracy/val": 0.5})
    run.append(3, {"policy/kl_old": 0.1})
    names = [run.view(step).names() for step in (0, 1, 2, None)]
    assert names == [[], ["reward/mean"], ["reward/mean", "accuracy/val"], run.names()]


def test_nobody_changes_a_series_or_a_signal_for_the_others() -> None:
    view = history({"reward/mean": "0.5x9"}).view()
    given = view.series("reward/mean")
    signal = view.causal("reward/mean", "twice", lambda values, known, _: 2 * values[known:])
    for array in (given.steps, given.values, given.last(3).values, given.part(1, 4).steps, signal):
        with pytest.raises(ValueError, match="read-only"):
            array -= 1
    assert view.latest("reward/mean") == 0.5
