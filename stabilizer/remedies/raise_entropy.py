"""Pay the policy for staying undecided."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy


class RaiseEntropy(Remedy):
    """Add a small entropy bonus (0.001 nats' worth of reward), or double it, at most to 0.01.

    For a policy that stopped exploring before it learned the task. Too much of it ends in gibberish, so the dose is
    small and the reward is the guard. Undo: the coefficient goes back.
    """

    id = "raise-entropy"
    safety = "soft"
    answers = ("exploration-exhausted",)
    horizon = 60
    why = "groups need different answers to have anything to compare"
    expects = "entropy stops falling and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/entropy_coef")
        if before is None or before >= 0.01:
            return None
        return {"control/entropy_coef": (before, min(0.01, max(0.001, 2 * before)))}
