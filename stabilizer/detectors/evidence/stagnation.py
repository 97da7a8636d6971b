"""Whether the reward is flat: a hint, and four ways to be sure.

All plausible learning curves are weighed by the run (`growth`). A hint asks for the chance that more training gains
anything that matters. To be sure needs more, because no visible growth does not mean no growth: nearly all of the
weight belongs to curves that stopped (`_stopped`); the trend, continued, would gain almost nothing (`_risen`,
`_never_rose`); or a run dominated by noise shows no gain over most of its length (`_drowned`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stabilizer.core.stats import Trend, median, step_noise, trend
from stabilizer.detectors.evidence.growth import Growth, growth
from stabilizer.detectors.evidence.progress import LEVEL, RECENT, Progress, progress
from stabilizer.runs.history import RunView, Series


@dataclass(frozen=True, slots=True)
class Stagnation:
    """A stretch in which the reward was flat."""

    rows: int
    onset_step: int
    change: Trend
    level: float
    grew: bool
    """Whether the run had gained anything before."""
    sure: bool = True
    """Whether it is more than a hint."""
    chance: float = 0.0
    """For a hint: the chance that as much training again gains something that matters."""
    reached: float = 0.0
    """For a hint from a curve that levels off: the share of the way to its limit; else 0."""


SIZABLE = 0.2
"""Share of the level (or of the spread of rewards, where that is more) that a gain must have to matter in a run that
never rose, if as much training again brings it: Cohen's convention for a small effect."""
ARRIVED = 0.05
"""The same after a rise, and at least this share of the gain so far: a curve has arrived when the rest is smaller."""
UNLIKELY = 0.1
"""Chance of such a gain below which a reward has probably stopped rising."""
LEAST_ROWS = 10
"""Rows without growth that are a hint at least."""
LEAST_STEPS = (30, 100)
"""Steps of a run below which there is no hint: at least and at most, between them a third of the plan, if there is
one."""


STILL = 30
"""Rows that a reward must have been flat at least after it rose."""
SHORTEST = 40
"""Rows below which none of these tests can hold."""
STILL_EVER = 60
"""Steps, and at least half as many rows, after which a reward that never rose can be called flat."""
STILL_MOST = 500
"""Most rows looked at."""
MATTERS = (0.15, 0.2)
"""Share of the gain so far that would still be progress if reached by continuing for as long as the run has had. For
a run of 200 rows and more, and for one of 150 and fewer, because an interval is no narrower than the rows allow."""
BREAK = 90
"""Steps without growth that count as its end at least: waves of the data are as long."""
STOPPED = 0.98
"""Share of the weight of all curves that must belong to stopped ones. On the develop half of the detection benchmark,
0.95 raised 32 warnings in 240 healthy runs, and 0.98 raised 22, with 102 and 100 of 126 plateaus found."""
SURELY_OVER = 0.05
"""Chance of a gain that matters below which growth has surely stopped."""
STANDS = 0.2
"""Share of its level (or of the spread of rewards, where that is more) by which a flat reward may change."""
SURELY = 145
"""Rows without a gain below which nothing is certain in a run dominated by noise."""
PATIENCE = 150
"""Steps a run gets to begin to rise where its planned length is unknown."""
LONG = 100
"""Steps after which a run can be said to have gained nothing, however noisy it is."""
NOISY = 0.15
"""Noise of a row, in deviations of a single reward, from which noise dominates a run."""
HOPE = 0.25
"""Deviations of a single reward that such a run must clearly not have gained."""


def patience(view: RunView, unplanned: int = PATIENCE) -> float:
    """Steps a run gets to begin to rise: a third of its planned ones, 100 at least, but half of a short plan."""
    planned = view.about("steps")
    return min(max(100, planned / 3), planned / 2) if isinstance(planned, int) else unplanned


def stagnation(view: RunView) -> Stagnation | None:
    """Whether the reward has stopped moving, by a test of equivalence, so that lack of evidence is not enough.

    The stretch is the newer half of the run, or its newer three quarters (at least `STILL` rows). If its trend
    continued for as many rows as the run has had, the upper end of its 95 % interval must still gain less than
    `MATTERS` of the gain so far. Or nearly all plausible curves have stopped (`_stopped`). A run that never gained
    anything is judged as a whole: the interval, continued for as long again, must lie within `STANDS` of its level and
    within its noise. A mere hint (`standstill`) proves nothing else.
    """
    return view.remember(_stagnation)


def standstill(view: RunView) -> Stagnation | None:
    """`stagnation`, or a hint of it."""
    return stagnation(view) or view.remember(_hint)


class Prospect(NamedTuple):
    """What as much training again may still gain."""

    growth: Growth
    gain: float
    """Gain since the start, if there was one; else 0."""
    matters: float
    """Smallest gain that would justify to continue."""

    @property
    def chance(self) -> float:
        """Chance of such a gain."""
        return self.growth.chance(self.matters)


def _prospect(view: RunView, metric: str) -> Prospect | None:
    grown = growth(view, metric)
    if grown is None:
        return None
    rose, size = grown.rose, max(abs(grown.level), spread(view, view.series(metric)))
    gain = grown.gain / rose if rose > 0.5 else 0.0
    matters = rose * ARRIVED * max(gain, size) + (1 - rose) * SIZABLE * size
    return Prospect(grown, gain, matters)


def _unlikely(view: RunView, metric: str) -> bool:
    """Whether a gain that matters is unlikely."""
    ahead = view.once(_prospect, metric)
    return ahead is not None and ahead.chance < UNLIKELY


def _hint(view: RunView) -> Stagnation | None:
    reward = progress(view)
    if reward is None or reward.solved or reward.dropped:
        return None
    ahead = view.once(_prospect, reward.metric)
    if ahead is None or ahead.chance >= UNLIKELY:
        return None
    grown, matters = ahead.growth, ahead.matters
    if grown.steps[-1] - grown.steps[0] < _least_steps(view):
        return None
    onset, series = grown.flat_since(matters), view.series(reward.metric)
    since = series.between(onset, view.step).finite()
    if len(since) < LEAST_ROWS:
        return None
    change, reached = trend(since.last(STILL_MOST).values), grown.reached() if ahead.gain > matters else 0.0
    if change.rising and not reached and change.high > matters:
        return None
    level = median(since.last(RECENT).values)
    return Stagnation(len(since), onset, change, level, ahead.gain > matters, False, ahead.chance, reached)


def _stopped(view: RunView, metric: str) -> Stagnation | None:
    """A run that rose and stopped: nearly all of the weight belongs to curves that say so."""
    ahead = view.once(_prospect, metric)
    if ahead is None or ahead.growth.rose < 0.5 or ahead.growth.stopped < STOPPED or ahead.chance > SURELY_OVER:
        return None
    onset = ahead.growth.flat_since(ahead.matters)
    since = view.series(metric).between(onset, view.step).finite()
    if len(since) < STILL or view.step - onset < BREAK:
        return None
    change = trend(since.last(STILL_MOST).values)
    if change.rising or change.falling:
        return None
    return Stagnation(len(since), onset, change, median(since.last(RECENT).values), True)


def _least_steps(view: RunView) -> float:
    planned = view.about("steps")
    least, most = LEAST_STEPS
    return min(max(least, planned / 3), most) if isinstance(planned, int) else least


def _stagnation(view: RunView) -> Stagnation | None:
    reward = progress(view)
    if reward is None or len(view.series(reward.metric)) < SHORTEST:
        return None
    if reward.solved or reward.dropped or reward.rising:
        return None
    series = view.series(reward.metric)
    gain = median(series.last(RECENT).finite().values) - reward.start
    found = _risen(view, series, reward, gain) if gain > 2 * reward.noise else _never_rose(view, series, reward)
    return found or _stopped(view, reward.metric) or _drowned(view, series, reward)


def _risen(view: RunView, series: Series, reward: Progress, gain: float) -> Stagnation | None:
    """A run that gained beyond the noise of a row, and has been flat since."""
    matters = float(np.clip(MATTERS[1] * 150 / reward.rows, *MATTERS))
    for share in (2, 4):  # the newer half, or the newer three quarters
        rows = min(max(STILL, reward.rows - reward.rows // share), STILL_MOST)
        if found := _still(view, series, rows, matters * gain * rows / reward.rows):
            return Stagnation(rows, *found, reward.start + gain, True)
    return None


def _never_rose(view: RunView, series: Series, reward: Progress) -> Stagnation | None:
    """A run that is certainly where it began."""
    spacing = float(series.steps[-1] - series.steps[0]) / max(1, len(series) - 1)
    ever = max(STILL_EVER // 2, int(STILL_EVER / max(spacing, 1.0)))
    rows = min(max(ever, reward.rows * 3 // 4), STILL_MOST)
    if len(series) < rows + STILL // 3:
        return None  # `_still` needs as many
    if whole_trend(view, reward.metric).rising:
        return None  # too noisy over the stretch, clear over the run
    level = median(series.last(rows).finite().values)
    size = max(abs(level), spread(view, series))
    if found := _still(view, series, rows, min(1.5 * reward.noise, STANDS * size * rows / reward.rows)):
        return Stagnation(rows, *found, level, False)
    return None


def whole_trend(view: RunView, name: str) -> Trend:
    """The trend of a metric over the run, or over the newest rows of a long one."""
    return view.once(_whole_trend, name)


def _whole_trend(view: RunView, name: str) -> Trend:
    return trend(view.series(name).last(STILL_MOST).finite().values)


def spread(view: RunView, series: Series) -> float:
    """Deviation of a single reward: the logged one, within groups or over a batch of a few prompts, plus the noise
    that the mean of a row has beside it."""
    logged = 0.0
    for name in ("reward/std", "reward/std_group"):
        values = view.series(name).last(RECENT).finite().values
        if len(values):
            logged = max(logged, median(values))
    return math.hypot(logged, step_noise(series.last(200).finite().values))


def _drowned(view: RunView, series: Series, reward: Progress) -> Stagnation | None:
    """No visible gain among noise that hides all but large ones, over the whole run or its newer three quarters.

    Rows of a few prompts are so noisy that no interval is narrow. But a gain that matters beside the spread of single
    rewards (`HOPE`) shows all the same, and a real one would show as at least half of its standard error.
    """
    recent = series.between(view.baseline_start(), view.step).last(STILL_MOST).finite()
    count = len(recent)
    if count < SURELY or recent.steps[-1] - recent.steps[0] < LONG:
        return None
    if reward.rows > STILL_MOST and not _unlikely(view, reward.metric):
        return None  # these rows are a small part of the run
    single, noise = spread(view, series), step_noise(recent.values[-200:])
    if not noise > NOISY * single:
        return None
    for rows in (count, 3 * count // 4):
        values = recent.values[-rows:]
        change = trend(values)
        if (
            rows < SURELY
            or change.falling
            or change.high > HOPE * single
            or 4 * change.change > change.high - change.change
        ):
            continue
        now = float(values[rows // 3 :].mean())
        grew = now - reward.start > 3 * noise / math.sqrt(LEVEL)
        return Stagnation(rows, int(recent.steps[-rows]), change, float(values.mean()), grew)
    return None


def _still(view: RunView, series: Series, rows: int, band: float) -> tuple[int, Trend] | None:
    """First step and trend of the newest rows, when the interval of their change lies within the band."""
    if len(series) < rows + STILL // 3 or not band > 0:
        return None
    recent = series.last(rows + rows // 4).finite().last(rows)
    if len(recent) < rows or recent.steps[0] < view.baseline_start():
        return None
    third = rows // 3
    if abs(float(recent.values[-third:].mean() - recent.values[:third].mean())) > band:
        return None  # clearly moving: no interval is needed
    change = trend(recent.values)
    if change.rising or not -band < change.low <= change.high < band:
        return None
    return int(recent.steps[0]), change
