"""Give the policy more room around its reference."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled


class LowerBeta(Remedy):
    """Halve the KL penalty.

    For a reward that stands still because the penalty outweighs it. Hard, because it lets go of an anchor somebody
    set on purpose. Undo: beta goes back.
    """

    id = "lower-beta"
    safety = "hard"
    answers = ("pinned-by-kl",)
    horizon = 60
    why = "the penalty is stronger than the reward, so the policy stays where it started"
    expects = "the reward rises again"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, "control/beta", 0.5, low=0.0, high=1.0)
