"""Learn from more prompts an update."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import NOBODY, SILENCE, Change, Remedy, more_prompts, scaled
from stabilizer.remedies.evidence import beyond_reach, nothing_to_compare, taught
from stabilizer.remedies.objections import AGREE, agreement
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView

SILENCING = ("dead-groups", "prompts-too-hard")
"""Causes that leave fewer groups to learn from, whatever else is done about them."""


class GrowBatch(Remedy):
    """Learn from more prompts an update.

    What it does
        Doubles the prompts of a step; where they are at their most, halves the updates a step is split into. The
        learning rate stays. Where groups fell silent, as of prompts that became too hard, prompts are made as many more
        as leave no fewer groups to learn from than before; that goes on being of use while silent ones go on, so it
        stays unless the run gets worse.

    For
        A reward that stands still, or swings, because the gradient is mostly noise. A batch of which less teaches.

    Preconditions
        Time and memory for it. Some groups must have spread: where all are silent, twice as many are as well. Against
        prompts that are too hard, three in ten groups are silent because all answers fail.

    Dose and bounds
        Times 2, against silent groups up to 4; 128 prompts at most, and at most eight times the configured number.

    Undo
        The number goes back.

    Side effects
        It costs what it adds: twice the prompts, nearly twice the time of a step.

    References
        McCandlish et al. 2018 (arXiv 1812.06162) on the gradient noise scale.
    """

    id = "grow-batch"
    safety = "soft"
    answers = ("batch-too-small", "noise-floor", *SILENCING)
    horizon = 60
    by_hand = "take twice as many prompts for each update"
    why = "twice the prompts halve the variance of the gradient"
    expects = "the reward rises again"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        more = scaled(knobs, "control/prompts", 2.0, low=1, high=128)
        return more or scaled(knobs, "control/minibatches", 0.5, low=1, high=256)

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int] = NOBODY
    ) -> Change | None:
        """As many more as fell silent, where some did."""
        groups = taught(view, onset) if cause in SILENCING else None
        if cause == "prompts-too-hard" and not (groups and beyond_reach(view)):
            return None
        more = more_prompts(knobs, groups[0] / groups[1]) if groups and groups[0] > 2 * groups[1] > 0 else {}
        return more or self.change(knobs)

    def outlived(self, cause: str) -> tuple[str, ...]:
        return SILENCE if cause in SILENCING else ()

    def unfit(self, view: RunView) -> str:
        """Twice nothing is nothing."""
        return nothing_to_compare(view)

    def objection(self, now: Situation) -> str | None:
        if now.cause.id == "noise-floor" and (cosine := agreement(now.view)) >= AGREE:
            return f"halves of a batch agree on the gradient (cosine {cosine:.2f}): it is large enough"
        return None
