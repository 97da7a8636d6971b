"""Pay the policy for staying undecided."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import entropy_is_fine
from stabilizer.remedies.situation import Situation


class RaiseEntropy(Remedy):
    """Pay the policy for staying undecided.

    What it does
        Adds a small entropy bonus, or doubles it.

    For
        A policy that stopped exploring before it learned the task.

    Preconditions
        None.

    Dose and bounds
        0.001 nats of loss per nat of entropy, or times 2; 0.01 at the most.

    Undo
        The coefficient goes back.

    Side effects
        Too much of it ends in gibberish: the reward is the guard.

    References
        Cui et al. 2025 (arXiv 2505.22617); Skywork-OR1 (arXiv 2505.22312).
    """

    id = "raise-entropy"
    safety = "soft"
    answers = ("exploration-exhausted",)
    horizon = 60
    by_hand = "pay a little for entropy: a coefficient of 0.001"
    why = "groups need different answers to have anything to compare"
    expects = "entropy stops falling and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/entropy_coef")
        if before is None or before >= 0.01:
            return None
        return {"control/entropy_coef": (before, min(0.01, max(0.001, 2 * before)))}

    def objection(self, now: Situation) -> str | None:
        return entropy_is_fine(now)
