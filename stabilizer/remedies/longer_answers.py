"""Allow longer answers."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Scale
from stabilizer.remedies.evidence import recent
from stabilizer.remedies.objections import no_room_wanted
from stabilizer.remedies.situation import Situation

LENGTH_COSTS = -0.2
"""Correlation of length and reward below which longer answers get a lower reward."""


class LongerAnswers(Remedy):
    """Allow longer answers.

    What it does
        Raises the completion length limit by half.

    For
        Answers that are cut before they can end.

    Preconditions
        Memory and time for it; the model's context is long enough.

    Dose and bounds
        Times 1.5, at most twice the configured limit.

    Undo
        The limit is restored.

    Side effects
        Steps take longer, and rambling answers grow longer.

    References
        DeepScaleR (2025) raised the limit in stages of 8k, 16k and 24k tokens.
    """

    id = "longer-answers"
    safety = "hard"
    answers = ("capped-length",)
    horizon = 60
    by_hand = "double the completion length limit, or exclude cut answers from the loss"
    why = "answers are cut before they can end, and are scored as failures"
    expects = "less than 5 % of answers are cut"
    dose = Scale("control/max_completion", 1.5, low=1, high=65536)

    def objection(self, now: Situation) -> str | None:
        if why := no_room_wanted(now):
            return why
        earns = recent(now.view, "rollout/length_reward_corr")
        if earns is not None and earns < LENGTH_COSTS:
            return f"longer answers get a lower reward (correlation {earns:.2f}): a higher limit would be wasted"
        return None
