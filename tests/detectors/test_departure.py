"""The shared signals: what counts as a departure from the trend, and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from stabilizer.core.stats import deviation
from stabilizer.detectors.evidence.departure import Departure, change_step, course, departure, drift
from stabilizer.runs.history import REACH, History

SEEDS = range(8)


def first(values: np.ndarray, name: str = "optim/grad_norm", *, up: bool = True) -> tuple[int, Departure] | None:
    """The first step with a standing departure, watched live."""
    run = History()
    for step, value in enumerate(values, 1):
        run.append(step, {name: float(value)})
        if found := departure(run.view(), name, up=up):
            return step, found
    return None


def noise(seed: int, rows: int = 600, size: float = 0.2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=rows) * size


@pytest.mark.parametrize("seed", SEEDS)
def test_a_doubling_is_seen_within_fifteen_rows_and_dated_to_within_five(seed: int) -> None:
    values = np.exp(noise(seed) + np.log(2) * (np.arange(600) >= 400))
    step, found = first(values)
    assert 401 <= step <= 416
    assert abs(found.onset_step - 401) <= 5
    assert 0.8 < found.expected < 1.25
    assert first(values, up=False) is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "course",
    [
        lambda t: 0 * t,
        lambda t: 0.5 * np.sin(2 * np.pi * t / 30),
        lambda t: 0.003 * np.minimum(t, 300),
        lambda t: -0.003 * t,
    ],
    ids=["level", "epochs of 30 rows", "a trend that ends", "a decline"],
)
def test_a_continued_level_or_trend_is_no_departure(seed: int, course) -> None:
    found = first(np.exp(noise(seed) + course(np.arange(600))))
    assert found is None or found[1].ratio < 1.5, "what little a long trend may show is never material"


def test_one_outlier_and_a_missing_value_are_ignored() -> None:
    values = np.exp(noise(0))
    values[300], values[400] = 1e6, np.nan
    assert first(values) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_share_near_zero_can_leave_its_trend(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.binomial(64, np.where(np.arange(400) < 300, 0.01, 0.2)) / 64
    step, found = first(values, "rollout/truncated_frac")
    assert 301 <= step <= 315 and found.expected < 0.04 and abs(found.onset_step - 301) <= 12


def test_a_lasting_shift_becomes_the_new_normal() -> None:
    run = History()
    values = np.exp(noise(1, 1000) + np.log(2) * (np.arange(1000) >= 300))
    standing = []
    for step, value in enumerate(values, 1):
        run.append(step, {"optim/grad_norm": float(value)})
        if departure(run.view(), "optim/grad_norm", up=True):
            standing.append(step)
    assert 180 <= len(standing) and max(standing) < 900


def test_a_declared_event_starts_a_new_reference() -> None:
    from stabilizer.core.records import Event

    run = History()
    run.events.append(Event(step=301, kind="data-stage", text="harder"))
    for step, value in enumerate(np.exp(noise(2, 400) + np.log(2) * (np.arange(400) >= 300)), 1):
        run.append(step, {"optim/grad_norm": float(value)})
        assert departure(run.view(), "optim/grad_norm", up=True) is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rows", [60, 200, 1000])
def test_drift_is_clear_when_it_is_and_not_when_it_is_noise(seed: int, rows: int) -> None:
    still, moved = History(), History()
    fall = np.linspace(0, np.log(4), rows)
    for step, value in enumerate(noise(seed, rows), 1):
        still.append(step, {"policy/entropy": float(np.exp(value))})
        moved.append(step, {"policy/entropy": float(np.exp(value - fall[step - 1]))})
    assert not drift(still.view(), "policy/entropy").clear
    found = drift(moved.view(), "policy/entropy")
    assert found.clear and 0.15 < found.ratio < 0.7


def test_too_few_rows_give_no_drift() -> None:
    run = History()
    for step in range(1, 12):
        run.append(step, {"policy/entropy": 1.0})
    assert drift(run.view(), "policy/entropy") is None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_is_dated_where_it_was(seed: int) -> None:
    run = History()
    for step, value in enumerate(noise(seed, 300) + 0.5 * (np.arange(300) >= 180), 1):
        run.append(2 * step, {"reward/mean": float(value)})
    assert abs(change_step(run.view().series("reward/mean")) - 362) <= 6


def test_a_long_run_keeps_few_rows_of_a_signal_and_still_answers_for_any_step() -> None:
    rows = 5 * REACH
    values = np.exp(noise(0, rows) + np.log(2) * (np.arange(rows) >= rows - 100))
    live, whole = History(), History()
    for step, value in enumerate(values.tolist(), 1):
        live.append(step, {"optim/grad_norm": value})
        whole.append(step, {"optim/grad_norm": value})
        if step % 700 == 0 or step > rows - 3:
            seen = course(live.view(), "optim/grad_norm")
            assert len(seen) <= 4 * REACH
    for step in (rows, rows - 1, rows // 2, 300, rows - 2):
        now, then = live.view(step), whole.fork(step + 1, 0).view()
        assert np.array_equal(course(now, "optim/grad_norm")[-REACH:], course(then, "optim/grad_norm")[-REACH:], True)
        assert departure(now, "optim/grad_norm", up=True) == departure(then, "optim/grad_norm", up=True)
    assert departure(live.view(), "optim/grad_norm", up=True)
    assert live.nbytes < 1.1 * (16 * 2 * rows + 4 * REACH * seen.itemsize * seen.shape[1])


def test_the_fast_deviation_equals_numpys() -> None:
    values = np.random.default_rng(0).normal(3, 2, 37)
    assert deviation(values) == values.std() and deviation(values[:1]) == 0
