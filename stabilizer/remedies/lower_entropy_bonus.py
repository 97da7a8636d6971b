"""Lower the entropy bonus."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy


class LowerEntropyBonus(Remedy):
    """Lower the entropy bonus.

    What it does
        Lowers the entropy bonus to a tenth, and a small one to 0.

    For
        An entropy bonus that outweighs the reward of the task.

    Preconditions
        There is a bonus.

    Dose and bounds
        Times 0.1; 0 if less than 0.0005 would be left.

    Undo
        The coefficient is restored.

    Side effects
        Entropy falls sooner.

    References
        Cui et al. 2025 (arXiv 2505.22617).
    """

    id = "lower-entropy-bonus"
    safety = "soft"
    answers = ("entropy-bonus-too-large",)
    by_hand = "set the entropy coefficient to 0 (or a tenth) and continue from a checkpoint before the onset"
    why = "the entropy bonus outweighs the reward of the task"
    expects = "entropy returns to its level within 50 steps and the reward is no lower"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/entropy_coef")
        if before is None or before <= 0:
            return None
        return {"control/entropy_coef": (before, before / 10 if before >= 0.005 else 0.0)}
