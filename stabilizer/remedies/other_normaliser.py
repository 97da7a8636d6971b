"""Scale advantages by the spread of the batch."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Switch
from stabilizer.remedies.evidence import recent
from stabilizer.runs.history import RunView

MOST = 0.5
"""Share of groups without any spread above which the other groups are not the problem."""
SINCE = 10
"""Newest rows that are averaged for that share."""


class OtherNormaliser(Remedy):
    """Scale advantages by the spread of the batch.

    What it does
        Divides advantages by the standard deviation of the whole batch instead of each group's.

    For
        Groups whose rewards hardly differ: dividing by their spread turns rounding errors into large advantages, and a
        spread that becomes smaller makes the gradient norm climb while the reward rises.

    Preconditions
        Advantages are currently divided by the spread of their group.

    Dose and bounds
        A switch: group_std to batch_std.

    Undo
        The switch is restored.

    Side effects
        Prompts with more spread get more weight.

    References
        Lite PPO (arXiv 2508.08221); Dr. GRPO (arXiv 2503.20783).
    """

    id = "other-normaliser"
    safety = "hard"
    outlived_by = ("reward/std-blowup", "reward/hacking", "reward/collapse")
    answers = ("divided-by-spread", "dead-groups")
    horizon = 60
    by_hand = "divide by the spread of the whole batch, or not at all"
    why = "if the rewards of a group hardly differ, dividing by their spread amplifies rounding errors"
    expects = "the largest advantage and the gradient norm fall"
    dose = Switch("control/advantage", "batch_std", when=("group_std",))

    def unfit(self, view: RunView) -> str:
        """Groups without any spread have no advantages to amplify; where they are left out, the others are all."""
        if view.latest("control/filter_groups"):
            return ""
        silent = recent(view, "reward/zero_std_frac", SINCE)
        if silent is not None and silent > MOST:
            return f"{silent:.0%} of groups have no spread at all"
        return ""
