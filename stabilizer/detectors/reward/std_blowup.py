"""Std blow-up: tiny differences in reward, divided by a tiny deviation, become full advantages."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import finite, mean, median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import change_step, departure, drift
from stabilizer.detectors.evidence.progress import LEVEL, progress
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class StdBlowup(Detector):
    """Groups still differ in reward, but by almost nothing, and division by the group's deviation scales that up.

    Signature
        The spread within the groups that have any (`reward/std_group` / (1 - `reward/zero_std_frac`)) is under `tiny`
        of its initial value, or under `speck` of the mean reward from the start. Most groups have some spread
        (`zero_std_frac` under `dead`), and advantages are divided by it. `warn` when the gradient norm rose by `louder`
        with it, critical when the reward fell; `info` until then.

        Or groups without any spread vanish from one row to the next, in so many rows that it is not `luck`, while the
        gradient norm rises above its trend by `louder` times what more groups explain and the reward does not rise:
        `warn`, critical when it has fallen.

    Why it matters
        An advantage is a difference over the group's deviation: 0.999 against 1.000 pulls as hard as 0 against 1, up to
        the square root of the group's size for a single different answer. The update then follows rounding and
        tie-breaks.

    Look-alikes
        A task being solved: the mean spread falls because whole groups lose theirs, which is why it is divided by the
        share that has any. Groups without spread that are dropped from the batch or resampled vanish too, but then the
        gradient grows as their share explains. Rewards of 0 and 1 cannot have tiny differences. Gradient norms that
        rise by themselves (`optim/grad-explosion`).

    False alarms
        A reward with a large constant part and honest small differences: `info`, as long as nothing comes of it.

    Remedies
        Manually: use advantages without division (`group_mean`), or divided by the batch's deviation (`batch_std`); set
        a floor on the spread below which a group counts as silent; round rewards to what they can distinguish.
        Meanwhile, `lower-lr` limits the harm.

    References
        Dr. GRPO (arXiv 2503.20783) on the bias of dividing by the deviation; Tricks or Traps (arXiv 2508.08221).
    """

    id = "reward/std-blowup"
    needs = ("reward/std_group|optim/grad_norm", "reward/zero_std_frac")
    confirm = 3

    tiny: float = 0.12
    """Share of the initial spread under which it counts as almost nothing."""
    speck: float = 0.01
    """Share of the mean reward under which a spread counts as almost nothing from the start."""
    dead: float = 0.8
    """Share of groups without any spread above which the others hardly count."""
    louder: float = 1.5
    """Multiple of its start, or of its trend, by which the gradient norm must have risen."""
    luck: float = 1e-3
    """Probability of that many rows without a single silent group, at the earlier rate, below which it is no chance."""

    def check(self, view: RunView) -> Finding | None:
        if view.latest("control/advantage") not in (None, 0.0):
            return None
        return self._shrunk(view) or self._ties_broken(view)

    def _ties_broken(self, view: RunView) -> Finding | None:
        """Groups without any spread vanished from one row to the next, and the gradient grew by more than that
        explains."""
        series = view.series("reward/zero_std_frac")
        if not len(series) or series.values[-1] != 0 or "optim/grad_norm" not in view:
            return None
        series = series.between(view.baseline_start(), view.step).last(400).finite()
        some = series.values.nonzero()[0]
        since = len(series) - 1 - int(some[-1]) if len(some) else 0
        then = series.values[max(0, len(series) - since - 60) : len(series) - since]
        if since < LEVEL or len(then) < 15 or (float((then == 0).sum() + 1) / (len(then) + 2)) ** since > self.luck:
            return None
        onset, before = int(series.steps[-since]), mean(then[-20:])
        pull, reward = departure(view, "optim/grad_norm", up=True), progress(view)
        if pull is None or pull.ratio < self.louder / (1 - min(before, 0.95)) ** 0.5:
            return None
        if reward is None or reward.rising or reward.solved or pull.onset_step < onset - 20:
            return None
        return self.finding(
            view, "critical" if reward.dropped and reward.drop_step >= onset else "warn", onset,
            f"no group has had equal rewards since step {onset} ({before:.0%} had before), and the gradient norm is"
            f" {pull.ratio:.2g} times the expected: something separates answers that were equal, and division by the"
            " group's deviation turns that into full advantages",
            metric="reward/zero_std_frac", baseline=before, now=0.0, grad_ratio=pull.ratio,
        )  # fmt: skip

    def _shrunk(self, view: RunView) -> Finding | None:
        series = view.series("reward/std_group")
        if len(series) < 20:
            return None
        newest = series.last(10).finite().values
        first = int(series.steps.searchsorted(view.baseline_start()))
        head = finite(series.values[first : first + 20])
        if len(newest) < 5 or len(head) < 10:
            return None
        now, start, paid = median(newest), median(head), view.series("reward/mean").last(10).finite().values
        level = abs(median(paid)) if len(paid) else 0.0
        if not 0 < now < max(2 * self.tiny * start, self.speck * level):
            return None
        silent = view.series("reward/zero_std_frac")
        idle, idle_then = silent.last(10).finite().values, finite(silent.values[first : first + 20])
        if not len(idle) or not len(idle_then) or median(idle) >= self.dead:
            return None
        now, start = now / (1 - median(idle)), start / max(1 - median(idle_then), 0.05)
        if not (now < self.tiny * start or now < self.speck * level):
            return None
        return self._judged(view, now, start)

    def _judged(self, view: RunView, now: float, start: float) -> Finding:
        reward, norm = progress(view), drift(view, "optim/grad_norm")
        louder = norm is not None and norm.clear and norm.ratio >= self.louder
        fell = reward is not None and reward.dropped and not reward.rising
        severity: Severity = "critical" if fell and louder else "warn" if louder else "info"
        with_it = f"; the gradient norm is {norm.ratio:.2g} times its start" if louder and norm else ""
        return self.finding(
            view, severity, change_step(view.series("reward/std_group"), "positive"),
            f"groups with any spread differ by only {now:.2g} in reward ({start:.2g} at the start), which division"
            f" by the group's deviation scales up to full advantages{with_it}",
            metric="reward/std_group", baseline=start, now=now, grad_ratio=norm.ratio if norm else None,
        )  # fmt: skip
