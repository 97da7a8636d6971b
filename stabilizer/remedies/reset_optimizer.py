"""Start the optimizer's averages afresh."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.core.stats import median
from stabilizer.remedies.base import Change, Course, Remedy
from stabilizer.remedies.lower_lr import LOWEST, LR, REWARM
from stabilizer.runs.history import RunView


class ResetOptimizer(Remedy):
    """Start the optimizer's averages afresh.

    What it does
        Forgets the running averages of gradients; they grow anew from the next update, at a learning rate that rises
        from half over 20 steps.

    For
        Averages that do not belong to these gradients: after a resume without them, or after a spike.

    Preconditions
        The steps have not just grown: averages that begin anew make them large by themselves, for some rows.

    Dose and bounds
        Once an incident.

    Undo
        The run returns to the snapshot, averages included.

    Side effects
        The first updates are about the size of the learning rate whatever the gradient.

    References
        SPAM (arXiv 2501.06842).
    """

    id = "reset-optimizer"
    safety = "hard"
    answers = ("optimizer-state",)
    orders = ("reset-optimizer",)
    by_hand = "load the optimizer's state with the weights, or start it afresh with 20 steps of warm-up"
    why = "the optimizer's running averages do not belong to these gradients, so steps are too large or too small"
    expects = "the change of the weights per step is back at its level"

    def unfit(self, view: RunView) -> str:
        """Averages that have just begun anew make steps too large, and beginning once more repeats that."""
        steps = view.series("optim/update_ratio").last(60).finite().values
        larger = len(steps) >= 30 and steps[20:].max() > 2 * median(steps[:20]) > 0
        return "the averages have just begun anew" if larger else ""

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {} if knobs else None

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """The averages are made of few gradients at first, so the rate rises to where it was."""
        now = knobs.get(LR, LOWEST)
        rates = [max(now * (0.5 + 0.5 * row / REWARM), LOWEST) for row in range(REWARM + 1)]
        return {LR: rates} if now > LOWEST else {}
