"""Keep the entropy above a floor."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Start
from stabilizer.remedies.objections import entropy_is_fine

FLOOR = 0.1
"""Nats per token."""


class TargetEntropy(Remedy):
    """Keep the entropy above a floor.

    What it does
        Raises the entropy bonus automatically while the entropy is below a target, and removes it above the target.

    For
        A policy that stopped exploring before it learned the task.

    Preconditions
        No target is set yet.

    Dose and bounds
        0.1 nats/token; only a person may choose a higher target.

    Undo
        The target and the bonus are removed.

    Side effects
        A floor that the task does not need costs accuracy at the end of a run.

    References
        Skywork-OR1 (arXiv 2505.22312).
    """

    id = "target-entropy"
    safety = "soft"
    answers = ("exploration-exhausted",)
    horizon = 60
    by_hand = "control the entropy bonus so that entropy stays above a floor"
    why = "a group without different answers has nothing to compare"
    expects = "entropy returns to its floor and the reward is no lower than before"
    dose = Start("control/entropy_target", FLOOR)
    objections = (entropy_is_fine,)
