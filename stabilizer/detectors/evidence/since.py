"""What came of a change: did the reward rise with it, fall with it, or neither; and when did it begin?

A metric that left its trend is news only with further evidence. For the slow failures of a policy that is the reward on
both sides of the onset. The levels share the noise that the reward has by itself, so a lumpy or wandering reward proves
nothing either way.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stabilizer.core.stats import finite, inflation, line, mean, median, median_scale, step_noise, trend
from stabilizer.detectors.evidence.departure import scaled
from stabilizer.detectors.evidence.progress import LEVEL, level, progress
from stabilizer.runs.history import RunView, Series

BEFORE = 30
"""Rows before the onset that define the earlier reward."""
AFTER = 15
"""Newest rows that define the present reward."""
YOUNG = 60
"""Rows of a run up to which the trend of its newest rows is that of the whole run, and says nothing about recent
rows."""
SLIGHT = 0.05
"""Share of the level under which a gain counts as none."""
LATE = 7
"""Rows in which a gain had to show, in such a young run ..."""
DATED = 2
"""... starting this many rows after a step, because an onset is known to within a few rows only."""
SHORT = (15, 100)
"""Rows of a log whose course since its first row is judged: fewer than seven in either half are no trend, and in more
rows there is an earlier level to compare with."""
DOUBLED = 2.0
"""Factor by which a metric must have moved in such a log."""
GAINED = 0.2
"""Share of its first level by which the reward must have grown meanwhile to have gained."""
PACE = (300, 200)
"""Most rows before and after the onset over which the reward's pace is compared."""
_KNOTS = 20
_POINTS = 64


class Outcome(NamedTuple):
    """The reward's level on both sides of a step, and the standard error of their difference."""

    metric: str
    before: float
    now: float
    error: float
    rows: int
    """Rows since the step."""

    @property
    def paid(self) -> bool:
        """It rose, more likely than not by a relevant amount: the run gets the benefit of the doubt."""
        change = self.now - self.before
        return bool(change > self.error and (change > 0.1 * abs(self.before) or change > 2 * self.error))

    @property
    def fell(self) -> bool:
        """It fell beyond its noise, and by at least a tenth."""
        return bool(self.before - self.now > max(4 * self.error, 0.1 * abs(self.before)))


def outcome(view: RunView, step: int) -> Outcome | None:
    """What the reward did since `step`; None without 5 rows before it and 5 after."""
    reward = progress(view)
    if reward is None:
        return None
    series = view.series(reward.metric).last(1000)
    split = int(series.steps.searchsorted(step))
    rows = len(series) - split
    before, after = finite(series.values[max(0, split - BEFORE) : split]), finite(series.values[split:][-AFTER:])
    if len(before) < 5 or len(after) < 5:
        return None
    spread, was = 1.0, float(before.mean())
    if len(before) >= 12:
        spread, slope = inflation(before - was), trend(before)
        was += slope.change / 2 if slope.rising or slope.falling else 0.0  # the level it had reached, not its mean
    noise = max(reward.noise, step_noise(before), step_noise(after), median_scale(before)[1]) * spread
    error = noise * float(np.sqrt(1 / len(before) + 1 / len(after)))
    return Outcome(reward.metric, was, float(after.mean()), error, rows)


def unpaid(view: RunView, step: int) -> bool:
    """Whether no gain is visible since a step or over the newer half of the run. That is no proof that there is
    none."""
    reward = progress(view)
    if reward is None or not reward.idle:
        return False
    change = outcome(view, step)
    if change is None or change.paid:
        return False
    rows = finite(view.series(reward.metric).between(step, view.step).last(1000).values)
    slope = trend(rows) if len(rows) >= 12 else None
    return slope is not None and slope.change <= (slope.high - slope.change) / 4  # half a standard error


def stalled(view: RunView, step: int) -> Outcome | None:
    """What came of a change in a young run, when no gain is visible: none over the rows since, by one standard error,
    and none over the level before, by two, or only a few hundredths of it.

    A run that rose until then and has been flat since still rises as a whole, and is above its earlier mean.
    """
    reward = progress(view)
    if reward is None or reward.rows > YOUNG:
        return None
    series = view.series(reward.metric).between(view.baseline_start(), view.step).finite()
    split = int(series.steps.searchsorted(step)) + DATED
    before, after = series.values[max(0, split - BEFORE) : split], series.values[split:]
    if len(before) < 5 or len(after) < LATE:
        return None
    course = trend(after)
    noise = max(step_noise(before), step_noise(after))
    error = noise * float(np.sqrt(1 / 5 + 1 / len(after)))
    was, now, rise = mean(before[-5:]), mean(after), trend(before)
    if rise.rising:  # the level it had reached
        was = max(was, min(mean(before) + rise.change / 2, float(before.max())))
    little = SLIGHT * abs(was)
    if course.change > max((course.high - course.change) / 1.96, little) or now - was > max(2 * error, little):
        return None
    return Outcome(reward.metric, was, now, error, len(after))


def since_first(view: RunView, step: int) -> Outcome | None:
    """`outcome` for what began in a run's first rows: the up to 5 rows until `step` are what could be lost.

    One row is enough, because a run begins with what it had without learning. None without 5 rows after.
    """
    reward = progress(view)
    if reward is None:
        return None
    series = view.series(reward.metric)
    first, split = series.steps.searchsorted(view.baseline_start()), series.steps.searchsorted(step, side="right")
    before, after = finite(series.values[max(first, split - 5) : split]), series.values[split:]
    rows, after = len(after), finite(after[-AFTER:])
    if not len(before) or len(after) < 5:
        return None
    noise = max(reward.noise, step_noise(after))
    error = noise * float(np.sqrt(1 / len(before) + 1 / len(after)))
    return Outcome(reward.metric, mean(before), mean(after), error, rows)


def slowed(view: RunView, step: int) -> bool:
    """Whether the reward rose before `step` and has since gained less than a third of what that pace predicts.

    A level cannot show that: a flat reward has not fallen, and one that rose in the rows before is above their mean.
    The pace must be beyond doubt, and the missing gain beyond the noise of both sides.
    """
    reward = progress(view)
    if reward is None or reward.rising:
        return False
    series = view.series(reward.metric).last(1000).finite()
    split = int(series.steps.searchsorted(step))
    first = max(0, split - PACE[0], int(series.steps.searchsorted(view.baseline_start())))
    before, after = series.values[first:split], series.values[split : split + PACE[1]]
    count, later = len(before), len(after)
    if count < 20 or later < 10:
        return False
    pace, residuals = line(before)
    noise = float(residuals.std()) * inflation(residuals)
    expected = pace * later / 2  # by the middle of what came after
    gained = float(after.mean()) - (float(before.mean()) + pace * count / 2)
    error = noise * float(np.sqrt(1 / later + 4 / count + 3 * (later / count) ** 2 / count))
    return expected > 4 * error and gained + error < expected / 3 and not trend(after).rising


class Steady(NamedTuple):
    """A positive metric that has moved one way since the first row of a short log."""

    rows: int
    step: int
    """The first step."""
    was: float
    now: float


def steady(view: RunView, name: str, *, up: bool, material: float) -> Steady | None:
    """What such a metric did, if it doubled or halved and still moves; None elsewhere."""
    series = view.series(name).between(view.baseline_start(), view.step).finite()
    rows = len(series)
    if not SHORT[0] <= rows <= SHORT[1]:
        return None
    was, now = median(series.values[:LEVEL]), level(series)
    low, high = (was, now) if up else (now, was)
    if not 0 < low <= min(high / DOUBLED, high - material):
        return None
    logs = scaled(series.values, "positive")
    halves = trend(logs[: rows // 2]), trend(logs[rows // 2 :])
    if not all(half.rising if up else half.falling for half in halves):
        return None
    return Steady(rows, int(series.steps[0]), was, now)


def gained_nothing(view: RunView) -> tuple[bool, str] | None:
    """Whether the reward of a short log falls, and what it does in words; None where it gains or is at its ceiling."""
    reward = progress(view)
    if reward is None or reward.solved or reward.rising:
        return None
    rewards = view.series(reward.metric).between(view.baseline_start(), view.step).finite().values
    if len(rewards) < SHORT[0]:
        return None
    course = trend(rewards)
    if course.rising or course.change > GAINED * abs(median(rewards[:LEVEL])):
        return None
    did = "falls" if course.falling else "has gained nothing so far"
    return course.falling, f"{reward.metric} ({reward.now:.3g}) {did}"


def began(series: Series, kind: str = "real") -> int:
    """The step at which the newest 300 rows began to move: the first knot of level, ramp, level, by least squares.

    `change_step` finds the middle of a ramp; a cause must be older than that.
    """
    recent = series.last(300).finite()
    count = len(recent)
    if count < 8:
        return int(series.steps[0]) if len(series) else 0
    values = scaled(recent.values, kind)
    middle, scale = median_scale(values)
    reach = max(6 * scale, abs(median(values[-5:]) - middle))
    values = np.clip(values, middle - reach, middle + reach)  # one extreme row is no ramp
    row = _first_knot(values, _fine(count, _first_knot(values, _coarse(count))))
    return int(recent.steps[row])


def _first_knot(values: np.ndarray, shapes: _Ramps) -> int:
    """The knot at which the best of some ramps begins."""
    count = len(values)
    rows = np.linspace(0, count - 1, min(count, _POINTS))
    points = np.interp(rows, np.arange(count), values) if count <= _POINTS else _binned(values, _POINTS)
    points = points - mean(points)
    return int(shapes.first[int(np.argmax((shapes.ramps @ points) ** 2 / shapes.power))])


class _Ramps(NamedTuple):
    """Ramps between two of some knots (or the end), where they begin, and their power."""

    first: np.ndarray
    ramps: np.ndarray
    power: np.ndarray


@lru_cache(maxsize=8)
def _coarse(count: int) -> _Ramps:
    knots = np.linspace(0, count - 2, min(_KNOTS, count - 1))
    return _ramps(count, knots, np.append(knots[1:], count - 1))


@lru_cache(maxsize=8)
def _fine(count: int, row: int) -> _Ramps:
    """Ramps that begin near a row: a lasting failure asks for the same ones at every step."""
    width = max(2, count // _KNOTS)
    low = max(0, row - width)
    return _ramps(count, np.arange(low, min(count - 1, row + width) + 1), np.linspace(row, count - 1, 12))


def _ramps(count: int, knots: np.ndarray, ends: np.ndarray) -> _Ramps:
    rows = np.linspace(0, count - 1, min(count, _POINTS))
    first, last = (grid.ravel() for grid in np.meshgrid(knots, ends, indexing="ij"))
    keep = last >= first + 1
    first, last = first[keep], last[keep]
    ramps = np.clip((rows[None] - first[:, None]) / (last - first)[:, None], 0, 1)
    ramps -= ramps.mean(1, keepdims=True)
    return _Ramps(first, ramps, np.maximum(np.einsum("ij,ij->i", ramps, ramps), 1e-12))


def _binned(values: np.ndarray, bins: int) -> np.ndarray:
    """Means of equal stretches."""
    edges = np.linspace(0, len(values), bins + 1).astype(int)
    return np.add.reduceat(values, edges[:-1]) / np.diff(edges)
