"""Hold the policy closer to its reference."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled
from stabilizer.remedies.objections import drift_that_pays
from stabilizer.remedies.situation import Situation

START = 0.001
SOFT_LIMIT = 0.01
"""Beta up to which no person need be asked."""


class RaiseBeta(Remedy):
    """Hold the policy closer to its reference.

    What it does
        Starts the KL penalty at 0.001, or doubles it. The reference is loaded when beta first leaves 0; with adapters
        it is the model without them and costs no memory.

    For
        Drift that does not pay: KL to the reference grows while accuracy does not.

    Preconditions
        Memory for the reference. Not while accuracy rises and nothing but the KL is conspicuous: then the drift is
        learning.

    Dose and bounds
        0 to 0.001, or times 2; 0.01 at the most (`raise-beta-further` goes beyond, and is hard).

    Undo
        Beta goes back, by itself too where it held back steps that are small by now; the reference stays in memory.

    Side effects
        One more forward pass a step from then on. A penalty works like stopping early: it keeps what there is.

    References
        Gao et al. 2022 (arXiv 2210.10760) on the penalty as early stopping; Schulman 2020 on KL estimators.
    """

    id = "raise-beta"
    safety = "soft"
    answers = ("no-kl-anchor", "lr-too-high", "reward-hackable")
    slows = True
    turns = "control/beta"
    by_hand = "give the KL term a weight of 0.001, or twice the one it has"
    why = "a KL penalty makes drift that buys no reward cost something"
    expects = "KL to the reference stops growing and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        if knobs.get("control/beta") == 0:
            return {"control/beta": (0.0, START)}
        return scaled(knobs, "control/beta", 2.0, low=0.0, high=max(SOFT_LIMIT, knobs.get("control/beta", 0.0)))

    def objection(self, now: Situation) -> str | None:
        return super().objection(now) or drift_that_pays(now)
