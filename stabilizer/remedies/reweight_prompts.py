"""Give the weight of silent prompts to those that can teach."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import NOBODY, SILENCE, Change, Remedy, more_prompts, switched
from stabilizer.remedies.evidence import beyond_reach, faint, nothing_to_compare, silent_groups, taught
from stabilizer.runs.history import RunView

FILTER = "control/filter_groups"
LEAST = 0.3
"""Share of silent groups from which others in their place are worth generating."""


class ReweightPrompts(Remedy):
    """Give the weight of silent prompts to those that can teach.

    What it does
        Draws other prompts in place of those whose answers were all paid the same, or differ by under a hundredth of
        what the widest group of the batch differs by, until the batch is full: a curriculum made by the policy itself.
        Where so few have spread that it would not fill, prompts are asked for until as many can teach as before; so are
        they where a critic judges in place of the group, so that nothing is drawn anew.

    For
        Too few groups with spread for a gradient.

    Preconditions
        Some prompts must have spread. Against prompts that are too hard, three in ten groups are silent because all
        answers fail: where silent ones are those that are solved, only hard ones would be learned from.

    Dose and bounds
        A switch: to resample, with at most `policy.resample_batches` draws a step; up to four times the prompts, 128 at
        most.

    Undo
        The switch goes back, and the prompts with it.

    Side effects
        Up to that many times the generation of a step, and as many times more as there are prompts; hard prompts are
        learned from only once they are within reach.

    References
        DAPO (arXiv 2503.14476), dynamic sampling.
    """

    id = "reweight-prompts"
    safety = "hard"
    answers = ("dead-groups", "prompts-too-hard")
    outlived_by = SILENCE
    horizon = 60
    why = "prompts that all answers fail, or pass, take places of prompts that could teach"
    expects = "more groups have spread and the reward rises"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, FILTER, "resample", when=("off", "drop"))

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int] = NOBODY
    ) -> Change | None:
        """The switch, and as many prompts as leave no fewer groups to learn from than there were before the onset."""
        change = self.change(knobs)
        if (change is None and FILTER in knobs) or (cause == "prompts-too-hard" and not beyond_reach(view)):
            return None
        groups = taught(view, onset)
        if groups is None:
            return change
        alive, teach = groups
        filled = min(1.0, teach * ((change and view.config("policy.resample_batches")) or 1))
        more = more_prompts(knobs, alive / filled) if filled > 0 else {}
        return {**(change or {}), **more} or None

    def unfit(self, view: RunView) -> str:
        """Where no prompt has spread there is nothing to draw instead, and where most have there is little to gain."""
        silent = silent_groups(view)
        if silent is not None and max(silent, faint(view)) < LEAST:
            return f"only {silent:.0%} of groups are silent, and the others differ as they did"
        return nothing_to_compare(view)
