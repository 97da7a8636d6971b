"""Weaken the KL penalty."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Scale
from stabilizer.remedies.objections import drift_that_grows

LEAST = 1e-4
"""A penalty below this value limits no policy."""


class LowerBeta(Remedy):
    """Weaken the KL penalty.

    What it does
        Halves the KL penalty.

    For
        A reward that is flat because the penalty outweighs it.

    Preconditions
        KL to the reference is flat and small, and not accelerating.

    Dose and bounds
        Times 0.5, down to 0.0001.

    Undo
        Beta is restored.

    Side effects
        It weakens an anchor that may have been set on purpose.

    References
        ProRL (arXiv 2505.24864) on references that must be reset or loosened for learning to continue.
    """

    id = "lower-beta"
    safety = "hard"
    answers = ("pinned-by-kl",)
    horizon = 60
    turns = "control/beta"
    by_hand = "halve the weight of the KL term"
    why = "the penalty outweighs the reward, so the policy stays where it started"
    expects = "the reward rises again"
    dose = Scale("control/beta", 0.5, low=LEAST, high=1.0)
    objections = (drift_that_grows,)
