"""Lower the upper clip range."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import entropy_is_low
from stabilizer.remedies.situation import Situation


class NarrowClip(Remedy):
    """Lower the upper clip range.

    What it does
        Lowers the upper clip range to 0.28, then to 0.2.

    For
        Probabilities of single tokens that change too much in a step.

    Preconditions
        Several updates per batch: with one, ratios are 1 and nothing is clipped. A clip range of whole sequences or of
        CISPO has another scale and is not changed.

    Dose and bounds
        To 0.28, or from there to 0.2; not below.

    Undo
        The range is restored, also automatically once a kept trial no longer limits anything.

    Side effects
        Rare good tokens grow more slowly, so entropy falls sooner.

    References
        PPO (arXiv 1707.06347); DAPO (arXiv 2503.14476) for 0.28.
    """

    id = "narrow-clip"
    safety = "soft"
    answers = ("clip-too-wide", "lr-too-high")
    slows = True
    turns = "control/epsilon_high"
    by_hand = "set the clip range to 0.2 below and 0.28 above"
    why = "a clip range this wide barely limits how far the probability of a token moves in one step"
    expects = "the largest ratio falls and entropy and reward settle"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get("control/epsilon_high")
        if before is None or not 0.2 < before <= 10 or knobs.get("control/epsilon_low", 0.2) >= 1:
            return None  # at the narrow end already, or without a lower bound, so it does not clip ratios
        wide = before > 0.2801  # as float32, 0.28 is slightly more than 0.28
        return {"control/epsilon_high": (before, 0.28 if wide else 0.2)}

    def objection(self, now: Situation) -> str | None:
        if why := super().objection(now):
            return why
        return None if now.cause.id == "clip-too-wide" else entropy_is_low(now)
