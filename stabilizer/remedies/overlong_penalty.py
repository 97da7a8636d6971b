"""Penalise answers near the length limit."""

from __future__ import annotations

from stabilizer.detectors.evidence.progress import progress
from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Start
from stabilizer.remedies.evidence import recent
from stabilizer.remedies.objections import no_room_wanted
from stabilizer.runs.history import RunView


class OverlongPenalty(Remedy):
    """Penalise answers near the length limit.

    What it does
        Subtracts up to `policy.overlong_factor` from the reward of answers in the last fifth of the length limit.

    For
        Length that grows without accuracy.

    Preconditions
        Length is not useful: longer answers are not more often right.

    Dose and bounds
        A buffer of 0.2 of the limit.

    Undo
        The buffer is set back to 0.

    Side effects
        It changes the reward, though not the reward function: rewards before and after can't be compared.

    References
        DAPO (arXiv 2503.14476), soft overlong punishment.
    """

    id = "overlong-penalty"
    safety = "hard"
    answers = ("length-rewarded",)
    by_hand = "penalise answers in the last fifth of the length limit, more the closer they come to it"
    why = "length costs nothing, so answers grow longer"
    expects = "length returns to its level and accuracy does not fall"
    dose = Start("control/overlong_buffer", 0.2)
    objections = (no_room_wanted,)

    def unfit(self, view: RunView) -> str:
        """Longer answers that are right more often are useful reasoning."""
        earns = recent(view, "rollout/length_reward_corr")
        if earns is not None and earns > 0.2 and (accuracy := progress(view)) and accuracy.rising:
            return f"longer answers get a higher reward (correlation {earns:.2f}) and the reward rises: they are useful"
        return ""
