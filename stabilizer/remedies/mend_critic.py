"""Train the critic alone for a while."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.detectors.evidence.progress import progress
from stabilizer.detectors.evidence.stagnation import stagnation
from stabilizer.remedies.base import Change, Course, Remedy
from stabilizer.remedies.doses import Switch
from stabilizer.remedies.situation import Situation

STEPS = 20
"""Steps in which only the critic is trained."""


class MendCritic(Remedy):
    """Train the critic alone for a while.

    What it does
        Trains the critic alone for 20 steps, then continues as before.

    For
        A critic that is worse than a constant and distorts every advantage.

    Preconditions
        There is a critic, and the reward has clearly fallen or is flat: a critic learns at every step, so one that does
        no damage recovers without help.

    Dose and bounds
        20 steps.

    Undo
        It ends automatically; the policy does not change.

    Side effects
        The policy learns nothing in those steps.

    References
        VC-PPO (arXiv 2503.01491) on value pre-training.
    """

    id = "mend-critic"
    safety = "hard"
    answers = ("critic-broken",)
    horizon = 45
    by_hand = (
        "train the critic alone for 20 to 50 steps, lower its learning rate by 3, clip its"
        " values, or use group-relative advantages instead"
    )
    why = "advantages depend on the critic's values, and the critic is worse than a constant"
    expects = "explained variance rises above 0.2"
    dose = Switch("control/actor_frozen", "on", when=("off",))

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """The policy pauses, then continues."""
        return {"control/actor_frozen": [1.0] * STEPS + [0.0]}

    def objection(self, now: Situation) -> str | None:
        """A wrong critic learns at every step anyway; a policy that waits for it certainly loses those steps."""
        reward = progress(now.view)
        if reward is None or reward.dropped or stagnation(now.view):
            return None
        return f"{reward.metric} has neither fallen nor stopped rising: the critic recovers without a pause"
