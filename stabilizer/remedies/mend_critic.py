"""Let the critic catch up while the policy waits."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.detectors.evidence.progress import progress
from stabilizer.detectors.evidence.stagnation import stagnation
from stabilizer.remedies.base import Change, Course, Remedy
from stabilizer.remedies.situation import Situation

STEPS = 20
"""Steps in which the critic learns alone."""


class MendCritic(Remedy):
    """Let the critic catch up while the policy waits.

    What it does
        Trains the critic alone for 20 steps, then goes on as before.

    For
        A critic that is worse than a constant, and misleads every advantage.

    Preconditions
        There is a critic, and the reward has fallen or stands still for sure: a critic learns at every step, and one
        that does no damage mends itself.

    Dose and bounds
        20 steps.

    Undo
        It ends by itself; the policy is what it was.

    Side effects
        Those steps are lost to the policy.

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
    why = "advantages are made of what the critic says, and it is worse than a constant"
    expects = "explained variance rises above 0.2"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {"control/actor_frozen": (0, 1)} if knobs.get("control/actor_frozen") == 0 else None

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """The policy waits, and goes on."""
        return {"control/actor_frozen": [1.0] * STEPS + [0.0]}

    def objection(self, now: Situation) -> str | None:
        """A critic that misjudges learns at every step; a policy that waits for it loses those steps for sure."""
        reward = progress(now.view)
        if reward is None or reward.dropped or stagnation(now.view):
            return None
        return f"{reward.metric} has neither fallen nor stopped rising: the critic learns beside it"
