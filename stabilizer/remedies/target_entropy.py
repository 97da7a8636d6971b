"""Hold the entropy above a floor."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import entropy_is_fine
from stabilizer.remedies.situation import Situation

FLOOR = 0.1
"""Nats per token."""


class TargetEntropy(Remedy):
    """Hold the entropy above a floor.

    What it does
        Lets the entropy bonus grow by itself while the entropy is under a target, and end when it is above.

    For
        A policy that stopped exploring before it learned the task.

    Preconditions
        No target is set yet.

    Dose and bounds
        0.1 nats/token; a higher one is a person's choice.

    Undo
        The target is taken away, and the bonus with it.

    Side effects
        A floor the task does not want costs accuracy at the end of a run.

    References
        Skywork-OR1 (arXiv 2505.22312).
    """

    id = "target-entropy"
    safety = "soft"
    answers = ("exploration-exhausted",)
    horizon = 60
    by_hand = "steer the entropy bonus so that entropy stays above a floor"
    why = "groups need different answers to have anything to compare"
    expects = "entropy is back at its floor and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {"control/entropy_target": (0.0, FLOOR)} if knobs.get("control/entropy_target") == 0 else None

    def objection(self, now: Situation) -> str | None:
        return entropy_is_fine(now)
