"""Noise floor: the effect of a step is lost in the sampling noise of a small batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import autocorrelation, finite, step_noise, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import progress
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class NoiseFloor(Detector):
    """The reward is white noise around a level: the batches are too small to show, or to make, any progress.

    Signature
        Over the newest `window` rows (all of a shorter run, at least `least`) the reward has no trend, its
        autocorrelation is under 0.2, and its noise is large: more than `large` of the spread of single rewards, as with
        a batch of half a dozen prompts, or, where that is not logged, more than `large` of the level. Where batch and
        group size are known, the noise must be what they explain: at most `explained` times the deviation of a mean
        over that many prompts. `info`; `warn` from `long` rows without any gain since the start, or from `measured`
        rows in which the gradients of two minibatches did not agree: the 95 % interval of their mean cosine, where it
        is logged, ends below `common` and is not wider than that to either side.

    Why it matters
        The gradient is as noisy as the reward: its direction is mostly random, and steps undo one another. A smaller
        learning rate helps a little; a larger batch helps more and makes every curve of the run readable.

    Look-alikes
        Swings that the batch does not explain, or that are correlated over rows (`reward/oscillation`). A plateau: this
        finding says that progress cannot be seen, while `reward/plateau` beside it says that a relevant gain is
        excluded; then this one is its cause. Small batches that learn all the same: with any trend over the window
        nothing is reported, and with any gain since the start or gradients that agree the finding stays `info`.

    False alarms
        A run that learns so slowly that the window cannot show it gets a correct statement about its batch, as `info`.

    Remedies
        `grow-batch`: four times the prompts halve the noise. Manually: gradient accumulation; a larger group helps as
        long as prompts are alike.

    References
        McCandlish et al. 2018 (arXiv 1812.06162) on the gradient noise scale.
    """

    id = "reward/noise-floor"
    needs = ("reward/mean|accuracy/train",)
    confirm = 10

    window: int = 200
    """Rows looked at."""
    least: int = 60
    """Rows below which nothing is reported."""
    long: int = 500
    """Rows after which a run without any gain is worth a warning."""
    measured: int = 100
    """Rows of cosines behind a warning: the first hundred of `case-search-r1` give their mean to within 0.02."""
    common: float = 0.05
    """Cosine of two minibatches' gradients under which a step is mostly noise. Sample runs that learn have 0.17 to
    0.36 (`addition-healthy`)."""
    large: float = 0.3
    """Noise of a row, in deviations of a single reward."""
    explained: float = 2.0
    """Multiple of the deviation of a mean over the batch's prompts that sampling explains."""

    def check(self, view: RunView) -> Finding | None:
        reward = progress(view)
        if reward is None or reward.rows < self.least or reward.solved or reward.dropped or reward.rising:
            return None
        size = self._size(view, reward.now)
        if not reward.noise > 0.8 * self.large * size:
            return None
        recent = view.series(reward.metric).last(self.window).finite()
        noise = step_noise(recent.values)
        prompts = view.latest("batch/prompts")
        if len(recent) < self.least or not noise > self.large * size:
            return None
        if prompts and prompts >= 1 and noise > self.explained * size / np.sqrt(prompts):
            return None
        slope = trend(recent.values)
        ahead = (np.arange(len(recent)) / (len(recent) - 1) - 0.5) * slope.change
        if slope.rising or slope.falling or autocorrelation(recent.values - ahead) > 0.2:
            return None
        head = finite(view.series(reward.metric).values[: self.window // 2])
        gain = float(recent.values.mean() - head.mean())
        stuck = reward.rows >= self.long and gain < 2 * noise * np.sqrt(1 / len(head) + 1 / len(recent))
        batch = f"; a step has {prompts:.0f} prompts" if prompts and prompts >= 1 else ""
        batch += (unlike := self._unlike(view))
        return self.finding(
            view, "warn" if stuck or unlike else "info", int(recent.steps[0]),
            f"{reward.metric} varies by {noise:.2g} from row to row and changed by {slope.change:+.2g}"
            f" ({slope.low:+.2g} to {slope.high:+.2g}) over {len(recent)} rows: noise hides any progress{batch}",
            metric=reward.metric, baseline=float(head.mean()), now=float(recent.values.mean()), noise=noise,
        )  # fmt: skip

    def _unlike(self, view: RunView) -> str:
        """Words when the gradients of a step's minibatches have not agreed for long; else empty."""
        rows = view.series("optim/grad_cosine").between(view.baseline_start(), view.step).last(self.window)
        cosines = rows.finite().values
        if len(cosines) < self.measured:
            return ""
        centre, error = cosines.mean(), 2 * cosines.std() / np.sqrt(len(cosines))
        if max(error, centre + error) >= self.common:
            return ""
        return f"; gradients of two minibatches do not agree (cosine {centre:z.2f} ± {error:.2f})"

    @staticmethod
    def _size(view: RunView, level: float) -> float:
        """Deviation of a single reward over the batch, or else the level of the reward."""
        values = view.series("reward/std").last(30).finite().values
        return float(values.mean()) if len(values) else abs(level)
