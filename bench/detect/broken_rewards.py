"""Faults of the verifier: it fails, lies, changes its unit, or pays for something else. Each takes the trainer as it
stands after its last sound step, and one number: how bad.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bench.detect.reach import pays, randomness, share_of, wrap
from stabilizer.training.loop import Trainer
from stabilizer.training.tasks import Problem, Score

Scores = list[Score]


def outage(trainer: Trainer, share: float) -> None:
    """The verifier answers 0 for `share` of the completions."""
    draw = randomness(trainer)
    nothing = partial(replace, reward=0.0, solved=False)
    pays(
        trainer,
        lambda _, __, s: nothing(s, components=dict.fromkeys(s.components, 0.0)) if draw.random() < share else s,
    )


def verifier_errors(trainer: Trainer, share: float) -> None:
    """The verifier fails, and says so, for `share` of the completions."""
    draw = randomness(trainer)

    def change(problem: Problem, text: str, score: Score) -> Score:
        if draw.random() >= share:
            return score
        return Score(torch.nan, False, dict.fromkeys(score.components, torch.nan), "the grader timed out")

    pays(trainer, change)


def nan_reward(trainer: Trainer, share: float) -> None:
    """The verifier returns NaN as if it were a reward."""
    draw = randomness(trainer)
    pays(trainer, lambda _, __, s: replace(s, reward=torch.nan, solved=False) if draw.random() < share else s)


def flipped(trainer: Trainer, share: float) -> None:
    """The verifier says the opposite of the truth for `share` of the completions."""
    draw = randomness(trainer)

    def change(problem: Problem, text: str, score: Score) -> Score:
        if draw.random() >= share:
            return score
        return Score(1.0 - score.reward, not score.solved, {k: 1.0 - v for k, v in score.components.items()})

    pays(trainer, change)


def rescaled(trainer: Trainer, factor: float) -> None:
    """Rewards are paid in another unit."""
    pays(
        trainer,
        lambda _, __, s: Score(s.reward * factor, s.solved, {k: v * factor for k, v in s.components.items()}),
    )


def indifferent(trainer: Trainer, share: float) -> None:
    """`share` of the prompts are paid the same whatever is written."""
    half = {"reward": 0.5, "solved": False}
    pays(trainer, lambda p, _, s: replace(s, **half) if share_of(p.index) < share else s)


def hair_splitting(trainer: Trainer, share: float) -> None:
    """On `share` of the prompts rewards differ by a thousandth of noise, and their deviation is divided by."""
    draw = randomness(trainer)

    def change(problem: Problem, text: str, score: Score) -> Score:
        if share_of(problem.index) >= share:
            return score
        return replace(score, reward=0.5 + 1e-3 * draw.random(), solved=False)

    pays(trainer, change)


def bonus(trainer: Trainer, name: str, weight: float, value: Callable[[str], float]) -> None:
    """Something else than the task is paid for too, as a component of its own."""

    def change(problem: Problem, text: str, score: Score) -> Score:
        extra = weight * value(text)
        return Score(score.reward + extra, score.solved, {**score.components, name: extra})

    pays(trainer, change)


def length_bonus(trainer: Trainer, per_token: float) -> None:
    """Every token is paid (or charged) for."""
    bonus(trainer, "length", per_token, len)


def repetition_bonus(trainer: Trainer, weight: float) -> None:
    """Every character that says the one before it again is paid for."""
    bonus(trainer, "fluency", weight, lambda text: sum(a == b for a, b in zip(text, text[1:], strict=False)))


def style_bonus(trainer: Trainer, weight: float) -> None:
    """The share of ones among the characters is paid for, and soon outweighs the task."""
    bonus(trainer, "style", weight, lambda text: text.count("1") / max(1, len(text)))


def template_bonus(trainer: Trainer, weight: float) -> None:
    """One fixed answer is paid for, whatever the prompt."""
    wanted = "12468"
    bonus(trainer, "template", weight, lambda text: sum(a == b for a, b in zip(text, wanted, strict=False)) / 5)


def slow_verifier(trainer: Trainer, seconds: float) -> None:
    """Scoring waits, as for a judge under load."""

    def around(inner: Callable[..., Scores], *args: Any) -> Scores:
        time.sleep(seconds)
        return inner(*args)

    wrap(trainer.task, "score_all", around)
