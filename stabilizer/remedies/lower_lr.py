"""Lower the learning rate and warm it up again."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Course, Remedy
from stabilizer.remedies.doses import Scale
from stabilizer.remedies.objections import AGREE, agreement
from stabilizer.remedies.situation import Situation

LR = "control/lr_scale"
LOWEST = 0.25
"""The automatic modes change the learning rate by a factor of 2 per trial and 4 in total."""
HALF_RATE = Scale(LR, 0.5, low=LOWEST, high=1.0)
REWARM = 20
"""Steps over which a lowered rate rises to its new value."""


class LowerLr(Remedy):
    """Lower the learning rate and warm it up again.

    What it does
        Halves the factor on the scheduled learning rate. It starts at half of the new value and rises to it linearly
        over 20 steps, so that the optimizer's averages, which still hold larger gradients, adapt during small steps.

    For
        Updates that overshoot while the policy is still intact.

    Preconditions
        Steps that are too large now. It is not used if a leap is over, if the reward rises since the onset, if the
        reward has fallen and falls no further, or if a changed setting has been restored: a lower rate would then only
        slow down the recovery (see roll-back). Applied automatically only against a cause that is more likely than not.
        Never the first remedy for a failing reward, a full batch of dead groups or an error in the data.

    Dose and bounds
        Times 0.5, at least a quarter of the configured rate, including the warm-up.

    Undo
        The factor is restored. It is also restored automatically, once per run, if the trial succeeded and steps would
        have their usual size at the former rate: then or later, the lower rate no longer limits anything and only slows
        learning. If the fault returns, the change is made again and kept.

    Side effects
        Learning is slower while it lasts.

    References
        The most common manual fix in published training logs (OPT-175B, Zhang et al. 2022, arXiv 2205.01068).
    """

    id = "lower-lr"
    safety = "soft"
    answers = ("lr-too-high", "numeric-overflow", "no-kl-anchor", "noise-floor")
    slows = True
    why = "smaller steps keep the policy within reach of the data it learned from"
    expects = "the incident's findings clear and the reward is no lower than before"
    dose = HALF_RATE

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """A linear rise from half of the new factor."""
        after = change[LR][1] or LOWEST
        first = max(after / 2, LOWEST)
        return {LR: [first + (after - first) * row / REWARM for row in range(REWARM + 1)]} if first < after else {}

    def objection(self, now: Situation) -> str | None:
        if why := super().objection(now):
            return why
        if now.cause.id == "noise-floor" and agreement(now.view) < AGREE:
            return "the noise of the gradient is too large, not the step"
        return None
