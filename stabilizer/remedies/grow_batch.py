"""Learn from more prompts a step."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled


class GrowBatch(Remedy):
    """Double the prompts of a step, at most to 128; the learning rate stays.

    For a reward that stands still because the gradient is mostly noise. It costs what it adds: twice the prompts,
    nearly twice the time of a step. Undo: the number goes back.
    """

    id = "grow-batch"
    safety = "soft"
    answers = ("batch-too-small", "dead-groups", "noise-floor")
    horizon = 60
    why = "twice the prompts halve the variance of the gradient"
    expects = "the reward rises again"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, "control/prompts", 2.0, low=1, high=128)
