"""Learning rate too low: updates are healthy but too small to make progress."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import Progress, level, progress
from stabilizer.detectors.evidence.since import slowed
from stabilizer.detectors.evidence.stagnation import STILL_MOST, patience, stagnation
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class LrTooLow(Detector):
    """The policy hardly moves, nothing is clipped, and the reward is flat although there is room to improve.

    Signature
        The median of KL to the sampling policy over 20 rows is above 0 and under `step_kl`. Where a batch makes one
        update, KL to the reference is still under `drift` after `rows` rows. Every one of the two that is measured must
        agree, and almost nothing is clipped. Groups have spread, warm-up is over, the schedule is not, and the reward
        has gained no more than its noise (`info`). The finding is `warn` once the reward is known to be flat
        (`stagnation`) and, if it never rose, has had its time to begin, or once a shorter log has gone `steps` steps
        without a rise.

        An undeclared cut of the learning rate between two rows, to a third or less, is `warn` whatever the size of a
        step, once the reward has lost its earlier pace (`since.slowed`). So is a cut to less than a tenth that lasts
        `stands` rows while the reward does not rise.

    Why it matters
        It is the cheapest failure to repair and the easiest to miss: all curves are calm, and at a thirtieth of the
        right rate a night's work takes a month.

    Look-alikes
        Groups of equal rewards give no gradient at any rate: `reward/no-signal`, which is checked first. A large beta
        holds the policy in place (`policy/kl-pinned`). A rate of exactly 0 or weights that never change are
        `optim/no-update`. A warm-up is slow by design, and so is the tail of a schedule, which falls over many rows or
        in steps to a tenth. KL to the reference of exactly 0 is not measured rather than small. A reward that rises,
        however slowly, is at most `info`.

    False alarms
        A converged policy at a ceiling below 1 moves as little. Estimators of KL that cancel (k1) look small on long
        answers.

    Remedies
        `raise-lr` manually, by 1.5 to 2 times at once, watching the KL of a step; `lower-beta` if the KL term holds the
        policy.

    References
        AdaLRS (arXiv 2506.13274): raise while the loss's slope allows it, go back when not. Typical KL of a step with a
        working rate is 1e-4 to 1e-2 nats per token.
    """

    id = "optim/lr-too-low"
    needs = ("policy/kl_old|policy/kl_ref", "reward/mean|accuracy/train")
    confirm = 5

    step_kl: float = 1e-5
    """Nats per token by which a step moves the policy at least in a run that makes progress."""
    drift: float = 2e-4
    """Nats per token from the reference that a learning policy has long passed after `rows` rows."""
    rows: int = 40
    """Rows below which nothing is reported."""
    cut: float = 3.0
    """Factor by which no schedule lowers the rate between two rows."""
    gone: float = 11.0
    """Factor by which no step schedule lowers the rate at once; those take a tenth."""
    stands: int = 10
    """Rows for which the rate has stayed there."""
    steps: int = 200
    """Steps without a rise that are worth a warning in a log of few rows."""

    def check(self, view: RunView) -> Finding | None:
        if found := self._cut(view):
            return found
        still = self._still(view)
        if still is None:
            return None
        reward = progress(view)
        if reward is None or reward.rows < self.rows or reward.solved or reward.dropped or reward.rising:
            return None
        if not self._could_learn(view, reward) or self._scheduled(view):
            return None
        stuck = stagnation(view)
        series = view.series(reward.metric)
        since = int(series.steps[int(series.steps.searchsorted(view.baseline_start()))])
        course = trend(series.last(STILL_MOST).finite().values)
        gained = reward.beyond(reward.now - reward.start, 2)
        if stuck is None and (gained or course.low > 0 and reward.beyond(course.change)):
            return None
        sparse = view.step - since >= self.steps and len(series) < view.step - since and not course.rising
        name, now = still
        rate = view.latest("optim/lr")
        what = "one step moves the policy by only" if name == "policy/kl_old" else "the policy is only"
        far = "nats/token" if name == "policy/kl_old" else f"nats/token from its reference after {reward.rows} rows"
        lasts = stuck is not None and (stuck.grew or view.step - stuck.onset_step >= patience(view))
        return self.finding(
            view, "warn" if lasts or sparse else "info", stuck.onset_step if stuck and stuck.grew else since,
            f"{what} {now:.1g} {far}{f' at a learning rate of {rate:.2g}' if rate else ''}, and {reward.metric} has not"
            f" risen ({reward.start:.3g} to {reward.now:.3g})",
            metric=name, baseline=self.step_kl if name == "policy/kl_old" else self.drift, now=now,
        )  # fmt: skip

    def _cut(self, view: RunView) -> Finding | None:
        """The rate fell between two rows, and the reward stopped rising with it."""
        rates = view.series("optim/lr").last(500).finite()
        values = rates.values
        if len(values) < 30 or not 0 < values[-1] <= values.max() / self.cut:
            return None
        falls = (values[:-1] >= self.cut * values[1:]).nonzero()[0]
        row = int(falls[-1]) if len(falls) else 0
        was, now = float(values[row]), float(values[-1])
        onset = int(rates.steps[row + 1]) if len(falls) else 0
        if onset <= view.baseline_start() or was < values.max() / self.cut:
            return None
        since = values[row + 1 :]
        reward = progress(view)
        if reward is None or since.max() * self.cut > was:  # a warm-up begins low and recovers
            return None
        stands = len(since) >= self.stands and since.max() <= 1.5 * since.min()
        gone = stands and was >= self.gone * since.max() and not (reward.rising or reward.solved)
        if not (gone or slowed(view, onset)):
            return None
        fate = "is not rising" if gone else "has hardly risen since, although it rose before"
        return self.finding(
            view, "warn", onset,
            f"the learning rate fell from {was:.2g} to {values[row + 1]:.2g} at step {onset} without a declared"
            f" reason, and {reward.metric} ({reward.now:.3g}) {fate}",
            metric="optim/lr", baseline=was, now=now,
        )  # fmt: skip

    def _still(self, view: RunView) -> tuple[str, float] | None:
        """(metric, level) of the metric that shows how little moves; None when one of them moves or none is
        measured."""
        found = None
        for name, limit in (("policy/kl_ref", self.drift), ("policy/kl_old", self.step_kl)):
            recent = view.series(name).last(20).finite().values
            if len(recent) < 10 or not recent.any():  # not measured, switched off, or one update a batch
                continue
            now = median(np.abs(recent))
            if now > limit:
                return None
            found = (name, now)
        clipped = level(view.series("policy/clip_frac").last(20).finite(), 20)
        return None if clipped > 0.005 else found

    @staticmethod
    def _could_learn(view: RunView, reward: Progress) -> bool:
        """Whether there was something to learn from and nothing held the policy back."""
        silent = level(view.series("reward/zero_std_frac").last(20).finite(), 20)
        beta = view.latest("control/beta")
        return not silent >= 0.7 and not (beta or 0) >= 0.1 and (reward.early > 0 or reward.noise > 0)

    def _scheduled(self, view: RunView) -> bool:
        """Whether the rate is still warming up, has reached the end of its schedule, or is 0."""
        rates = view.series("optim/lr").last(500).finite().values
        if not len(rates):
            return False
        warming = rates[-1] > 1.05 * rates[-min(len(rates), self.rows // 2)]
        return bool(warming or rates[-1] <= 0.1 * rates.max())
