"""Strengthen the KL penalty beyond the limit of a soft fix."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.doses import Scale
from stabilizer.remedies.objections import drift_that_pays
from stabilizer.remedies.raise_beta import SOFT_LIMIT


class RaiseBetaFurther(Remedy):
    """Strengthen the KL penalty beyond the limit of a soft fix.

    What it does
        Doubles a KL penalty that is already 0.01 or more.

    For
        Drift that a penalty of 0.01 did not stop.

    Preconditions
        The penalty is at 0.01 or above; below, `raise-beta` comes first.

    Dose and bounds
        Times 2, at most 0.1.

    Undo
        Beta is restored.

    Side effects
        A penalty this strong can outweigh the reward and pin the policy where it started.

    References
        Ouyang et al. 2022 (arXiv 2203.02155) trained with 0.02, Stiennon et al. 2020 (arXiv 2009.01325) with up to 0.1.
    """

    id = "raise-beta-further"
    safety = "hard"
    answers = ("no-kl-anchor",)
    why = "the current penalty is too weak to hold the policy"
    expects = "KL to the reference stops growing and the reward is no lower than before"
    objections = (drift_that_pays,)

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        if knobs.get("control/beta", 0.0) < SOFT_LIMIT:
            return None
        return Scale("control/beta", 2.0, low=0.0, high=0.1)(knobs)
