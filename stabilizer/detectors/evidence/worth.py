"""What a change in the answers gained: this separates reasoning from padding and brevity from giving up.

Longer answers, unused tools or repetition are neither good nor bad by themselves. `worth` checks what accuracy did
since (the reward where accuracy is not logged). It returns `flat` only when a relevant gain is excluded; a short or
noisy stretch is `unsure`, and detectors wait.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from stabilizer.core.stats import finite, inflation, line, mean, median, step_noise, trend
from stabilizer.detectors.evidence.departure import scaled, unscaled
from stabilizer.detectors.evidence.progress import LEVEL, progress
from stabilizer.runs.history import RunView, Series

GUARDS = ("accuracy/train", "accuracy/val", "reward/mean")
"""Metrics that judge a change, best first: the reward itself may reward the very change that is judged."""
STRETCH = 60
"""Most rows looked at on either side of a change."""
LEAST = 8
"""Rows needed after a change before it is judged."""
GAIN = 0.1
"""Share of the guard's scale that is a gain, when it exceeds the noise."""
LOSS = 0.25
"""Share of the guard's scale that is a loss, when it exceeds the noise."""
ROOM = 0.25
"""Share of the guard's scale that must be excluded as a gain before it is called flat."""
HIDDEN = 1.5
"""Standard deviations of a row under which a gain cannot be told from noise in a short log, and counts as none."""
CLEAR = 3.0
"""Standard errors of the difference for a gain or a loss."""


class Worth(NamedTuple):
    """What the guard did since a step."""

    metric: str
    before: float
    now: float
    verdict: Literal["gained", "flat", "lost", "unsure"]

    @property
    def words(self) -> str:
        """As a clause."""
        return f"{self.metric} went from {self.before:.3g} to {self.now:.3g}"


def worth(view: RunView, since: int) -> Worth | None:
    """The guard now against before `since`; None when neither accuracy nor reward was ever logged."""
    for name in GUARDS:
        whole = view.series(name)
        series = whole.last(2000).finite()
        split = int(series.steps.searchsorted(since))
        if len(series) < 2 * LEAST or name == "accuracy/val" and len(series) - split < 3:
            continue
        if split == 0 and len(whole) > len(series):  # it began before the window: compare with the first rows
            return _worth(view, name, finite(whole.values[:20]), series.values, since)
        split = max(split, min(20, len(series) // 3))
        return _worth(view, name, series.values[max(0, split - STRETCH) : split], series.values[split:], since)
    return None


def _worth(view: RunView, name: str, earlier: np.ndarray, later: np.ndarray, since: int) -> Worth:
    tail = later[-max(10, min(STRETCH, len(later) // 2)) :]
    near = earlier[-15:]
    if not len(near) or not len(tail):
        return Worth(name, np.nan, np.nan, "unsure")
    before, now = mean(near), mean(tail)
    reward = progress(view)
    enough = len(later) >= LEAST
    lost = reward is not None and reward.dropped and not reward.rising and reward.drop_step >= since - STRETCH
    if not enough:
        return Worth(name, before, now, "lost" if lost else "unsure")
    noise = max(_noise(earlier), _noise(tail))
    error = noise * math.sqrt(1 / len(near) + 1 / max(len(tail), 1))
    scale = max(abs(before), 0.1)
    if name == "reward/mean" and reward is not None:
        scale = max(reward.best - reward.lowest, 0.05 * abs(reward.best))
    gain = now - before
    verdict: Literal["gained", "flat", "lost", "unsure"] = "unsure"
    if gain > max(GAIN * scale, CLEAR * error):
        verdict = "gained"
    elif lost or gain < -max(LOSS * scale, CLEAR * error):
        verdict = "lost"
    elif _rises(later[-STRETCH:], noise):
        verdict = "gained"
    elif len(later) >= 12 and trend(later[-500:]).rising:
        verdict = "unsure"  # slow and noisy, but rising
    elif gain + 2 * error < max(ROOM * scale, HIDDEN * step_noise(later[-STRETCH:])):
        verdict = "flat"
    return Worth(name, before, now, verdict)


def _rises(values: np.ndarray, noise: float) -> bool:
    """A trend over the newest rows that a comparison of levels would see late."""
    if len(values) < 12:
        return False
    slope = trend(values)
    return slope.rising and slope.change > noise


def _noise(values: np.ndarray) -> float:
    """Standard deviation of a row around the stretch's own trend, widened by its autocorrelation."""
    if len(values) < 4:
        return 0.0
    _, residuals = line(values)
    return math.sqrt(float(residuals.dot(residuals)) / (len(values) - 2)) * inflation(residuals)


def levels(series: Series, rows: int = 5) -> np.ndarray:
    """Running medians of a series: entry i is the level of the `rows` points that end at point i + rows - 1."""
    if len(series) < rows:
        return np.empty(0)
    medians: np.ndarray = np.median(np.lib.stride_tricks.sliding_window_view(series.values, rows), axis=1)
    return medians


def left(series: Series, before: float, now: float, kind: str) -> int:
    """The step at which the metric finally left `before` on its way to `now`: a fifth of the way on its own scale.

    The first step of all when that was more than 500 rows ago.
    """
    recent = series.last(500).finite()
    start, end = (float(scaled(np.array([value]), kind)[0]) for value in (before, now))
    mark = unscaled(start + 0.2 * (end - start), kind)
    held = (recent.values <= mark if now > before else recent.values >= mark).astype(float)
    inside = (np.convolve(held, np.ones(5), "valid") >= 3).nonzero()[0]  # where a median of five is inside
    if not len(inside):
        return int(series.steps[0])
    return int(recent.steps[min(int(inside[-1]) + 3, len(recent) - 1)])  # the middle of the window that follows


def sudden(series: Series, onset: int, kind: str) -> bool:
    """Whether a change looks more like a step between two rows than like a ramp: a policy does not learn within one
    row.

    Other prompts, another limit or other sampling move a metric in one row; a policy takes several. The rows around the
    onset are compared with a step, a ramp of 16 and one of 40 rows at every place, and the best fit decides.
    """
    split = int(series.steps.searchsorted(onset))
    near = scaled(finite(series.values[max(0, split - 30) : split + 45]), kind)
    near = near - near.mean() if len(near) else near
    if len(near) < 12 or not near.any():
        return False
    rows = np.arange(len(near))
    explained = []
    for width in (1, 16, 40):
        shapes = np.clip((rows - rows[3:-3, None]) / width + 0.5, 0.0, 1.0)
        shapes -= shapes.mean(axis=1, keepdims=True)
        fits = shapes @ near / np.sqrt((shapes * shapes).sum(axis=1))
        explained.append(float(np.abs(fits).max()))
    return explained[0] >= max(explained[1:])


STRAYS = 0.2
"""Share of the rows since its arrival in which a level may be away again."""


def unheard_of(series: Series, onset: int, before: float, now: float) -> bool:
    """Whether the 300 rows before the onset never came near the level, and it has stayed on its side since.

    Near is three quarters of the way, in more than one row of twenty. Periodic data and a metric that wanders by itself
    come back; a change that counts does not.
    """
    split = int(series.steps.searchsorted(onset))
    past, since = series.values[max(0, split - 300) : split], series.values[split:][-300:]
    past, beyond = past[np.isfinite(past)], since[np.isfinite(since)] > (before + now) / 2
    up = now > before
    most = now - 0.25 * (now - before)
    if len(past) >= 5 and np.count_nonzero(past >= most if up else past <= most) > 0.05 * len(past):
        return False
    arrived = beyond if up else ~beyond
    first = int(np.argmax(arrived)) if len(arrived) else 0
    return bool(np.count_nonzero(~arrived[first:]) <= STRAYS * (len(arrived) - first))


def last_came(series: Series, onset: int, before: float, now: float) -> int:
    """When a level that rose in waves arrived for the last time: the first step, from the onset, that is half of the
    way and since which it has been there but for a few rows. The onset itself where it never stayed."""
    split = int(series.steps.searchsorted(onset))
    there = series.values[split:][-300:] > (before + now) / 2
    since = np.cumsum(~there[::-1])[::-1] <= STRAYS * np.arange(len(there), 0, -1)
    rows = (there & since).nonzero()[0]
    return int(series.steps[len(series) - len(there) + int(rows[0])]) if len(rows) else onset


def smoothed(series: Series) -> Series:
    """Medians of every five neighbours: where a row is one prompt's answers, rows differ widely by chance."""
    known = series.finite()
    if len(known) < LEVEL:
        return known
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(known.values, LEVEL), axis=1)
    return Series(known.steps[LEVEL // 2 : -(LEVEL // 2)], windows[:, LEVEL // 2])


def first_level(view: RunView, series: Series) -> float:
    """The level of the first rows: a cheap check before `drift` is computed."""
    first = int(series.steps.searchsorted(view.baseline_start()))
    return median(series.values[first : first + 10]) if len(series) > first else np.nan
