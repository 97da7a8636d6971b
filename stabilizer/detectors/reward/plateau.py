"""Plateau: the reward has stopped improving although there is room and budget left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.detectors.progress import progress, stagnation
from stabilizer.records import Finding
from stabilizer.runs.history import RunView
from stabilizer.signals import median


@dataclass(frozen=True, kw_only=True)
class Plateau(Detector):
    """The reward has been flat for long enough to be sure, and the task is not solved.

    Signature
        `progress.stagnation`: if the trend of the newer half of the run (at least 80 rows) went on for as many rows as
        the run has had, even the upper end of its 95 % interval would gain less than 15 % of what was gained so far.
        A test of equivalence: absence of evidence for growth is not enough. A run that never gained anything is
        measured by its noise instead. Accuracy on held-out problems, where there is any, must not have risen either.

    Why it matters
        From here on every step costs and nothing comes back, unless the reason is found: exploration used up, groups
        without signal, a KL term that pins the policy, a learning rate too low, a batch too small for its noise, or
        a ceiling that is really there.

    Look-alikes
        A solved task. Warm-up that is not over (the learning rate is still rising). A schedule that has ended (the
        learning rate has come down to a tenth of its peak). Slow but steady growth, which the equivalence test
        leaves alone. A collapse: the reward is flat at the bottom, and other detectors name it.

    False alarms
        Delayed generalisation: some runs stand still for hundreds of steps before they improve.

    Remedies
        By cause, one at a time: `grow-batch` first, `raise-entropy` when exploration is used up, `lower-beta` when the
        KL term pins the policy, `easier-prompts` when groups are dead; `raise-lr` only by hand.

    References
        Equivalence testing after Schuirmann 1987; ScaleRL (arXiv 2510.13786) on sigmoid reward curves.
    """

    id = "reward/plateau"
    needs = ("reward/mean|accuracy/train",)
    confirm = 10

    remaining: float = 0.1
    """Share of the planned steps that must lie ahead; with less, there is nothing left to save."""

    def check(self, view: RunView) -> Finding | None:
        reward, still = progress(view), stagnation(view)
        if reward is None or still is None or self._schedule_bound(view, still.rows):
            return None
        planned = view.about("steps")
        if isinstance(planned, int) and planned - view.step < self.remaining * planned:
            return None
        if self._validation_rises(view, still.onset_step):
            return None
        history = f"after rising from {reward.start:.3g}" if still.grew else "and has never risen"
        change = still.change
        return self.finding(
            view, "warn", still.onset_step,
            f"{reward.metric} has been flat at {still.level:.3g} over {still.rows} rows {history}: change"
            f" {change.change:+.2g} (95 % interval {change.low:+.2g} to {change.high:+.2g})",
            metric=reward.metric, baseline=reward.start, now=still.level,
            change_low=change.low, change_high=change.high,
        )  # fmt: skip

    @staticmethod
    def _schedule_bound(view: RunView, rows: int) -> bool:
        """The learning rate explains it: still warming up, or wound down."""
        lr = view.series("optim/lr").last(rows).finite().values
        if len(lr) < 2:
            return False
        peak = view.causal("optim/lr", "peak", lambda values, done: np.nanmax([values[-1], *done[-1:]]))[-1]
        warming = lr[-1] > lr[-min(len(lr), rows // 2)] * 1.05
        return bool(peak > 0 and (warming or lr[-1] < 0.1 * peak))

    @staticmethod
    def _validation_rises(view: RunView, since: int) -> bool:
        """Held-out accuracy gained more than its own noise since the flat stretch began."""
        held_out = view.series("accuracy/val").finite()
        before, after = held_out.between(0, since).last(3), held_out.between(since + 1, view.step).last(3)
        return bool(len(before) and len(after) and median(after.values) > median(before.values) + 0.02)
