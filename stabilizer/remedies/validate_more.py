"""Validate more often."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Scale


class ValidateMore(Remedy):
    """Validate more often.

    What it does
        Halves the steps between validations.

    For
        Any suspicion that the training reward alone can't confirm.

    Preconditions
        Held-out problems.

    Dose and bounds
        Times 0.5, down to every 5 steps.

    Undo
        The number is restored.

    Side effects
        The validations take more time.

    References
        None needed: the same problems, measured more often.
    """

    id = "validate-more"
    safety = "soft"
    answers = ("noise-floor", "batch-too-small", "reward-hackable")
    harmless = True
    horizon = 0
    by_hand = "validate twice as often"
    why = "held-out accuracy is measured too rarely to judge the run"
    expects = "held-out accuracy is measured twice as often"
    dose = Scale("control/validate_every", 0.5, low=5, high=1_000_000)
