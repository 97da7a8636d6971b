"""Replace silent prompts with prompts that have spread."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import SILENCE, Change, Remedy
from stabilizer.remedies.doses import Switch, more_prompts
from stabilizer.remedies.evidence import beyond_reach, faint, nothing_to_compare, silent_groups, taught
from stabilizer.runs.history import RunView

FILTER = "control/filter_groups"
LEAST = 0.3
"""Share of silent groups from which replacing them is worth its cost."""


class ReweightPrompts(Remedy):
    """Replace silent prompts with prompts that have spread.

    What it does
        Draws other prompts in place of silent ones until the batch is full, so that the policy sets its own curriculum.
        A prompt is silent if its answers all got the same reward, or differ by less than a hundredth of the widest
        group of the batch. If too few prompts have spread to fill the batch, the number of prompts is raised until as
        many have spread as before. The same is done with a critic, because nothing is redrawn then.

    For
        Too few groups with spread for a gradient.

    Preconditions
        Some prompts must have spread. Against prompts that are too hard, at least three in ten groups are silent
        because all answers fail: if solved prompts are the silent ones, only hard prompts would remain.

    Dose and bounds
        A switch: to resample, with at most `policy.resample_batches` draws per step; up to four times the prompts, at
        most 128.

    Undo
        The switch and the number of prompts are restored.

    Side effects
        Generation takes up to that many times as long, and longer in proportion to the added prompts. Hard prompts are
        learned only once the policy sometimes solves them.

    References
        DAPO (arXiv 2503.14476), dynamic sampling.
    """

    id = "reweight-prompts"
    safety = "hard"
    answers = ("dead-groups", "prompts-too-hard")
    outlived_by = SILENCE
    horizon = 60
    why = "prompts whose answers all fail or all pass give no gradient and take the place of others"
    expects = "more groups have spread and the reward rises"
    dose = Switch(FILTER, "resample", when=("off", "drop"))

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int]
    ) -> Change | None:
        """The switch, and enough prompts for as many groups with spread as before the onset."""
        change = self.change(knobs)
        if (change is None and FILTER in knobs) or (cause == "prompts-too-hard" and not beyond_reach(view)):
            return None
        batches = (change and view.config("policy.resample_batches")) or 1
        return {**(change or {}), **_refilled(knobs, view, onset, batches)} or None

    def unfit(self, view: RunView) -> str:
        """If no prompt has spread, there is nothing to draw instead; if most have, there is little to gain."""
        silent = silent_groups(view)
        if silent is not None and max(silent, faint(view)) < LEAST:
            return f"only {silent:.0%} of groups are silent, and the spread of the others has not changed"
        return nothing_to_compare(view)


def _refilled(knobs: Mapping[str, float], view: RunView, onset: int, batches: float) -> Change:
    """Prompts for as many groups with spread as before the onset, if a step draws up to so many batches."""
    groups = taught(view, onset)
    filled = min(1.0, groups[1] * batches) if groups else 0
    return more_prompts(knobs, groups[0] / filled) if groups and filled > 0 else {}
