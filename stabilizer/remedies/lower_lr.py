"""Lower the learning rate."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled


class LowerLr(Remedy):
    """Halve the learning rate, at most to a quarter of the configured one.

    For updates that overshoot while the policy is still intact. After a collapse it does nothing: a policy whose
    groups all fail has no gradient to learn from, at any learning rate (see roll-back). Undo: the scale goes back.
    """

    id = "lower-lr"
    safety = "soft"
    answers = ("lr-too-high", "numeric-overflow", "no-kl-anchor")
    why = "smaller steps keep the policy within reach of the data it learned from"
    expects = "the incident's findings are quiet and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, "control/lr_scale", 0.5, low=0.25, high=1.0)
