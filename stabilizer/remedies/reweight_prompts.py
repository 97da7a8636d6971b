"""Give the weight of silent prompts to those that can teach."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, switched
from stabilizer.remedies.evidence import recent
from stabilizer.runs.history import RunView
from stabilizer.signals import middle

LEAST, MOST = 0.3, 0.95
"""Shares of silent groups between which others in their place are worth generating."""
EARLY = 20
"""Rows from which it is known how far rewards of a group differ here."""
SINCE = 10
"""Rows that say so: a batch that lost its signal lost it lately."""


class ReweightPrompts(Remedy):
    """Give the weight of silent prompts to those that can teach.

    What it does
        Draws other prompts in place of those whose answers were all paid the same, or differ by under a hundredth of
        what the widest group of the batch differs by, until the batch is full: a curriculum made by the policy itself.

    For
        Too few groups with spread for a gradient.

    Preconditions
        Advantages that compare the answers of a group; some prompts must have spread.

    Dose and bounds
        A switch: to resample, with at most `policy.resample_batches` draws a step.

    Undo
        The switch goes back.

    Side effects
        Up to that many times the generation of a step; hard prompts are learned from only once they are within reach.

    References
        DAPO (arXiv 2503.14476), dynamic sampling.
    """

    id = "reweight-prompts"
    safety = "hard"
    answers = ("dead-groups", "prompts-too-hard")
    outlived_by = ("reward/no-signal", "reward/collapse", "reward/hacking", "system/data-shift")
    horizon = 60
    why = "prompts that all answers fail, or pass, take places of prompts that could teach"
    expects = "more groups have spread and the reward rises"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, "control/filter_groups", "resample", when=("off", "drop"))

    def unfit(self, view: RunView) -> str:
        """Where no prompt has spread there is nothing to draw instead, and where most have there is little to gain."""
        silent = recent(view, "reward/zero_std_frac", SINCE)
        if silent is None:
            return ""
        if silent > MOST:
            return f"{silent:.0%} of groups are silent: fresh prompts would be too"
        early, now = view.series("reward/std_group").finite().values[:EARLY], recent(view, "reward/std_group", SINCE)
        faint = 1 - now / middle(early) if now is not None and len(early) and middle(early) > 0 else 0.0
        if max(silent, faint) < LEAST:
            return f"only {silent:.0%} of groups are silent, and the others differ as they did"
        return ""
