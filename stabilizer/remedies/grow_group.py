"""Generate more answers per prompt."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Scale
from stabilizer.remedies.evidence import nothing_to_compare, recent
from stabilizer.runs.history import RunView


class GrowGroup(Remedy):
    """Generate more answers per prompt.

    What it does
        Doubles the answers per prompt: more groups have both right and wrong answers, and the mean of a group is a
        better baseline.

    For
        Groups without spread and a gradient that is mostly noise, after more prompts did not help. Groups of a single
        answer, which has no other to compare with.

    Preconditions
        Time and memory for it. Not used if groups are silent because all their answers are right.

    Dose and bounds
        Times 2, at most 32 answers.

    Undo
        The number is restored.

    Side effects
        Twice the answers, nearly twice the time of a step.

    References
        Shao et al. 2024 (arXiv 2402.03300) used 64; DAPO (arXiv 2503.14476) 16.
    """

    id = "grow-group"
    safety = "soft"
    answers = ("batch-too-small", "dead-groups", "prompts-too-hard", "single-answers")
    horizon = 60
    by_hand = "generate twice as many answers per prompt"
    why = "more answers to a prompt are more likely to include both right and wrong ones"
    expects = "fewer groups are silent and the reward rises"
    dose = Scale("control/group_size", 2.0, low=2, high=32)

    def unfit(self, view: RunView) -> str:
        """Groups that are silent because all answers are right need harder prompts; if all groups are silent, nothing
        helps."""
        if recent(view, "batch/group_size") == 1:
            return ""  # all are silent, because there is no second answer
        failing, passing = recent(view, "reward/all_fail_frac"), recent(view, "reward/all_pass_frac")
        if passing is not None and passing >= 0.5 and passing > (failing or 0.0):
            return f"{passing:.0%} of groups pass as a whole: more right answers give no gradient"
        return nothing_to_compare(view)
