"""The mean over steps: what it is, and that thinning comes after it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stabilizer.figures import metric_figure
from stabilizer.figures.growth import drawn, growth
from stabilizer.figures.plan import Plan
from stabilizer.figures.smoothing import smoothed
from stabilizer.runs.history import History

NAME = "reward/mean"


def plain(steps: np.ndarray, values: np.ndarray, over: float) -> list[float]:
    """The definition, word for word."""
    out, counts = [], []
    for step in steps:
        window = values[(steps > step - over) & (steps <= step)]
        counts.append(np.isfinite(window).sum())
        out.append(float(window[np.isfinite(window)].mean()) if np.isfinite(window).any() else math.nan)
    full = np.flatnonzero(np.isfinite(values) & (steps > steps[0] + over - 2))
    few = 0
    while len(full) and counts[few] < counts[full[0]]:
        out[few] = math.nan
        few += 1
    return out


def history(steps: np.ndarray, values: np.ndarray) -> History:
    run = History()
    for step, value in zip(steps.tolist(), values.tolist(), strict=True):
        run.append(step, {NAME: value})
    return run


@pytest.mark.parametrize("over", [0.5, 5, 50, 3000])
def test_it_is_the_mean_of_the_last_steps(over: float) -> None:
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.integers(1, 9, 600))
    steps[300:] += 20_000  # a long gap
    values = rng.normal(2, 1, 600)
    values[[7, 8, 200]] = np.nan, np.inf, -np.inf
    ours = smoothed(steps, values, over)
    known = np.isfinite(values)
    assert np.isnan(ours[~known]).all()
    np.testing.assert_allclose(ours[known], np.array(plain(steps, values, over))[known], rtol=1e-12)


def test_a_straight_rise_has_no_kink_where_the_window_fills() -> None:
    means = smoothed(np.arange(1, 101), np.arange(100.0), 20)
    assert np.isnan(means[:19]).all() and np.diff(means[19:]) == pytest.approx(1)


def test_what_is_logged_more_rarely_than_the_window_and_what_is_younger_is_drawn_whole() -> None:
    rare = smoothed(np.arange(10, 110, 10), np.arange(10.0), 5)
    young = smoothed(np.arange(1, 9), np.arange(8.0), 20)
    assert rare.tolist() == list(range(10)) and young[0] == 0 and young[-1] == 3.5


def test_a_line_is_drawn_again_when_its_first_window_fills() -> None:
    run = history(np.arange(1, 5), np.arange(4.0))
    before = drawn(run.view(), [NAME], smooth=5)
    run.append(5, {NAME: 4.0})
    assert growth(run.view(), [NAME], before, smooth=5) is None
    before = drawn(run.view(), [NAME], smooth=5)
    run.append(6, {NAME: 5.0})
    assert growth(run.view(), [NAME], before, smooth=5) is not None


@pytest.mark.parametrize("start", [0, 1, 250, 599])
def test_the_newest_points_alone_have_the_same_means(start: int) -> None:
    steps = np.cumsum(np.random.default_rng(0).integers(1, 9, 600))
    values = np.random.default_rng(1).normal(2, 1, 600)
    np.testing.assert_allclose(smoothed(steps, values, 50, start), smoothed(steps, values, 50)[start:], rtol=1e-12)


@pytest.mark.parametrize("value", [0.03, 0.1, 1 / 3, 1e-14, -7.7])
def test_a_constant_stays_exactly_itself(value: float) -> None:
    values = np.full(2_000, value)
    assert (smoothed(np.arange(2_000), values, 50)[49:] == value).all()
    values[:700] = 12.5  # and after a change, once the window has passed it
    assert (smoothed(np.arange(2_000), values, 50)[750:] == value).all()


def test_one_huge_value_leaves_no_trace_after_its_window() -> None:
    values = np.random.default_rng(0).normal(1, 0.1, 500)
    values[100] = 1e30
    means = smoothed(np.arange(500), values, 20)
    np.testing.assert_allclose(means[120:], plain(np.arange(500), values, 20)[120:], rtol=1e-12)


def test_nothing_known_and_nothing_asked_change_nothing() -> None:
    assert np.isnan(smoothed(np.arange(3), np.full(3, np.nan), 5)).all()
    assert smoothed(np.arange(3), np.array([1.0, 5.0, 2.0]), 0).tolist() == [1.0, 5.0, 2.0]
    assert len(smoothed(np.empty(0, int), np.empty(0), 5)) == 0


def test_it_is_taken_before_thinning_and_the_values_stay_behind_it() -> None:
    rng = np.random.default_rng(1)
    steps, values = np.arange(1, 20_001), rng.normal(0, 1, 20_000)
    figure = metric_figure(history(steps, values).view(), NAME, smooth=50)
    line, behind = figure.data[:2]
    means = dict(zip(steps.tolist(), smoothed(steps, values, 50).tolist(), strict=True))
    seen = [(means[x], y) for x, y in zip(line.x, line.y, strict=True) if x >= 50]
    assert len(line.x) <= 2000 and all(mean == y for mean, y in seen)
    assert behind.opacity < 0.5 and max(behind.y) == values.max()
    assert "mean over 50 steps" in line.hovertemplate


def test_a_running_run_extends_the_mean_and_the_values() -> None:
    run = history(np.arange(1, 6), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    before = drawn(run.view(), [NAME], smooth=5)
    run.append(6, {NAME: math.nan})
    run.append(7, {NAME: 9.0})
    grown = growth(run.view(), [NAME], before, smooth=5)
    mean, value = grown.lines
    assert value["y"] == [None, 9.0] and mean["y"] == [None, (3 + 4 + 5 + 9) / 4]
    assert grown.off_axis["x"] == [6]


def test_what_is_set_is_drawn_as_it_was_logged():
    run = History()
    for step in range(10):
        run.append(step, {"optim/lr": step / 10, "reward/mean": step / 10})
    view = run.view()
    plan = Plan(view, ("optim/lr", "reward/mean"), "step", "auto", 5.0, ())
    assert plan.shown("optim/lr").values.tolist() == view.series("optim/lr").values.tolist()
    assert plan.shown("reward/mean").values[-1] < view.series("reward/mean").values[-1]
