"""The interval of a trial holds at every look together, which an ordinary one does not."""

from __future__ import annotations

import numpy as np

from stabilizer.core.sequential import ALPHA, half_width, rows_needed


def test_the_interval_holds_at_all_looks_as_often_as_promised() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(2000, 60)).cumsum(1) / np.arange(1, 61)
    widths = np.array([half_width(1.0, rows, 30) for rows in range(1, 61)])
    missed = (np.abs(means) > widths).any(1).mean()
    ordinary = (np.abs(means) > 1.645 / np.sqrt(np.arange(1, 61))).any(1).mean()
    assert missed <= ALPHA < ordinary, (missed, ordinary)


def test_it_narrows_with_rows_and_scales_with_the_noise() -> None:
    widths = [half_width(1.0, rows, 30) for rows in (5, 10, 30, 60)]
    assert widths == sorted(widths, reverse=True)
    assert half_width(3.0, 30, 30) == 3 * half_width(1.0, 30, 30)
    assert half_width(1.0, 0, 30) == float("inf")


def test_noisier_values_need_more_rows_within_bounds() -> None:
    needed = [rows_needed(noise, 0.1, 20, 60) for noise in (0.01, 0.17, 0.2, 5.0)]
    assert needed[0] == 20 < needed[1] < needed[2] <= needed[3] == 60
