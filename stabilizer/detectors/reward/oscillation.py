"""Oscillation: the reward swings instead of rising."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import autocorrelation, deviation, line, mean, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import drift
from stabilizer.detectors.evidence.progress import progress
from stabilizer.runs.history import RunView
from stabilizer.trainers.settings import keys_of


@dataclass(frozen=True, kw_only=True)
class Oscillation(Detector):
    """Steps overshoot and are undone: the reward swings widely and makes no progress.

    Signature
        Over the newest `window` rows the reward has no trend and swings (5th to 95th percentile; up and down at least
        twice) through `large` of its level, more than `unexplained` times the sampling noise of the batch. In addition
        one of three holds. The swings grew to `grown` times those of the rows before (more where autocorrelation makes
        them uncertain). Or there is no gain since the start and the swings are correlated over rows (autocorrelation
        above `linked`). Or a wave has appeared: `periodic` of the variance lies at one period, which happens by chance
        less than once in 10,000 windows, and is `louder` times as strong as anything periodic in the four windows
        before.

        `warn` when the swings grew together with the gradient norm, the KL of a step or the clip fraction, when a wave
        appeared and the window gained nothing over the one before, or when the run has made no progress for `patience`
        steps; else `info`.

    Why it matters
        What one step gains, the next loses. It precedes a collapse when the learning rate is too high, and wastes
        compute when the batch is too small for it.

    Look-alikes
        The noise of few prompts is white: it has no memory from row to row and is as large as the batch explains
        (`reward/noise-floor`). Data in epoch order swing while the reward rises, and have since the first row. A batch
        that was made smaller swings more by itself: a declared change starts a new baseline, and a logged one is
        accounted for. A warm-up that is still running is stated in the summary, because the learning rate that will do
        harm has then not been reached.

    False alarms
        Waves of the data around a plateau look the same in the reward alone.

    Remedies
        `lower-lr`, then `grow-batch`, one at a time. Manually: fewer passes over a batch, a narrower clip range;
        restore a halved batch size (batch keys that only split memory change nothing, those that set the update do).

    References
        Search-R1's configuration (a warm-up of 286 steps, 256 prompts); McCandlish et al. 2018 (arXiv 1812.06162).
    """

    id = "reward/oscillation"
    needs = ("reward/mean|accuracy/train",)

    window: int = 80
    """Rows over which swings are measured."""
    shortest: int = 50
    """Rows below which a run is too young to report swings that did not grow."""
    large: float = 0.3
    """Swing, in levels of the reward (or twice the spread of single rewards, where that is less)."""
    unexplained: float = 1.6
    """Multiple of the sampling noise of a batch, where its size is known."""
    grown: float = 1.5
    """Multiple of the earlier swings, for a long series without memory; 3 / sqrt(independent rows) is added."""
    linked: float = 0.4
    """Autocorrelation above which swings are correlated over rows."""
    turns: int = 4
    """Times the reward must have crossed its trend: a fall or a step has fewer."""
    periodic: float = 0.4
    """Share of the variance at one period (three lines of the spectrum) that makes a wave."""
    louder: float = 4.0
    """Multiple of the power of the strongest earlier wave."""
    patience: int = 100
    """Steps without gain after which swings are worth a warning."""

    def check(self, view: RunView) -> Finding | None:
        reward = progress(view)
        if reward is None or reward.rows < 40 or reward.solved:
            return None
        series = view.series(reward.metric).between(view.baseline_start(), view.step).last(3 * self.window).finite()
        width = min(self.window, len(series) if len(series) < 2 * self.window else self.window)
        recent = series.values[-width:]
        if width < 40:
            return None
        centre, away = mean(recent), deviation(recent)
        size = self._size(view, abs(centre))
        if not away * 3.3 > self.large * size:
            return None
        luck = self._luck(view)
        if away < 1.2 * luck:
            return None
        slope = trend(recent)
        residuals = recent - centre - (np.arange(width) / (width - 1) - 0.5) * slope.change
        sd = deviation(residuals)
        if slope.rising or slope.falling or self._turns(residuals) < self.turns:
            return None
        low, high = np.interp((0.05 * (width - 1), 0.95 * (width - 1)), np.arange(width), np.sort(residuals))
        swing = float(high - low)
        if swing < self.large * size:
            return None
        wave = self._wave(view, recent, residuals)
        if not wave and (reward.rising or sd < self.unexplained * luck):
            return None
        linked = autocorrelation(residuals)
        grew = wave or self._growth(view, series.values[:-width], sd, linked)
        head = view.series(reward.metric).values[:20]
        steps = view.step - max(int(view.series(reward.metric).steps[0]), view.baseline_start())
        nowhere = linked >= self.linked and level_gain(recent, head) <= 0.5 * sd
        if not grew and not (nowhere and width >= self.shortest):
            return None
        moved = [name for name in ("optim/grad_norm", "policy/kl_old", "policy/clip_frac") if self._up(view, name)]
        stuck = wave and level_gain(recent, series.values[-2 * width : -width]) <= 0.5 * sd
        severity: Severity = "warn" if (grew and moved) or stuck or (nowhere and steps >= self.patience) else "info"
        since = f", {grew:.2g} times as much as before" if grew else " and has gained nothing since the start"
        return self.finding(
            view, severity, int(series.steps[-width]),
            f"{reward.metric} swings by {swing:.2g} around {centre:.3g} without a trend over {width} rows"
            f"{since}{self._warm_up(view)}",
            metric=reward.metric, baseline=centre, now=swing, grown=grew, moved=moved,
        )  # fmt: skip

    def _wave(self, view: RunView, recent: np.ndarray, residuals: np.ndarray) -> float:
        """Power of a wave in multiples of the strongest one in the windows before; 0 when there is none."""
        width, reward = len(recent), progress(view)
        power, share = _strongest(residuals)
        if reward is None:
            return 0.0
        whole = (
            view.series(reward.metric).between(view.baseline_start(), view.step).last(5 * self.window).finite().values
        )
        if share < self.periodic or width < self.window or len(whole) < 2 * width:
            return 0.0
        before = [whole[end - width : end] for end in range(len(whole) - width, width - 1, -width // 2)]
        most = max(_strongest(line(window)[1])[0] for window in before)
        return float(np.sqrt(power / most)) if power > self.louder * most > 0 else 0.0

    def _growth(self, view: RunView, before: np.ndarray, sd: float, linked: float) -> float:
        """How many times larger the swings are than before, corrected for batch size; 0 if not certain."""
        if len(before) < 40:
            return 0.0
        then = before - before.mean() - (np.arange(len(before)) / (len(before) - 1) - 0.5) * trend(before).change
        prompts = view.series("batch/prompts").last(3 * self.window).finite().values
        fewer = np.sqrt(prompts[0] / prompts[-1]) if len(prompts) and min(prompts[0], prompts[-1]) > 0 else 1.0
        ratio = sd / max(float(then.std()) * max(fewer, 1.0), 1e-12)
        independent = min(len(before), self.window) * (1 - linked) / (1 + linked)
        return ratio if ratio > self.grown + 3 / np.sqrt(independent) else 0.0

    @staticmethod
    def _size(view: RunView, level: float) -> float:
        values = view.series("reward/std").last(30).finite().values
        return min(level, 2 * mean(values)) if len(values) else level

    @staticmethod
    def _luck(view: RunView) -> float:
        """Deviation of a batch's mean reward by chance in prompts and answers; 0 where unknown."""
        prompts = view.latest("batch/prompts") or view.config("data.train_batch_size")
        spread = view.series("reward/std").last(30).finite().values
        if not (isinstance(prompts, (int, float)) and prompts >= 1 and len(spread)):
            return 0.0
        variance = mean(spread) ** 2
        within, size = view.series("reward/std_group").last(30).finite().values, view.latest("batch/group_size")
        if len(within) and size and size > 1:  # the spread between prompts, and the rest of the chance in answers
            variance -= mean(within) ** 2 * (1 - 1 / size)
        return math.sqrt(max(variance, 0.0) / prompts)

    @staticmethod
    def _turns(residuals: np.ndarray) -> int:
        """Sign changes of the 5-row mean about the trend, those within half a deviation left out."""
        smooth = np.convolve(residuals, np.full(5, 0.2), "valid")
        sides = np.sign(smooth[np.abs(smooth) > 0.5 * smooth.std()])
        return int(np.count_nonzero(np.diff(sides)))

    @staticmethod
    def _up(view: RunView, name: str) -> bool:
        moved = drift(view, name, start_rows=40, now_rows=20)
        return moved is not None and moved.clear and moved.ratio >= 1.3

    @staticmethod
    def _warm_up(view: RunView) -> str:
        rates = view.series("optim/lr").last(20).finite().values
        ratio = next((found for key in keys_of("warmup_frac") if (found := view.config(key)) is not None), None)
        planned = view.about("steps")
        if isinstance(ratio, float) and isinstance(planned, int) and view.step < ratio * planned:
            return f"; warm-up is still running (step {view.step} of {ratio * planned:.0f})"
        if len(rates) >= 2 and rates[-1] > 1.02 * rates[0]:
            return f"; warm-up is still running (learning rate {rates[-1]:.2g})"
        return ""


def _strongest(residuals: np.ndarray) -> tuple[float, float]:
    """Power of the strongest wave that completes at least two periods (a step completes one), of six rows or more,
    and its share of the variance."""
    lines = np.abs(np.fft.rfft(residuals)) ** 2
    peaks = lines[:-2] + lines[1:-1] + lines[2:]  # a period between two lines appears in both
    peaks = peaks[2 : len(residuals) // 6]
    return float(peaks.max()), float(peaks.max() / max(lines[1:].sum(), 1e-12))


def level_gain(now: np.ndarray, head: np.ndarray) -> float:
    """Mean of the newest rows less that of the first; 0 when there are none."""
    head = head[np.isfinite(head)]
    return float(now.mean() - head.mean()) if len(head) else 0.0
