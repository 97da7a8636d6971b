"""End the run while it is worth something."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import held_out_holds
from stabilizer.remedies.situation import Situation


class EarlyStop(Remedy):
    """End the run while it is worth something.

    What it does
        Saves the state and ends the run after the present step; `train --resume` goes on with it.

    For
        A run that can only get worse or has nothing left to gain: what is paid is no longer what is wanted, or what is
        learned can't be trusted.

    Preconditions
        A person agrees, in every mode: on tiny runs that were broken on purpose, ending them by itself cost accuracy
        more often than it saved any. The finding is critical; where held-out accuracy is known, it has fallen.

    Dose and bounds
        Once.

    Undo
        `stabilizer train --resume RUN`.

    Side effects
        The run is over until a person goes on with it.

    References
        Gao et al. 2022 (arXiv 2210.10760): past the peak more reward is less quality.
    """

    id = "early-stop"
    safety = "hard"
    answers = ("saturated", "reward-hackable", "wrong-groups")
    orders = ("stop",)
    asks = True
    harmless = True
    horizon = 0
    why = "going on costs time and makes the policy worse"
    expects = "nothing more is lost"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {} if knobs else None

    def objection(self, now: Situation) -> str | None:
        if not now.critical:
            return "there is no damage any more that would be a reason to stop"
        return held_out_holds(now.view)
