"""Whether no gain is visible in a reward too noisy, or a run too short, to prove that there is none: a hint.

`stagnation` requires proof. A user who looks at a hundred noisy rows without a trend wants to know it all the same, and
what would settle it. Three cases qualify, each only where growth, if any, would have shown: no trend over the whole
run; none since it rose; a curve that has almost reached its limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stabilizer.core.stats import Trend, inflation, mean, trend
from stabilizer.runs.history import RunView, Series

LEAST_ROWS = 20
"""Rows below which nothing is reported."""
FEW_ROWS = 40
"""Rows below which only a run that never gained is reported, and only where half of its level would have shown."""
LEAST_STRETCH = 30
"""Rows since a rise below which nothing is reported."""
LEAST_STEPS = (30, 150)
"""Steps below which nothing is reported: at least and at most, between them a third of the plan where there is one."""
TINY = 1e-200
"""Range of a reward that is too small to divide by."""
MOST_ROWS = 2000
"""Rows beyond which no hint is given: the run has shown what it can, and the test would cost too much per row."""
POINTS = 240
"""Points that a run is averaged to."""
UNSEEN = (1.0, 0.5)
"""Standard errors by which a gain over the whole run, or since a rise, may exceed zero and still count as unseen."""
STIRS = 1.5
"""The same for the newest third, where a run that begins to rise shows it first."""
SLIGHT = 0.05
"""Share of the level (or of the spread of rewards, where that is more) under which a gain is slight, however clear."""
HARDLY = 0.15
"""Share of the earlier gain that hardly justifies continuing, if made again over as many rows as the run has had."""
HALF = 0.5
"""Share of the earlier pace that the rows since must be able to show."""
ROSE = 3.0
"""Standard errors by which a run must have risen for the rest to be judged separately."""
REACHED = 0.95
"""Share of the way to the limit of a curve, by its best fit ..."""
REACHED_AT_LEAST = 0.88
"""... and by the slowest fit that is one standard error worse."""
ARRIVED = 0.9
"""Share of the way from which the curve counts as level."""
TIMES = np.geomspace(0.03, 3, 40)
"""Time constants of the curves that are tried, in lengths of the run."""
SETTLED = 0.3
"""Share of the whole gain that the newer half may still promise, continued for as long as the run has had."""


class Unseen(NamedTuple):
    """A stretch without a visible gain."""

    rows: int
    onset_step: int
    change: Trend
    level: float
    grew: bool
    more: float
    """Multiple of the rows, or of the batch, that would tell a relevant gain from none."""
    reached: float = 0.0
    """Share of the way to the limit of the curve, where that is the reason; else 0."""


def unseen(view: RunView, series: Series, spread: Callable[[RunView, Series], float]) -> Unseen | None:
    """The first of the three cases that holds; `spread` returns the deviation of a single reward."""
    recent = series.between(view.baseline_start(), view.step).last(MOST_ROWS + 1).finite()
    if not LEAST_ROWS <= len(recent) <= MOST_ROWS or recent.steps[-1] - recent.steps[0] < _least_steps(view):
        return None
    width = math.ceil(len(recent) / POINTS)
    extra = len(recent) % width
    steps, values = recent.steps[extra::width], recent.values[extra:].reshape(-1, width).mean(1)
    if not values.max() - values.min() > TINY:
        return None
    newest = trend(values[-(len(values) // 3) :])
    if len(recent) < FEW_ROWS:
        if newest.change > STIRS * _error(newest):
            return None
        return _never(steps, values, width, spread(view, series), HALF)
    found = _levelled(steps, values, width)
    if found is None and newest.change <= STIRS * _error(newest):
        found = _since_rise(steps, values, width) or _never(steps, values, width, spread(view, series))
    return found


def _least_steps(view: RunView) -> float:
    planned = view.about("steps")
    least, most = LEAST_STEPS
    return min(max(least, planned / 3), most) if isinstance(planned, int) else least


def _never(steps: np.ndarray, values: np.ndarray, width: int, spread: float, most: float = 1.0) -> Unseen | None:
    """No gain over the whole run, although a gain of this share of its level, or of the spread of rewards, is
    excluded."""
    change, level = trend(values), mean(values)
    size = max(abs(level), spread)
    if not change.high > change.low:
        return None  # a constant number is no measurement
    if change.falling or change.high > most * size or change.change > max(UNSEEN[0] * _error(change), SLIGHT * size):
        return None
    before = trend(values[: 3 * len(values) // 4])  # one test of many passes by chance; two that agree rarely do
    if before.change > max(_error(before), SLIGHT * size):
        return None
    more = ((change.high - change.change) / (HALF * HALF * size)) ** 2
    return Unseen(len(values) * width, int(steps[0]), change, level, False, more)


def _since_rise(steps: np.ndarray, values: np.ndarray, width: int) -> Unseen | None:
    """No gain over the newer part of a run that rose before, although half the earlier pace would have shown."""
    count = len(values)
    head = values[: max(5, count // 8)]
    for rows in (2 * count // 3, count // 2, count // 3):
        late = values[-rows:]
        change = trend(late)
        error = _error(change)
        gain = mean(late) - mean(head)
        if rows < LEAST_STRETCH or change.falling:
            continue
        if not gain > ROSE * error * math.sqrt(rows / 12) * math.sqrt(1 / len(head) + 1 / rows):
            continue
        pace = gain / (count - rows / 2 - len(head) / 2)
        if change.high > HALF * pace * rows:
            continue
        if change.change > max(UNSEEN[1] * error, HARDLY * gain * rows / count):
            continue
        more = ((change.high - change.change) / (SETTLED * gain * rows / count)) ** 2
        return Unseen(rows * width, int(steps[-rows]), change, float(late.mean()), True, more)
    return None


def _levelled(steps: np.ndarray, values: np.ndarray, width: int) -> Unseen | None:
    """The exponential that fits best has almost reached its limit, and so has any that fits about as well."""
    count = len(values)
    shapes, power = _curves(count)
    centred = values - mean(values)
    rise = shapes.dot(centred) / power
    loss = float(centred.dot(centred)) - rise * rise * power
    loss[rise <= 0] = np.inf
    best = int(np.argmin(loss))
    if not rise[best] > 0 or TIMES[best] > _time(REACHED):
        return None
    residuals = centred - rise[best] * shapes[best]
    variance = float(residuals.dot(residuals)) / (count - 3) * inflation(residuals) ** 2
    gain = float(rise[best]) * (1 - math.exp(-1 / TIMES[best]))
    if not gain >= 2 * ROSE * math.sqrt(variance / power[best]):
        return None
    slowest = float(TIMES[loss <= loss[best] + variance].max())
    since = int(math.log(1 / (1 - ARRIVED)) * TIMES[best] * count)
    half, late = trend(values[count // 2 :]), values[min(since, count - 15) :]
    if slowest > _time(REACHED_AT_LEAST) or 2 * half.change > SETTLED * gain or half.falling:
        return None
    change = trend(late)
    return Unseen(
        len(late) * width, int(steps[-len(late)]), change, float(late.mean()), True, 1.0, 1 - math.exp(-1 / TIMES[best])
    )


def _time(share: float) -> float:
    """Time constant, in lengths of the run, of an exponential that has come this far."""
    return -1 / math.log(1 - share)


@lru_cache(maxsize=256)
def _curves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The curve of each time constant, centred, with its power."""
    shapes = 1 - np.exp(-(np.arange(count) + 1) / count / TIMES[:, None])
    shapes -= shapes.mean(1, keepdims=True)
    return shapes, np.einsum("ij,ij->i", shapes, shapes)


def _error(change: Trend) -> float:
    """One standard error of a change."""
    return (change.high - change.change) / 1.96
