"""Charge for answers near the length limit."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.detectors.evidence.progress import progress
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.evidence import recent
from stabilizer.remedies.objections import no_room_wanted
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView


class OverlongPenalty(Remedy):
    """Charge for answers near the length limit.

    What it does
        Takes up to `policy.overlong_factor` of reward from answers in the last fifth of the length limit.

    For
        Length that grows without accuracy.

    Preconditions
        Length does not earn its keep: longer answers are not the right ones.

    Dose and bounds
        A buffer of 0.2 of the limit.

    Undo
        The buffer goes back to 0.

    Side effects
        It changes what is paid, though not the reward function: rewards before and after do not compare.

    References
        DAPO (arXiv 2503.14476), soft overlong punishment.
    """

    id = "overlong-penalty"
    safety = "hard"
    answers = ("length-rewarded",)
    by_hand = "charge answers for the last fifth of the length they may have, more the nearer they come to it"
    why = "length costs nothing, and the policy delivers length"
    expects = "length returns while accuracy stays"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {"control/overlong_buffer": (0.0, 0.2)} if knobs.get("control/overlong_buffer") == 0 else None

    def unfit(self, view: RunView) -> str:
        """Longer answers that are right more often are reasoning."""
        earns = recent(view, "rollout/length_reward_corr")
        if earns is not None and earns > 0.2 and (accuracy := progress(view)) and accuracy.rising:
            return f"longer answers are paid better (correlation {earns:.2f}) and the reward rises: it is earned"
        return ""

    def objection(self, now: Situation) -> str | None:
        return no_room_wanted(now)
