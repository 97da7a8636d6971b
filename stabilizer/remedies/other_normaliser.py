"""Scale advantages by the spread of the batch."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, switched
from stabilizer.remedies.evidence import recent
from stabilizer.runs.history import RunView

MOST = 0.5
"""Share of groups without any spread above which the others are not what is wrong."""
SINCE = 10
"""Rows that say so: a batch that lost its spread lost it lately."""


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
    outlived_by = ("reward/std-blowup", "reward/hacking", "reward/collapse")
    answers = ("dead-groups",)
    horizon = 60
    by_hand = "divide by the spread of the whole batch, or not at all"
    why = "dividing by the spread of a group whose rewards hardly differ turns rounding into large advantages"
    expects = "the largest advantage and the gradient norm fall"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, "control/advantage", "batch_std", when=("group_std",))

    def unfit(self, view: RunView) -> str:
        """Groups without any spread have none to be blown up."""
        silent = recent(view, "reward/zero_std_frac", SINCE)
        if silent is not None and silent > MOST:
            return f"{silent:.0%} of groups have no spread at all"
        return ""
