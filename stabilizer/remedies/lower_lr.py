"""Lower the learning rate, and warm it up again."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Course, Remedy, scaled
from stabilizer.remedies.objections import AGREE, agreement
from stabilizer.remedies.situation import Situation

LR = "control/lr_scale"
LOWEST = 0.25
"""The automatic modes move the learning rate by 2 a trial and by 4 in all."""
REWARM = 20
"""Steps over which a lowered rate rises to its new value."""


class LowerLr(Remedy):
    """Lower the learning rate, and warm it up again.

    What it does
        Halves the factor on the scheduled learning rate. It begins at half of the new value and rises to it in a line
        over 20 steps, so that the optimizer's averages, which remember larger gradients, are re-learned at small steps.

    For
        Updates that overshoot while the policy is still intact.

    Preconditions
        Steps that are too large now. Where a leap is over, the reward rises since the onset or has fallen and falls no
        further, or a setting that was changed has been put back, it holds nothing back and slows what has to be learned
        again (see roll-back). By itself only against a cause that is more likely than not. Never the first answer to a
        failing reward, a full batch of dead groups or a mistake in the data.

    Dose and bounds
        Times 0.5, a quarter of the configured rate at the lowest, re-warming included.

    Undo
        The factor goes back to what it was. It also does, once a run, when a trial succeeded and steps would be as
        usual at the former rate, then or later: what it held back has passed, and half the rate would be a price for
        nothing. Should the trouble come again, it is made again and kept.

    Side effects
        Learning is slower for as long as it holds.

    References
        The commonest manual fix in published training logs (OPT-175B, Zhang et al. 2022, arXiv 2205.01068).
    """

    id = "lower-lr"
    safety = "soft"
    answers = ("lr-too-high", "numeric-overflow", "no-kl-anchor", "noise-floor")
    slows = True
    why = "smaller steps keep the policy within reach of the data it learned from"
    expects = "the incident's findings are quiet and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, LR, 0.5, low=LOWEST, high=1.0)

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """Up in a line, from half of the new factor."""
        after = change[LR][1] or LOWEST
        first = max(after / 2, LOWEST)
        return {LR: [first + (after - first) * row / REWARM for row in range(REWARM + 1)]} if first < after else {}

    def objection(self, now: Situation) -> str | None:
        if why := super().objection(now):
            return why
        if now.cause.id == "noise-floor" and agreement(now.view) < AGREE:
            return "the noise of the gradient, not the step, is what is too large"
        return None
