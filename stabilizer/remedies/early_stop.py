"""End the run before it gets worse."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.objections import held_out_holds
from stabilizer.remedies.situation import Situation


class EarlyStop(Remedy):
    """End the run before it gets worse.

    What it does
        Saves the state and ends the run after the current step; `train --resume` continues it.

    For
        A run that can only get worse or has nothing left to gain: the reward no longer measures the intended task, or
        the learned policy can't be trusted.

    Preconditions
        A person must agree, in every mode: on tiny runs broken on purpose, ending them automatically cost accuracy more
        often than it saved any. The finding is critical; if held-out accuracy is known, it has fallen.

    Dose and bounds
        Once.

    Undo
        `stabilizer train --resume RUN`.

    Side effects
        The run is over until a person resumes it.

    References
        Gao et al. 2022 (arXiv 2210.10760): past the peak, more reward means less quality.
    """

    id = "early-stop"
    safety = "hard"
    answers = ("saturated", "reward-hackable", "wrong-groups")
    orders = ("stop",)
    asks = True
    harmless = True
    horizon = 0
    why = "continuing costs time and makes the policy worse"
    expects = "no further loss"

    def objection(self, now: Situation) -> str | None:
        if not now.critical:
            return "there is no damage that would be a reason to stop"
        return held_out_holds(now.view)
