"""Return to a checkpoint from before the incident, with a lower learning rate."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled


class RollBack(Remedy):
    """Return to the newest verified checkpoint older than the incident's onset, and halve the learning rate.

    The damage of a divergence is in the weights, so turning a knob afterwards does not bring the reward back; and the
    newest checkpoint is often taken after the trouble began, so the target is chosen by the onset, not by the reward.
    Going back without another change would only replay the same failure: the learning rate is halved and the prompts
    ahead are drawn in another order. Undo: the scale goes back; the abandoned branch stays readable.
    """

    id = "roll-back"
    safety = "hard"
    answers = ("lr-too-high", "numeric-overflow", "no-kl-anchor")
    rollback = True
    why = "the weights are damaged: only a state from before the onset learns again, and only with smaller steps"
    expects = "the incident's findings are quiet and the reward is at least what it was at the checkpoint"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, "control/lr_scale", 0.5, low=0.25, high=1.0)
