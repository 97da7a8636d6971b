"""Growth and its end, on generated curves: flat ones are reported, those that visibly grow are left alone.

What is asserted are rates over many seeds: a chance is a statement about noise, and is wrong now and then by design.
"""

from __future__ import annotations

import numpy as np
import pytest

from stabilizer.detectors.evidence.growth import growth
from stabilizer.detectors.evidence.stagnation import ARRIVED, SIZABLE, UNLIKELY, stagnation, standstill
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
GROWING = ("linear", "power", "saturating", "logarithmic")
"""Curves that gain clearly more; the late one and the sigmoid are near their limits."""
STOPPED = ("rose early", "rose for half of it", "never rose")


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


@pytest.mark.parametrize(("rows", "noise"), [(20, 0.2), (40, 0.1), (100, 0.2), (240, 0.3)])
def test_a_small_chance_of_a_gain_is_seldom_wrong(rows: int, noise: float) -> None:
    """Of all curves given a chance below `UNLIKELY`, few gain more: the chances are those that they state."""
    wrong = right = 0
    for shape in (*GROWING, *STOPPED):
        for seed in range(10):
            known = growth(run(shape, seed, rows, noise).view(), "reward/mean")
            matters = 0.45 * (known.rose * ARRIVED + (1 - known.rose) * SIZABLE)
            small = known.chance(matters) < UNLIKELY
            wrong += small and shape in GROWING
            right += small and shape in STOPPED
    assert right >= 0.6 * 10 * len(STOPPED) and wrong <= 0.05 * (right + wrong)


@pytest.mark.parametrize("scale", [1e-4, 1.0, -1.0, 3e3])
def test_the_chance_does_not_depend_on_the_scale_or_the_origin_of_the_reward(scale: float) -> None:
    known, other = History(), History()
    curve = run("rose early", 0, 80, 0.2).view().series("reward/mean").values * np.sign(scale)
    for row, value in enumerate(curve, 1):
        known.append(row, {"reward/mean": float(value)})
        other.append(row, {"reward/mean": float(7 * abs(scale) + abs(scale) * value)})
    one, two = (growth(h.view(), "reward/mean") for h in (known, other))
    assert two.rose == pytest.approx(one.rose, abs=1e-6)
    assert two.gain == pytest.approx(abs(scale) * one.gain, rel=1e-6, abs=1e-9 * abs(scale))
    assert two.chance(abs(scale) * 0.1) == pytest.approx(one.chance(0.1), abs=1e-6)


@pytest.mark.parametrize(
    ("shape", "rows", "noise", "every", "least"),
    [
        ("never rose", 100, 0.5, 1, 0.65),
        ("never rose", 60, 0.5, 5, 0.5),
        ("rose early", 140, 0.3, 1, 0.65),
        ("rose for half of it", 200, 0.2, 1, 0.7),
        ("levelled off", 150, 0.1, 1, 0.7),
    ],
)
def test_a_flat_reward_gets_a_hint_among_noise(shape: str, rows: int, noise: float, every: int, least: float) -> None:
    assert share(shape, rows, noise, every) >= least


def test_too_few_rows_or_steps_get_no_hint() -> None:
    assert share("never rose", 9, 0.5, 10) == 0
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
    assert "shows no gain over 100 rows" in finding.summary and "the chance of a gain that matters" in finding.summary


@pytest.mark.parametrize(
    ("measured", "rises"), [((0.3, 0.375, 0.475, 0.425), False), ((0.3, 0.4, 0.5, 0.6), True), ((0.3, 0.3), False)]
)
def test_a_few_held_out_measurements_rise_only_beyond_all_of_their_differences(measured, rises: bool) -> None:
    history = History({})
    for row, value in enumerate(measured):
        history.append(100 + 30 * row, {"accuracy/val": value})
    assert Plateau._validation_rises(history.view(), 60) is rises
