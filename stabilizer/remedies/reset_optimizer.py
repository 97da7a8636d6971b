"""Reset the optimizer's averages."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.core.stats import median
from stabilizer.remedies.base import Change, Course, Remedy
from stabilizer.remedies.lower_lr import LOWEST, LR, REWARM
from stabilizer.runs.history import RunView


class ResetOptimizer(Remedy):
    """Reset the optimizer's averages.

    What it does
        Clears the running averages of gradients. They build up again from the next update, at a learning rate that
        rises from half over 20 steps.

    For
        Averages that do not match the current gradients: after a resume without them, or after a spike.

    Preconditions
        Steps have not just grown: new averages make steps large for some rows in any case.

    Dose and bounds
        Once per incident.

    Undo
        The run returns to the snapshot, averages included.

    Side effects
        The first updates have about the size of the learning rate, whatever the gradient.

    References
        SPAM (arXiv 2501.06842).
    """

    id = "reset-optimizer"
    safety = "hard"
    answers = ("optimizer-state",)
    orders = ("reset-optimizer",)
    by_hand = "load the optimizer's state with the weights, or reset it with 20 steps of warm-up"
    why = "the optimizer's running averages do not match these gradients, so steps are too large or too small"
    expects = "the change of the weights per step returns to its level"

    def unfit(self, view: RunView) -> str:
        """New averages make steps too large, and another reset would repeat that."""
        steps = view.series("optim/update_ratio").last(60).finite().values
        larger = len(steps) >= 30 and steps[20:].max() > 2 * median(steps[:20]) > 0
        return "the averages have just been reset" if larger else ""

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """The averages are based on few gradients at first, so the rate rises gradually to its former value."""
        now = knobs.get(LR, LOWEST)
        rates = [max(now * (0.5 + 0.5 * row / REWARM), LOWEST) for row in range(REWARM + 1)]
        return {LR: rates} if now > LOWEST else {}
