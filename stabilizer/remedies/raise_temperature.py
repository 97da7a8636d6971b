"""Raise the sampling temperature."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import entropy_is_fine


class RaiseTemperature(Remedy):
    """Raise the sampling temperature.

    What it does
        Raises the sampling temperature by 0.1; the learner uses the same temperature.

    For
        Low entropy that a bonus did not raise.

    Preconditions
        None.

    Dose and bounds
        Plus 0.1, at most 1.3.

    Undo
        The temperature is restored.

    Side effects
        It delays the loss of variety but does not prevent it; training accuracy falls at first.

    References
        ProRL (arXiv 2505.24864).
    """

    id = "raise-temperature"
    safety = "hard"
    answers = ("exploration-exhausted",)
    horizon = 60
    by_hand = "raise the sampling temperature by 0.1, up to 1.3"
    why = "a higher temperature samples answers that the policy no longer tries"
    expects = "fewer groups are silent and the reward is no lower than before"
    objections = (entropy_is_fine,)

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/temperature")
        if before is None or before >= 1.3:
            return None
        return {"control/temperature": (before, min(1.3, round(before + 0.1, 6)))}
