"""Raise the entropy bonus."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import entropy_is_fine


class RaiseEntropy(Remedy):
    """Raise the entropy bonus.

    What it does
        Adds a small entropy bonus, or doubles it.

    For
        A policy that stopped exploring before it learned the task.

    Preconditions
        None.

    Dose and bounds
        0.001 nats of loss per nat of entropy, or times 2; at most 0.01.

    Undo
        The coefficient is restored.

    Side effects
        Too large a bonus leads to gibberish: the reward is the guard.

    References
        Cui et al. 2025 (arXiv 2505.22617); Skywork-OR1 (arXiv 2505.22312).
    """

    id = "raise-entropy"
    safety = "soft"
    answers = ("exploration-exhausted",)
    horizon = 60
    by_hand = "add a small entropy bonus: a coefficient of 0.001"
    why = "a group without different answers has nothing to compare"
    expects = "entropy stops falling and the reward is no lower than before"
    objections = (entropy_is_fine,)

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/entropy_coef")
        if before is None or before >= 0.01:
            return None
        return {"control/entropy_coef": (before, min(0.01, max(0.001, 2 * before)))}
