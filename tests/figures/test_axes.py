"""What runs along the bottom of a chart."""

from __future__ import annotations

import numpy as np

from stabilizer.figures import metric_figure
from stabilizer.figures.axes import axis, trained
from stabilizer.figures.growth import drawn, growth
from stabilizer.runs.history import History

NAME = "reward/mean"


def timed(steps: int, pace: float, start: float = 1000.0) -> History:
    run = History()
    for step in range(1, steps + 1):
        run.append(step, {NAME: 1.0}, start + pace * step)
    return run


def test_time_is_counted_from_the_first_step_in_a_unit_one_can_read() -> None:
    seconds = axis(timed(100, 2.0).view(), "time")
    assert seconds.title == "time in training (s)" and seconds.place(1) == 0 and seconds.place(51) == 100
    hours = axis(timed(1000, 60.0).view(), "time")
    assert hours.title == "time in training (h)" and hours.place(61) == 1


def test_a_night_between_two_attempts_is_left_out() -> None:
    run = timed(100, 2.0).fork(101, 1)
    for step in range(101, 201):
        run.append(step, {NAME: 1.0}, 50_000 + 2.0 * step)
    spent = trained(run.view())
    assert spent.values[-1] == 2.0 * 199
    assert trained(run.view(50)).values[-1] == 2.0 * 49


def test_time_spent_on_a_branch_that_was_given_up_is_left_out() -> None:
    run = timed(100, 2.0).fork(51, 1)
    for step in range(51, 101):
        run.append(step, {NAME: 1.0}, 1300 + 2.0 * step)
    assert trained(run.view()).values[-1] == 2.0 * 99


def test_a_long_step_within_an_attempt_counts() -> None:
    run = timed(10, 2.0)
    run.append(11, {NAME: 1.0}, 1000 + 20 + 3600)
    assert trained(run.view()).values[-1] == 18 + 3600


def test_a_copied_log_and_one_without_times_fall_back_to_steps() -> None:
    assert axis(timed(100, 1e-5).view(), "time").by_step
    run = History()
    run.append(1, {NAME: 1.0})
    run.append(2, {NAME: 1.0})
    assert axis(run.view(), "time").by_step and axis(run.view(), "tokens").by_step


def test_a_figure_by_time_tells_the_step_of_each_point_and_grows() -> None:
    run = timed(100, 2.0)
    figure = metric_figure(run.view(), NAME, x="time")
    assert figure.layout.xaxis.title.text == "time in training (s)"
    assert list(figure.data[0].x) == [2.0 * n for n in range(100)] and list(figure.data[0].customdata)[-1] == 100
    before = drawn(run.view(), [NAME], x="time")
    run.append(101, {NAME: 2.0}, 1000 + 202)
    assert growth(run.view(), [NAME], before, x="time").lines[0] == {"x": [200.0], "y": [2.0], "customdata": [101]}


def test_another_unit_of_time_asks_for_a_new_drawing() -> None:
    run = timed(299, 2.0)
    before = drawn(run.view(), [NAME], x="time")
    for step in range(300, 303):
        run.append(step, {NAME: 2.0}, 1000 + 2.0 * step)
    assert axis(run.view(), "time").title == "time in training (min)"
    assert growth(run.view(), [NAME], before, x="time") is None


def test_steps_between_known_ones_lie_at_the_one_before() -> None:
    run = timed(3, 2.0)
    run.append(9, {NAME: 1.0})
    assert axis(run.view(), "time").places(np.array([0, 3, 9])) == [0.0, 4.0, 4.0]
