"""Optimizer state: step size no longer follows the learning rate, because Adam's moments are wrong."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding
from stabilizer.core.stats import finite, median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure
from stabilizer.detectors.evidence.progress import progress
from stabilizer.runs.history import RunView

RATIO, RATE, NORM = "optim/update_ratio", "optim/lr", "optim/grad_norm"


@dataclass(frozen=True, kw_only=True)
class OptimizerState(Detector):
    """The weight change per unit of learning rate is much larger or smaller than before, and the gradient is the same.

    Signature
        `optim/update_ratio` has left its trend (`departure`) by `factor`, up or down, and still differs by as much
        after division by the learning rate, while the gradient norm stayed within a factor of `alike`. `info` by
        itself. `warn` when a row of `spike` times the usual gradient norm came right before, or when the reward has
        dropped since. After a declared resume, `system/resume-mismatch` compares the first steps with those before.

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
    near: int = 30
    """Rows before the onset in which a spike is looked for."""

    def check(self, view: RunView) -> Finding | None:
        left = departure(view, RATIO, up=True) or departure(view, RATIO, up=False)
        if left is None or left.rows < 5 or 1 / self.factor < left.ratio < self.factor:
            return None
        onset, why = left.onset_step, ""
        before, now = self._ends(view, RATIO, onset)
        rate, pull = (
            end / start if start else 0.0 for start, end in (self._ends(view, n, onset) for n in (RATE, NORM))
        )
        if not before or not now or not rate or not 1 / self.alike <= (pull or 1.0) <= self.alike:
            return None
        change = now / before / rate
        if 1 / self.factor < change < self.factor:
            return None
        reward = progress(view)
        harm = reward is not None and reward.dropped and reward.drop_step >= onset - 10
        spike = self._spike(view, onset)
        if spike:
            why = f", after a gradient of {spike:.0f} times the usual size"
        why += f", and {reward.metric} has fallen to {reward.now:.3g}" if reward and harm else ""
        same = "and the gradient norm are" if pull else "is"
        return self.finding(
            view, "warn" if why else "info", onset,
            f"steps are {change:.2g} times as large as before step {onset} (relative weight change {now:.2g} a step,"
            f" {before:.2g} before) while the learning rate {same} unchanged{why}",
            metric=RATIO, baseline=before, now=now, spike=spike or 0.0,
        )  # fmt: skip

    @staticmethod
    def _ends(view: RunView, name: str, onset: int) -> tuple[float, float]:
        """Levels of a metric before the onset and now; 0 where unknown."""
        series = view.series(name)
        then, newest = series.between(0, onset - 1).values[-20:], series.between(onset, view.step).values[-5:]
        before, now = (median(known) if len(known := finite(values)) else 0.0 for values in (then, newest))
        return before, now

    def _spike(self, view: RunView, onset: int) -> float:
        """The largest gradient norm shortly before the onset, in multiples of the usual; 0 for none."""
        values = finite(view.series(NORM).between(0, onset + 3).values[-4 * self.near :])
        usual = median(values) if len(values) else 0.0
        worst = float(values[-self.near :].max()) / usual if usual > 0 else 0.0
        return worst if worst >= self.spike else 0.0
