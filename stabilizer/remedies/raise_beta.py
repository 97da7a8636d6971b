"""Strengthen the KL penalty."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.doses import Scale
from stabilizer.remedies.objections import drift_that_pays

START = 0.001
SOFT_LIMIT = 0.01
"""Largest beta that needs no approval."""


class RaiseBeta(Remedy):
    """Strengthen the KL penalty.

    What it does
        Starts the KL penalty at 0.001, or doubles it. The reference is loaded when beta is first above 0; with
        adapters, the reference is the base model and needs no extra memory.

    For
        Useless drift: KL to the reference grows while accuracy does not.

    Preconditions
        Memory for the reference. Not used while accuracy rises and the KL is the only finding: then the drift is
        learning.

    Dose and bounds
        0 to 0.001, or times 2; at most 0.01 (`raise-beta-further` goes beyond and is a hard remedy).

    Undo
        Beta is restored, also automatically once the steps it limited are small; the reference stays in memory.

    Side effects
        One more forward pass per step from then on. A penalty acts like early stopping: it preserves the policy.

    References
        Gao et al. 2022 (arXiv 2210.10760) on the penalty as early stopping; Schulman 2020 on KL estimators.
    """

    id = "raise-beta"
    safety = "soft"
    answers = ("no-kl-anchor", "lr-too-high", "reward-hackable")
    slows = True
    turns = "control/beta"
    by_hand = "set the weight of the KL term to 0.001, or double it"
    why = "a KL penalty adds a cost to drift that brings no reward"
    expects = "KL to the reference stops growing and the reward is no lower than before"
    objections = (drift_that_pays,)

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        if knobs.get("control/beta") == 0:
            return {"control/beta": (0.0, START)}
        return Scale("control/beta", 2.0, low=0.0, high=max(SOFT_LIMIT, knobs.get("control/beta", 0.0)))(knobs)
