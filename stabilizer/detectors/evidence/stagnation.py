"""Whether the reward is flat: one question, answered as a hint or for sure.

All plausible learning curves are weighed by the run (`growth`). The question is how likely as much training again gains
anything that matters. A hint needs a small chance. To be sure needs a smaller one that has lasted, because no visible
growth does not mean no growth: after a rise with nearly all of the weight on curves that have stopped, and otherwise
with a trend whose interval excludes such a gain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from stabilizer.core.stats import Trend, median, step_noise, trend
from stabilizer.detectors.evidence.growth import Growth, growth
from stabilizer.detectors.evidence.progress import RECENT, progress
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
    sure: bool
    """Whether it is more than a hint."""
    chance: float
    """The chance that as much training again gains something that matters."""
    reached: float
    """The share of the way to the limit of a curve that levels off; else 0."""


SIZABLE = 0.2
"""Share of the level (or of the spread of rewards, where that is more) that a gain must have to matter in a run that
never rose, if as much training again brings it: Cohen's convention for a small effect."""
ARRIVED = 0.05
"""The same after a rise, and at least this share of the gain so far: a curve has arrived when the rest is smaller."""
UNLIKELY, SURELY = 0.1, 0.05
"""Chance of such a gain below which a reward has probably, and has surely, stopped rising."""
LEAST_ROWS, STILL = 10, 30
"""Rows without growth that are a hint at least, and that are sure at least."""
LEAST_STEPS = (30, 100)
"""Steps of a run below which there is no hint: at least and at most, between them a third of the plan, if there is
one."""
BREAK, SETTLED = 90, 0.6
"""Steps without growth that are sure at least, because waves of the data are as long. In a shorter run the share of it
that is enough after a rise, where the interval of the trend excludes a gain that matters."""
STOPPED = 0.98
"""Share of the weight of all curves that must belong to stopped ones after a rise. On the develop half of the detection
benchmark, 0.95 raised 32 warnings in 240 healthy runs, and 0.98 raised 22, with 102 and 100 of 126 plateaus found."""
STILL_MOST = 500
"""Most rows looked at."""
PATIENCE = 150
"""Steps a run gets to begin to rise where its planned length is unknown."""


def patience(view: RunView, unplanned: int = PATIENCE) -> float:
    """Steps a run gets to begin to rise: a third of its planned ones, 100 at least, but half of a short plan."""
    planned = view.about("steps")
    return min(max(100, planned / 3), planned / 2) if isinstance(planned, int) else unplanned


def stagnation(view: RunView) -> Stagnation | None:
    """The stretch in which the reward has certainly been flat; None while that is only likely."""
    found = standstill(view)
    return found if found is not None and found.sure else None


def standstill(view: RunView) -> Stagnation | None:
    """The stretch in which the reward has probably been flat."""
    return view.remember(_standstill)


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
    rose, size = grown.rose, max(abs(grown.level), _spread(view, view.series(metric)))
    gain = grown.gain / rose if rose > 0.5 else 0.0
    matters = rose * ARRIVED * max(gain, size) + (1 - rose) * SIZABLE * size
    return Prospect(grown, gain, matters)


def _standstill(view: RunView) -> Stagnation | None:
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
    grew, narrow, age = ahead.gain > matters, change.high < matters, view.step - onset
    settled = grew and narrow and age >= SETTLED * (grown.steps[-1] - grown.steps[0])
    sure = len(since) >= STILL and (age >= BREAK or settled) and ahead.chance <= SURELY
    sure = sure and (grown.stopped >= STOPPED if grew else narrow)
    sure = bool(sure) and not (reward.rising or change.rising or change.falling)
    level = median(since.last(RECENT).values)
    return Stagnation(len(since), onset, change, level, grew, sure, ahead.chance, reached)


def _least_steps(view: RunView) -> float:
    planned = view.about("steps")
    least, most = LEAST_STEPS
    return min(max(least, planned / 3), most) if isinstance(planned, int) else least


def _spread(view: RunView, series: Series) -> float:
    """Deviation of a single reward: the logged one, within groups or over a batch of a few prompts, plus the noise
    that the mean of a row has beside it."""
    logged = 0.0
    for name in ("reward/std", "reward/std_group"):
        values = view.series(name).last(RECENT).finite().values
        if len(values):
            logged = max(logged, median(values))
    return math.hypot(logged, step_noise(series.last(200).finite().values))
