"""Ask the held-out problems more often."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled


class ValidateMore(Remedy):
    """Ask the held-out problems more often.

    What it does
        Halves the steps between validations.

    For
        Anything suspected that the training reward alone can't settle.

    Preconditions
        Held-out problems.

    Dose and bounds
        Times 0.5, every 5 steps at the most often.

    Undo
        The number goes back.

    Side effects
        The time of the validations.

    References
        None needed: more looks at the same problems.
    """

    id = "validate-more"
    safety = "soft"
    answers = ("noise-floor", "batch-too-small", "reward-hackable")
    harmless = True
    horizon = 0
    by_hand = "validate twice as often"
    why = "what is rare can't be judged by"
    expects = "held-out accuracy is known twice as often"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        if not knobs.get("control/validate_every"):
            return None
        return scaled(knobs, "control/validate_every", 0.5, low=5, high=1_000_000)
