"""Give the weight of silent prompts to those that can teach."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, switched
from stabilizer.remedies.evidence import recent
from stabilizer.runs.history import RunView


class ReweightPrompts(Remedy):
    """Give the weight of silent prompts to those that can teach.

    What it does
        Draws other prompts in place of those whose answers were all paid the same, until the batch is full: a
        curriculum made by the policy itself.

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
    horizon = 60
    why = "prompts that all answers fail, or pass, take places of prompts that could teach"
    expects = "more groups have spread and the reward rises"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, "control/filter_groups", "resample", when=("off", "drop"))

    def unfit(self, view: RunView) -> str:
        """Where no prompt has spread there is nothing to draw instead."""
        silent = recent(view, "reward/zero_std_frac")
        if silent is not None and silent > 0.95:
            return f"{silent:.0%} of groups are silent: fresh prompts would be too"
        return ""
