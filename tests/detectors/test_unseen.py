"""Hints of standing still, on generated curves: flat ones are told so, those that visibly grow are left alone.

What is asserted are rates over many seeds: a hint is a statement about noise, and is wrong now and then by design.
"""

from __future__ import annotations

import numpy as np
import pytest

from stabilizer.detectors.evidence.stagnation import stagnation, standstill
from stabilizer.detectors.reward.plateau import Plateau
from stabilizer.runs.history import History

SEEDS = 40
SHAPES = {
    "linear": lambda t: t,
    "power": lambda t: t**0.6,
    "saturating": lambda t: 1 - np.exp(-t / 0.7),
    "logarithmic": lambda t: np.log1p(8 * t),
    "late": lambda t: 1 - np.exp(-np.maximum(0, t - 0.25) / 0.4),
    "sigmoid": lambda t: 1 / (1 + np.exp(-(t - 0.55) / 0.15)),
    "rose early": lambda t: np.minimum(1, t / 0.2),
    "rose for half of it": lambda t: np.minimum(1, t / 0.45),
    "levelled off": lambda t: 1 - np.exp(-t / 0.2),
    "never rose": lambda t: 0 * t,
}
GROWING = ("linear", "power", "saturating", "logarithmic", "late", "sigmoid")


def run(shape: str, seed: int, rows: int, noise: float, every: int = 1) -> History:
    """A reward from 0.25 to 0.7 in noise of so many spreads of a single reward (0.45)."""
    t = (np.arange(rows) + 1) / rows
    curve = SHAPES[shape](t)
    curve = (curve - curve[0]) / max(curve[-1] - curve[0], 1e-9)
    luck = np.random.default_rng([seed, rows]).normal(size=rows)
    history = History()
    for row in range(rows):
        reward = 0.25 + 0.45 * curve[row] + 0.45 * noise * luck[row]
        history.append((row + 1) * every, {"reward/mean": float(reward), "reward/std_group": 0.4})
    return history


def share(shape: str, rows: int, noise: float, every: int = 1) -> float:
    """Of the seeds, those in which something is said at the end."""
    return float(np.mean([standstill(run(shape, s, rows, noise, every).view()) is not None for s in range(SEEDS)]))


@pytest.mark.parametrize("shape", GROWING)
@pytest.mark.parametrize(("rows", "noise"), [(60, 0.1), (100, 0.2), (240, 0.3)])
def test_visible_growth_gets_no_hint(shape: str, rows: int, noise: float) -> None:
    assert share(shape, rows, noise) <= 0.1


@pytest.mark.parametrize(
    ("shape", "rows", "noise", "every", "least"),
    [
        ("never rose", 100, 0.5, 1, 0.65),
        ("never rose", 60, 0.5, 5, 0.5),
        ("rose early", 140, 0.3, 1, 0.65),
        ("rose for half of it", 200, 0.2, 1, 0.7),
        ("levelled off", 150, 0.1, 1, 0.9),
    ],
)
def test_a_flat_reward_gets_a_hint_among_noise(shape: str, rows: int, noise: float, every: int, least: float) -> None:
    assert share(shape, rows, noise, every) >= least


def test_too_few_rows_or_steps_get_no_hint() -> None:
    assert share("never rose", 18, 0.5, 10) == 0
    assert share("never rose", 28, 0.5) == 0


def test_a_third_of_a_plan_must_have_passed() -> None:
    def said(planned: int) -> bool:
        histories = [run("never rose", seed, 100, 0.5) for seed in range(10)]
        for history in histories:
            history.about = {"steps": planned}
        return any(standstill(history.view()) is not None for history in histories)

    assert said(200) and not said(1000)


def test_a_hint_states_what_remains_open() -> None:
    view = next(
        view
        for view in (run("never rose", seed, 100, 0.5).view() for seed in range(SEEDS))
        if standstill(view) is not None and stagnation(view) is None
    )
    finding = Plateau().check(view)
    assert finding is not None and finding.severity == "info" and finding.evidence["sure"] is False
    assert "shows no gain over 100 rows" in finding.summary and "slow gain" in finding.summary


@pytest.mark.parametrize(
    ("measured", "rises"), [((0.3, 0.375, 0.475, 0.425), False), ((0.3, 0.4, 0.5, 0.6), True), ((0.3, 0.3), False)]
)
def test_a_few_held_out_measurements_rise_only_beyond_all_of_their_differences(measured, rises: bool) -> None:
    history = History({})
    for row, value in enumerate(measured):
        history.append(100 + 30 * row, {"accuracy/val": value})
    assert Plateau._validation_rises(history.view(), 60) is rises
