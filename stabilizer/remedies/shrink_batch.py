"""Use fewer prompts per update."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Scale


class ShrinkBatch(Remedy):
    """Use fewer prompts per update.

    What it does
        Halves the prompts of a step.

    For
        A run that does not fit in memory, or whose enlarged batch is no longer needed.

    Preconditions
        Use gradient accumulation first if the trainer has it: it saves the same memory and changes nothing else.

    Dose and bounds
        Times 0.5, at least eight prompts.

    Undo
        The number is restored.

    Side effects
        The variance of the gradient doubles: a suitable learning rate may now be too high.

    References
        McCandlish et al. 2018 (arXiv 1812.06162).
    """

    id = "shrink-batch"
    safety = "hard"
    answers = ("out-of-memory",)
    why = "half the prompts need half the memory per step"
    expects = "a step succeeds, and the reward is no lower than before"
    dose = Scale("control/prompts", 0.5, low=8, high=4096)
