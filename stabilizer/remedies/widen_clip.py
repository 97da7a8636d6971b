"""Raise the upper clip range."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import entropy_is_fine


class WidenClip(Remedy):
    """Raise the upper clip range.

    What it does
        Raises the upper clip range from 0.2 to 0.28.

    For
        Entropy that falls because rare tokens are clipped before they can grow.

    Preconditions
        Entropy is low and nothing diverges: the opposite fix is `narrow-clip`.

    Dose and bounds
        To 0.28, not further.

    Undo
        The range is restored.

    Side effects
        Larger ratios, and therefore larger steps.

    References
        DAPO (arXiv 2503.14476), clip-higher.
    """

    id = "widen-clip"
    safety = "soft"
    answers = ("exploration-exhausted",)
    horizon = 60
    by_hand = "raise the upper clip range to 0.28"
    why = "rare good tokens are clipped before they can grow"
    expects = "entropy stops falling and the reward is no lower than before"
    objections = (entropy_is_fine,)

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/epsilon_high")
        return {"control/epsilon_high": (before, 0.28)} if before is not None and 0.1 <= before < 0.28 else None
