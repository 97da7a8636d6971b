"""Leave answers that were cut out of the loss."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, switched
from stabilizer.remedies.evidence import recent
from stabilizer.remedies.objections import no_room_wanted
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView


class MaskTruncated(Remedy):
    """Leave answers that were cut out of the loss.

    What it does
        Completions that ran into the length limit teach nothing.

    For
        Answers that are cut before they can end, and are paid as failures.

    Preconditions
        Most answers end in time: where nearly all are cut, nothing would be left to learn from.

    Dose and bounds
        A switch: off to on.

    Undo
        The switch goes back.

    Side effects
        Nothing speaks against length any more, so answers can grow.

    References
        DAPO (arXiv 2503.14476), overlong filtering.
    """

    id = "mask-truncated"
    safety = "hard"
    answers = ("capped-length",)
    by_hand = "leave answers that were cut out of the loss"
    why = "a cut answer is paid as a failure, whatever it was about to say"
    expects = "the reward of answers that end is no lower than before, and fewer are cut"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, "control/mask_truncated", "on", when=("off",))

    def unfit(self, view: RunView) -> str:
        """What is cut is left out; of what ends something must be left."""
        cut = recent(view, "rollout/truncated_frac")
        return f"{cut:.0%} of answers are cut: too few would be left" if cut is not None and cut > 0.5 else ""

    def objection(self, now: Situation) -> str | None:
        return no_room_wanted(now)
