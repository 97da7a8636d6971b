"""Learning rate too low: every step is in order, and too small to get anywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import Progress, level, progress
from stabilizer.detectors.evidence.settings import not_in_force
from stabilizer.detectors.evidence.since import slowed
from stabilizer.detectors.evidence.stagnation import patience, stagnation, whole_trend
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class LrTooLow(Detector):
    """The policy hardly moves, nothing is clipped, and the reward stands still although there is room.

    Signature
        The median of 20 rows of KL to the sampling policy is above 0 and under `step_kl`, or, where a batch makes one
        update, KL to the reference is still under `drift` after `rows` rows; every one of the two that is measured must
        agree, and next to nothing is clipped. Groups do have spread, warm-up is over, the schedule is not, and the
        reward has gained no more than its noise (`info`). It is `warn` once the reward is known to stand still
        (`stagnation`) and, where it never rose, had its time to begin; or once `steps` steps of a shorter log went by
        without a rise. A rate that was cut from one row to the next, undeclared, to a third of itself or less and has
        stayed there is `warn` whatever the size of a step, once the reward has lost the pace it had before
        (`since.slowed`); a fall to less than a tenth, which stands for `stands` rows, while the reward does not rise.
        So is a rate in force that is a third or less of what the run's own settings ask for, while the reward does not
        rise.

    Why it matters
        It is the cheapest failure to repair and the easiest to wait out: all curves are calm, and at a thirtieth of the
        right rate what takes a night takes a month.

    Look-alikes
        Groups of equal rewards push nothing either, at any rate: `reward/no-signal`, looked at first here. A large
        beta holds the policy where it is (`policy/kl-pinned`). A rate of exactly 0 or weights that never change are
        `optim/no-update`. A warm-up is slow by design, so is the tail of a schedule, which comes over many rows or by
        steps to a tenth. KL to the reference of exactly 0 is not measured rather than small. A reward that rises,
        however slowly, is at most `info`.

    False alarms
        A task at its ceiling below 1 whose policy has converged moves as little. Estimators of KL that cancel (k1) look
        small on long answers.

    Remedies
        `raise-lr` by hand, 1.5 to 2 times at once, with the KL of a step as the measure; `lower-beta` if that is what
        holds it.

    References
        AdaLRS (arXiv 2506.13274): raise while the loss's slope allows it, go back when not. Typical KL of a step with a
        working rate is 1e-4 to 1e-2 nats per token.
    """

    id = "optim/lr-too-low"
    needs = ("policy/kl_old|policy/kl_ref", "reward/mean|accuracy/train")
    confirm = 5

    step_kl: float = 1e-5
    """Nats per token by which a step moves the policy at least in a run that gets anywhere."""
    drift: float = 2e-4
    """Nats per token of distance to the reference that a policy has long passed after `rows` rows."""
    rows: int = 40
    """Rows before which nothing is said."""
    cut: float = 3.0
    """Factor by which a rate falls in one row that no schedule has, but a mistake."""
    gone: float = 11.0
    """Factor by which no step of a schedule lowers a rate at once; those that have steps take a tenth."""
    stands: int = 10
    """Rows for which it has stayed there."""
    steps: int = 200
    """Steps without a rise that are worth a warning in a log of few rows."""

    def check(self, view: RunView) -> Finding | None:
        if found := self._not_as_set(view) or self._cut(view):
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
        course = whole_trend(view, reward.metric)
        gained = reward.beyond(reward.now - reward.start, 2)
        if stuck is None and (gained or course.low > 0 and reward.beyond(course.change)):
            return None
        sparse = view.step - since >= self.steps and len(series) < view.step - since and not course.rising
        name, now = still
        rate = view.latest("optim/lr")
        what = "one step moves the policy by" if name == "policy/kl_old" else "the policy is"
        far = "nats/token" if name == "policy/kl_old" else f"nats/token from its reference after {reward.rows} rows"
        lasts = stuck is not None and (stuck.grew or view.step - stuck.onset_step >= patience(view))
        return self.finding(
            view, "warn" if lasts or sparse else "info", stuck.onset_step if stuck and stuck.grew else since,
            f"{what} {now:.1g} {far}{f' at a learning rate of {rate:.2g}' if rate else ''}, and {reward.metric} has not"
            f" risen ({reward.start:.3g} to {reward.now:.3g})",
            metric=name, baseline=self.step_kl if name == "policy/kl_old" else self.drift, now=now,
        )  # fmt: skip

    def _not_as_set(self, view: RunView) -> Finding | None:
        """Our own trainer's log says which rate was asked for, and a far smaller one is in force."""
        change = next((change for change in view.once(not_in_force) if change.metric == "optim/lr"), None)
        reward = progress(view) if change and 0 < change.now * self.cut <= change.was else None
        if change is None or reward is None or reward.solved or reward.rising:
            return None
        return self.finding(
            view, "warn", change.step,
            f"the learning rate is {change.now:.2g} where settings ask for {change.was:.2g}, since step {change.step},"
            f" and {reward.metric} ({reward.now:.3g}) is not rising",
            metric="optim/lr", baseline=change.was, now=change.now,
        )  # fmt: skip

    def _cut(self, view: RunView) -> Finding | None:
        """The rate fell from one row to the next, and the reward's rise ended with it."""
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
        fate = "is not rising" if gone else "has hardly risen since, though it did before"
        return self.finding(
            view, "warn", onset,
            f"the learning rate fell from {was:.2g} to {values[row + 1]:.2g} at step {onset} without a word, and"
            f" {reward.metric} ({reward.now:.3g}) {fate}",
            metric="optim/lr", baseline=was, now=now,
        )  # fmt: skip

    def _still(self, view: RunView) -> tuple[str, float] | None:
        """The metric that shows how little moves, and its level; None when one of them moves, or none is measured."""
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
        """There was something to learn from, and nothing held the policy back."""
        silent = level(view.series("reward/zero_std_frac").last(20).finite(), 20)
        beta = view.latest("control/beta")
        return not silent >= 0.7 and not (beta or 0) >= 0.1 and (reward.early > 0 or reward.noise > 0)

    def _scheduled(self, view: RunView) -> bool:
        """The rate is still warming up, has come to the end of its schedule, or is 0."""
        rates = view.series("optim/lr").last(500).finite().values
        if not len(rates):
            return False
        warming = rates[-1] > 1.05 * rates[-min(len(rates), self.rows // 2)]
        return bool(warming or rates[-1] <= 0.1 * rates.max())
