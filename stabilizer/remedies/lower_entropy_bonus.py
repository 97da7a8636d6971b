"""Pay less for indecision."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy


class LowerEntropyBonus(Remedy):
    """Pay less for indecision.

    What it does
        Takes the entropy bonus down to a tenth, and a small one to 0.

    For
        A bonus that pays more for indecision than the task pays for answers.

    Preconditions
        There is a bonus.

    Dose and bounds
        Times 0.1; 0 when less than 0.0005 would be left.

    Undo
        The coefficient goes back.

    Side effects
        Entropy falls sooner.

    References
        Cui et al. 2025 (arXiv 2505.22617).
    """

    id = "lower-entropy-bonus"
    safety = "soft"
    answers = ("entropy-bonus-too-large",)
    by_hand = "set the entropy coefficient to 0 (or a tenth) and go on from a checkpoint before the onset"
    why = "the bonus pays for indecision more than the task pays for answers"
    expects = "entropy returns to its level within 50 steps and the reward is no lower"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/entropy_coef")
        if before is None or before <= 0:
            return None
        return {"control/entropy_coef": (before, before / 10 if before >= 0.005 else 0.0)}
