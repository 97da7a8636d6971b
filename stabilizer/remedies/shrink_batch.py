"""Learn from fewer prompts an update."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled


class ShrinkBatch(Remedy):
    """Learn from fewer prompts an update.

    What it does
        Halves the prompts of a step.

    For
        A run that does not fit, or whose batch was grown and no longer needs it.

    Preconditions
        Accumulation comes first where a trainer has it: it saves the same memory and changes nothing.

    Dose and bounds
        Times 0.5, eight prompts at the least.

    Undo
        The number goes back.

    Side effects
        Twice the variance of the gradient: a learning rate that fitted may now be too high.

    References
        McCandlish et al. 2018 (arXiv 1812.06162).
    """

    id = "shrink-batch"
    safety = "hard"
    answers = ("out-of-memory",)
    why = "half the prompts take half the memory of a step"
    expects = "a step passes, and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, "control/prompts", 0.5, low=8, high=4096)
