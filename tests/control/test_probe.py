"""What would be won by going back, from what both weights are paid."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from stabilizer.control.probe import Probe
from stabilizer.core.earnings import Paid

PROMPTS = 16


def paid(mean: float, held_out: float = math.nan, *, seed: int = 0, noise: float = 0.1) -> Paid:
    return Paid(mean + noise * np.random.default_rng(seed).normal(size=PROMPTS), held_out, 256)


@pytest.mark.parametrize(
    ("here", "there", "wins"),
    [
        (paid(0.1), paid(0.8, seed=1), True),
        (paid(0.4), paid(0.4, seed=1), False),
        (paid(0.8), paid(0.4, seed=1), False),
        (paid(0.9, 0.2), paid(0.4, 0.8, seed=1), True),  # paid more, for what nobody wanted
        (paid(0.4, 0.80), paid(0.4, 0.81, seed=1), False),  # one problem in a hundred may be chance
        (paid(0.4, 0.5), paid(0.4, math.nan, seed=1), False),
        (paid(0.0, 0.6, noise=0), paid(0.0, 0.6, noise=0), False),  # who grades all alike says nothing of weights ...
        (paid(0.0, 0.2, noise=0), paid(0.0, 0.6, noise=0), True),  # ... and held-out problems do
        (paid(0.4, 0.375), paid(0.4, 0.5, seed=1), True),
        (replace(paid(0.4, 0.375), problems=8), replace(paid(0.4, 0.5, seed=1), problems=8), False),  # one of eight
    ],
)
def test_going_back_wins_where_more_is_paid_or_more_is_solved_beyond_chance(
    here: Paid, there: Paid, wins: bool
) -> None:
    assert bool(Probe(40, here, there).nothing_won) is not wins


def test_the_reason_says_what_was_measured_and_how_surely() -> None:
    text = Probe(40, paid(0.4, 0.5), paid(0.39, 0.5, seed=1)).nothing_won
    assert text.startswith(
        "a rollback to step 40 would gain nothing: on the same prompts its weights get a reward of 0.4"
    )
    assert "±" in text and "of held-out problems they solve 50.0% against 50.0%" in text


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (paid(0.4), paid(0.4)),  # the very same answers: the engine did not take the weights over
        (paid(math.nan), paid(0.4)),
        (Paid(np.array([0.4])), Paid(np.array([0.3]))),
    ],
)
def test_what_says_nothing_speaks_against_nothing(here: Paid, there: Paid) -> None:
    probe = Probe(40, here, there)
    assert probe.nothing_won == "" and probe.words == "the gain of a rollback could not be measured"
