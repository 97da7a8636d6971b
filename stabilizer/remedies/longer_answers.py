"""Let answers be longer."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled
from stabilizer.remedies.evidence import recent
from stabilizer.remedies.objections import no_room_wanted
from stabilizer.remedies.situation import Situation

LENGTH_COSTS = -0.2
"""Correlation of length and reward below which longer answers earn less."""


class LongerAnswers(Remedy):
    """Let answers be longer.

    What it does
        Raises the longest completion allowed by half.

    For
        Answers that are cut before they can end.

    Preconditions
        Memory and time for it; the model's context is long enough.

    Dose and bounds
        Times 1.5, twice the configured limit at most.

    Undo
        The limit goes back.

    Side effects
        Steps take longer, and an answer that rambles rambles longer.

    References
        DeepScaleR (2025) raised the limit in stages of 8k, 16k and 24k tokens.
    """

    id = "longer-answers"
    safety = "hard"
    answers = ("capped-length",)
    horizon = 60
    by_hand = "double the longest completion allowed, or leave cut answers out of the loss"
    why = "answers are cut before they can end, and are paid as failures"
    expects = "less than 5 % of answers are cut"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, "control/max_completion", 1.5, low=1, high=65536)

    def objection(self, now: Situation) -> str | None:
        if why := no_room_wanted(now):
            return why
        earns = recent(now.view, "rollout/length_reward_corr")
        if earns is not None and earns < LENGTH_COSTS:
            return f"longer answers are paid worse (correlation {earns:.2f}): more room would be wasted"
        return None
