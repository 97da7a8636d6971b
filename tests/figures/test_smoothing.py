"""The running mean: what it is, and that thinning comes after it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stabilizer.figures import metric_figure
from stabilizer.figures.growth import drawn, growth
from stabilizer.figures.smoothing import smoothed
from stabilizer.runs.history import History

NAME = "reward/mean"


def plain(steps: np.ndarray, values: np.ndarray, over: float) -> list[float]:
    """The definition, word for word."""
    out = []
    for at in range(len(values)):
        weights = np.exp((steps[: at + 1] - steps[at]) / over) * np.isfinite(values[: at + 1])
        out.append(
            float(np.nansum(weights * np.where(np.isfinite(values[: at + 1]), values[: at + 1], 0)) / weights.sum())
        )
    return out


def history(steps: np.ndarray, values: np.ndarray) -> History:
    run = History()
    for step, value in zip(steps.tolist(), values.tolist(), strict=True):
        run.append(step, {NAME: value})
    return run


@pytest.mark.parametrize("over", [0.5, 5, 50, 3000])
def test_it_is_the_weighted_mean_of_what_came_before(over: float) -> None:
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.integers(1, 9, 600))
    steps[300:] += 20_000  # a long gap
    values = rng.normal(2, 1, 600)
    values[[7, 8, 200]] = np.nan, np.inf, -np.inf
    ours = smoothed(steps, values, over)
    known = np.isfinite(values)
    assert np.isnan(ours[~known]).all()
    np.testing.assert_allclose(ours[known], np.array(plain(steps, values, over))[known], rtol=1e-9)


def test_a_constant_stays_one_from_the_first_point_on() -> None:
    steps = np.arange(1, 100_000)
    np.testing.assert_allclose(smoothed(steps, np.full(len(steps), 0.3), 20), 0.3, rtol=1e-12)


def test_it_weighs_by_steps_and_not_by_points() -> None:
    steps = np.arange(0, 5000)
    values = np.sin(steps / 300)
    often, seldom = smoothed(steps, values, 100), smoothed(steps[::10], values[::10], 100)
    assert np.abs(often[::10] - seldom)[100:].max() < 0.02


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
    assert len(line.x) <= 2000 and all(y == means[x] for x, y in zip(line.x, line.y, strict=True))
    assert behind.opacity < 0.5 and max(behind.y) == values.max()
    assert "smoothed over 50 steps" in line.hovertemplate


def test_a_running_run_extends_the_mean_and_the_values() -> None:
    run = history(np.arange(1, 6), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    before = drawn(run.view(), [NAME], smooth=5)
    run.append(6, {NAME: math.nan})
    run.append(7, {NAME: 9.0})
    grown = growth(run.view(), [NAME], before, smooth=5)
    mean, value = grown.lines
    assert value["y"] == [None, 9.0] and mean["y"][0] is None and 1 < mean["y"][1] < 9
    assert grown.off_axis["x"] == [6]
