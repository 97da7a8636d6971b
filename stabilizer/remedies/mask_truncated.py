"""Exclude truncated answers from the loss."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Switch
from stabilizer.remedies.evidence import recent
from stabilizer.remedies.objections import no_room_wanted
from stabilizer.runs.history import RunView


class MaskTruncated(Remedy):
    """Exclude truncated answers from the loss.

    What it does
        Excludes completions that reached the length limit from the loss.

    For
        Answers that are cut before they can end, and are scored as failures.

    Preconditions
        Most answers end in time: if nearly all are cut, nothing would be left to learn from.

    Dose and bounds
        A switch: off to on.

    Undo
        The switch is restored.

    Side effects
        Long answers are no longer penalised, so answers can grow.

    References
        DAPO (arXiv 2503.14476), overlong filtering.
    """

    id = "mask-truncated"
    safety = "hard"
    answers = ("capped-length",)
    by_hand = "exclude truncated answers from the loss"
    why = "a cut answer is scored as a failure, even if it would have been right"
    expects = "the reward of complete answers is no lower than before, and fewer are cut"
    dose = Switch("control/mask_truncated", "on", when=("off",))
    objections = (no_room_wanted,)

    def unfit(self, view: RunView) -> str:
        """Cut answers are excluded, so enough complete ones must be left."""
        cut = recent(view, "rollout/truncated_frac")
        return f"{cut:.0%} of answers are cut: too few would be left" if cut is not None and cut > 0.5 else ""
