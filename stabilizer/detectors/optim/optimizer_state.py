"""Optimizer state: step size no longer follows the learning rate, because Adam's moments are wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import finite, median, median_scale
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure
from stabilizer.detectors.evidence.progress import progress
from stabilizer.runs.history import RunView

RATIO, RATE, NORM = "optim/update_ratio", "optim/lr", "optim/grad_norm"
FRESH = 25
"""Rows for which reset moments are reported."""
BEFORE, SINCE = 20, 4
"""Rows before and after the reset that tell it from one large step."""
CLEAR = 6.0
"""Standard deviations of a row by which the first step stands out."""


@dataclass(frozen=True, kw_only=True)
class OptimizerState(Detector):
    """The weight change per unit of learning rate is much larger or smaller than before, and the gradient is the same.

    Signature
        `optim/update_ratio` has left its trend (`departure`) by `factor`, up or down, and still differs by as much
        after division by the learning rate, while the gradient norm stayed within a factor of `alike`. `info` by
        itself. `warn` when a row of `spike` times the usual gradient norm came right before, when the steps changed
        within one row by `torn` standard deviations of the usual difference between rows, or when the reward has
        dropped since.

        A declared resume or rollback starts a new trend, so there the first 5 rows are compared with the last 20 before
        it: moments that were not restored make steps `factor` times as large (`warn`). Without any declaration, steps
        that become `fresh` times as large within one row at a constant rate, and then shrink row by row, come from
        moments that were reset (`warn`, for 25 rows).

    Why it matters
        Adam divides by the root of a running mean of squares. One gradient of a hundred times the usual size multiplies
        that root by three and more for the next 1/(1 - beta2) steps, a thousand by default. Almost nothing is learned
        in them, although every curve is calm. A reset does the opposite: the first steps all have full size.

    Look-alikes
        A changed learning rate is divided out. A gradient that fades, as on a nearly solved task, shrinks the steps
        together with its norm. The first hundred steps, in which the moments fill, end in a level and are over before a
        trend is known. One large gradient makes one large step and smaller ones after it. Another batch size changes
        the noise in the gradient and its norm with it. Steps of exactly 0 are `optim/no-update`.

    False alarms
        Other data whose gradients have another direction at the same norm; declare them. An Adam epsilon above the
        gradient's size makes small steps from the first row, which no trend can show.

    Remedies
        `roll-back` to before the spike, if it was recent. Manually: reset the moments and warm the rate up over some 20
        steps; use a beta2 of 0.95 to 0.99 or an adaptive clip; after a resume, check that the checkpoint holds the
        optimizer's state.

    References
        SPAM (arXiv 2501.06842) on momentum reset after spikes; MiniMax-M1 (arXiv 2506.13585) on beta2 and epsilon in
        reinforcement learning.
    """

    id = "optim/optimizer-state"
    needs = ("optim/update_ratio",)

    factor: float = 3.0
    """Change of the ratio between step and learning rate that makes a finding."""
    alike: float = 2.0
    """Factor by which the gradient norm may differ and still count as the same."""
    spike: float = 10.0
    """Factor over the usual gradient norm of a row that explains the change."""
    fresh: float = 2.0
    """Smallest factor by which the first steps after a reset are larger."""
    torn: float = 10.0
    """Standard deviations of the usual difference between rows: neither data nor batch make such a step."""
    near: int = 30
    """Rows before the onset in which a spike is looked for, and rows after a resume in which steps are compared."""

    def check(self, view: RunView) -> Finding | None:
        if begun := self._begun_anew(view):
            onset, before, first, now = begun
            return self.finding(
                view, "warn", onset,
                f"the optimizer's moments were reset at step {onset} without a declared reason: steps became"
                f" {first / before:.2g} times as large within one row at the same learning rate and have shrunk since",
                metric=RATIO, baseline=before, now=now, spike=0.0, fresh=True,
            )  # fmt: skip
        left = departure(view, RATIO, up=True) or departure(view, RATIO, up=False)
        resumed = [event for event in view.events(("resume", "rollback"))][-1:]
        if left is not None and left.rows >= 5:
            if 1 / self.factor < left.ratio < self.factor:
                return None
            onset, why = left.onset_step, ""
        elif resumed and len(view.series(RATIO).between(resumed[0].step, view.step)) in range(5, self.near):
            onset, why = resumed[0].step, f", after a {resumed[0].kind}"
        else:
            return None
        before, now = self._steps(view, RATIO, onset, bool(why)), self._steps(view, RATIO, onset, bool(why), new=True)
        rate = self._change(view, RATE, onset, bool(why))
        pull = self._change(view, NORM, onset, bool(why))
        if not before or not now or not rate or not 1 / self.alike <= (pull or 1.0) <= self.alike:
            return None
        change = now / before / rate
        if 1 / self.factor < change < self.factor:
            return None
        reward = progress(view)
        harm = reward is not None and reward.dropped and reward.drop_step >= onset - 10
        spike = self._spike(view, onset)
        if spike and not why:
            why = f", after a gradient of {spike:.0f} times the usual size"
        if not why and self._torn(view, onset):
            why = ", within one row"
        why += f", and {reward.metric} has fallen to {reward.now:.3g}" if reward and harm else ""
        same = "and the gradient norm are" if pull else "is"
        return self.finding(
            view, "warn" if why else "info", onset,
            f"steps are {change:.2g} times as large as before step {onset} (relative weight change {now:.2g} a step,"
            f" {before:.2g} before) while the learning rate {same} unchanged{why}",
            metric=RATIO, baseline=before, now=now, spike=spike or 0.0,
        )  # fmt: skip

    def _begun_anew(self, view: RunView) -> tuple[int, float, float, float] | None:
        """(onset, level before, first step since, step now) of moments that were reset within the last 25 rows."""
        series = view.series(RATIO).last(2 * FRESH).finite()
        values = series.values
        row = len(values) - FRESH + int(np.argmax(values[-FRESH:])) if len(values) >= FRESH + BEFORE else 0
        if not BEFORE <= row < len(values) - SINCE:
            return None
        old, since, onset = values[row - BEFORE : row], values[row + 1 : row + 1 + SINCE], int(series.steps[row])
        usual, first = median(old), float(values[row])
        if not old.min() > 0 or first < self.fresh * usual or np.log(first / usual) < CLEAR * np.log(old).std():
            return None
        falling = since.min() > 1.1 * usual and since.max() < first and since[-1] < 0.8 * first
        rates = view.series(RATE).between(int(series.steps[row - BEFORE]), onset + 1).finite().values
        if not falling or len(rates) < BEFORE or rates.max() > 1.1 * rates.min() or view.declared(onset):
            return None
        pull = view.series(NORM).between(int(series.steps[row - BEFORE]), onset).finite().values
        if len(pull) and pull[-1] > self.spike * median(pull):
            return None
        return onset, usual, first, float(values[-1])

    def _torn(self, view: RunView, onset: int) -> bool:
        """Whether the steps changed at once near the onset, without a declared reason."""
        series = view.series(RATIO)
        place = int(series.steps.searchsorted(onset))
        near = series.values[max(0, place - BEFORE - self.near // 3) : place + self.near // 3]
        jumps = np.diff(np.log(near[np.isfinite(near) & (near > 0)]))
        if len(jumps) < BEFORE:
            return False
        return float(np.abs(jumps).max()) >= max(math.log(self.factor), self.torn * median_scale(jumps)[1])

    def _steps(self, view: RunView, name: str, onset: int, resumed: bool, *, new: bool = False) -> float:
        """Level of a metric before or after the onset; 0 when unknown."""
        series = view.series(name)
        if new:
            since = series.between(onset, view.step)
            values = since.values[:5] if resumed else since.values[-5:]
        else:
            values = series.between(0, onset - 1).values[-20:]
        values = finite(values)
        return median(values) if len(values) else 0.0

    def _change(self, view: RunView, name: str, onset: int, resumed: bool) -> float:
        """Ratio of a metric to its level before the onset; 0 when it is not logged."""
        before, now = self._steps(view, name, onset, resumed), self._steps(view, name, onset, resumed, new=True)
        return now / before if before else 0.0

    def _spike(self, view: RunView, onset: int) -> float:
        """The largest gradient norm shortly before the onset, in multiples of the usual; 0 for none."""
        values = finite(view.series(NORM).between(0, onset + 3).values[-4 * self.near :])
        usual = median(values) if len(values) else 0.0
        worst = float(values[-self.near :].max()) / usual if usual > 0 else 0.0
        return worst if worst >= self.spike else 0.0
