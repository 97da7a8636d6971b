"""Plateau: the reward has stopped improving although there is room and budget left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.detectors.progress import progress
from stabilizer.records import Finding
from stabilizer.runs.history import RunView
from stabilizer.signals import trend


@dataclass(frozen=True, kw_only=True)
class Plateau(Detector):
    """The reward has been flat for long enough to be sure, and the task is not solved.

    Signature
        Over the last `window` rows the 95 % interval of the reward's change lies inside a band that would not matter:
        `share` of what the run gained before (an equivalence test: absence of evidence for growth is not enough).
        When it never gained anything, the band is 1.5 times the noise of a row, over half as many rows again.
        Accuracy on held-out problems, where there is any, must not have risen either.

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
        By cause, one at a time: grow-batch first, then a larger group, filtering, exploration; a higher learning
        rate only as advice.

    References
        Equivalence testing after Schuirmann 1987; ScaleRL (arXiv 2510.13786) on sigmoid reward curves.
    """

    id = "reward/plateau"
    needs = ("reward/mean|accuracy/train",)
    confirm = 10

    window: int = 80
    """Rows that must be flat."""
    share: float = 0.15
    """Share of the earlier gain that would count as progress over the window."""

    def check(self, view: RunView) -> Finding | None:
        reward = progress(view)
        if reward is None or reward.solved or reward.dropped or reward.rows < self.window + 20:
            return None
        grew = reward.best - reward.start > 4 * reward.noise
        rows = self.window if grew else self.window * 3 // 2  # without a gain to compare with, only more rows help
        recent = view.series(reward.metric).last(2 * rows).finite().last(rows)
        if len(recent) < rows or recent.steps[0] < view.baseline_start() or self._schedule_bound(view):
            return None
        change = trend(recent.values)
        gained = float(np.median(recent.values[: rows // 3])) - reward.start
        # What would matter: a share of the earlier gain where there was one, else more than the noise of a row.
        band = self.share * gained if grew else 1.5 * reward.noise
        if not (band > 0 and -band < change.low and change.high < band) or self._validation_rises(
            view, recent.steps[0]
        ):
            return None
        now = float(np.median(recent.values))
        history = f"after rising from {reward.start:.3g}" if grew else "and has never risen"
        return self.finding(
            view, "warn", int(recent.steps[0]),
            f"{reward.metric} has been flat at {now:.3g} over {rows} rows {history}: change"
            f" {change.change:+.2g} (95 % interval {change.low:+.2g} to {change.high:+.2g})",
            metric=reward.metric, baseline=reward.start, now=now,
            change_low=float(change.low), change_high=float(change.high),
        )  # fmt: skip

    def _schedule_bound(self, view: RunView) -> bool:
        """The learning rate explains it: still warming up, or wound down."""
        lr = view.series("optim/lr").finite().values
        if len(lr) < 2 or lr.max() <= 0:
            return False
        warming = lr[-1] > lr[-min(len(lr), self.window // 2)] * 1.05
        return bool(warming or lr[-1] < 0.1 * lr.max())

    @staticmethod
    def _validation_rises(view: RunView, since: int) -> bool:
        """Held-out accuracy gained more than its own noise since the flat stretch began."""
        held_out = view.series("accuracy/val").finite()
        before, after = held_out.between(0, since).last(3), held_out.between(since + 1, view.step).last(3)
        return bool(len(before) and len(after) and np.median(after.values) > np.median(before.values) + 0.02)
