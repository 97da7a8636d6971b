"""Scale advantages by the spread of the batch."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, switched


class OtherNormaliser(Remedy):
    """Scale advantages by the spread of the batch.

    What it does
        Divides advantages by the deviation of the whole batch in place of each group's.

    For
        Groups whose rewards hardly differ: dividing by their spread turns rounding into large advantages.

    Preconditions
        Advantages are divided by the spread of their group now.

    Dose and bounds
        A switch: group_std to batch_std.

    Undo
        The switch goes back.

    Side effects
        Prompts with more spread count for more.

    References
        Lite PPO (arXiv 2508.08221); Dr. GRPO (arXiv 2503.20783).
    """

    id = "other-normaliser"
    safety = "hard"
    answers = ("dead-groups",)
    by_hand = "divide by the spread of the whole batch, or not at all (advantage = batch_std or group_mean)"
    why = "dividing by the spread of a group whose rewards hardly differ turns rounding into large advantages"
    expects = "the largest advantage and the gradient norm fall"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, "control/advantage", "batch_std", when=("group_std",))
