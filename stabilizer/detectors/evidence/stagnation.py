"""Whether the reward is flat: a hint, and three ways to be sure.

A hint weighs all plausible learning curves (`growth`) and asks for the chance that more training gains anything that
matters. To be sure needs more, because no visible growth does not mean no growth.

If its trend continued, it would gain almost nothing (`_still`); growth broke off at the end (`_broken`); or the run
rose for a while and has been flat since (`_elbow`), which shows among noise too large for the other two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stabilizer.core.stats import Trend, centred_rows, median, step_noise, trend
from stabilizer.detectors.evidence.growth import growth
from stabilizer.detectors.evidence.halt import halt
from stabilizer.detectors.evidence.progress import RECENT, Progress, progress
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
BROKEN = 0.3
"""Share of the earlier pace that the newest rows must clearly have missed, for the end of growth to be a break and
not the bend of a saturating curve. One that is e^-x from its end keeps e^(-3x/8) of its pace from the two quarters
before to the newest quarter, which is more than this until 96 % of everything was learned."""
ONE_SIDED = 1.645 / 1.96
"""Factor that shortens a two-sided 95 % interval where only its upper end matters."""
BREAK = 90
"""Steps without growth that count as a break at least: waves of the data are as long."""
LONGEST = 5000
"""Rows looked back on for a bend, so that a row costs no more at the end of a long run than at its beginning."""
LEAST_RISE = 15
"""Points that a rise must have had, to have a pace."""
BINS = 240
"""Points that a whole run is averaged to."""
BEND = 0.4
"""Share of the run within which it must have bent, for the rest to be most of it."""
SURE = 1.5
"""Factor that widens a 95 % interval where the best of many bends must show that the run rose before it."""
AGAIN = 0.3
"""Share of a rise that would justify continuing if gained again over as many rows as the run has had."""
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
    `MATTERS` of the gain so far. Or growth broke off (`_broken`), which shorter stretches show. A run that never gained
    anything is judged as a whole: the interval, continued for as long again, must lie within `STANDS` of its level and
    within its noise. A mere hint (`standstill`) proves nothing else.
    """
    return view.once(_stagnation)


def standstill(view: RunView) -> Stagnation | None:
    """`stagnation`, or a hint of it (`unseen`)."""
    return stagnation(view) or view.once(_hint)


def _hint(view: RunView) -> Stagnation | None:
    reward = progress(view)
    if reward is None or reward.solved or reward.dropped:
        return None
    grown = growth(view, reward.metric)
    if grown is None or grown.steps[-1] - grown.steps[0] < _least_steps(view):
        return None
    series = view.series(reward.metric)
    rose, size = grown.rose, max(abs(grown.level), spread(view, series))
    gain = grown.gain / rose if rose > 0.5 else 0.0
    matters = rose * ARRIVED * max(gain, size) + (1 - rose) * SIZABLE * size
    chance = grown.chance(matters)
    if chance >= UNLIKELY:
        return None
    onset = grown.flat_since(matters)
    since = series.between(onset, view.step).finite()
    if len(since) < LEAST_ROWS:
        return None
    change, reached = trend(since.last(STILL_MOST).values), grown.reached() if gain > matters else 0.0
    if change.rising and not reached:
        return None
    level = median(since.last(RECENT).values)
    return Stagnation(len(since), onset, change, level, gain > matters, False, chance, reached)


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
    if bent := _elbow(view, series):
        return Stagnation(*bent, median(series.last(STILL_MOST // 4).finite().values), True)
    gain = median(series.last(RECENT).finite().values) - reward.start
    found = _risen(view, series, reward, gain) if gain > 2 * reward.noise else _never_rose(view, series, reward)
    if found is None and (stopped := halt(view, series, BREAK)):
        return Stagnation(*stopped, median(series.last(RECENT).finite().values), True)
    return found or _drowned(view, series)


def _risen(view: RunView, series: Series, reward: Progress, gain: float) -> Stagnation | None:
    """A run that gained beyond the noise of a row, and has been flat since."""
    matters = float(np.clip(MATTERS[1] * 150 / reward.rows, *MATTERS))
    for share in (2, 4):  # the newer half, or the newer three quarters
        rows = min(max(STILL, reward.rows - reward.rows // share), STILL_MOST)
        if found := _still(view, series, rows, matters * gain * rows / reward.rows):
            return Stagnation(rows, *found, reward.start + gain, True)
    for share in (4, 3):
        rows = min(reward.rows // share, STILL_MOST)
        if found := _broken(view, series, rows, BROKEN * gain * rows / reward.rows):
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


def _drowned(view: RunView, series: Series) -> Stagnation | None:
    """No visible gain among noise that hides all but large ones, over the whole run or its newer three quarters.

    Rows of a few prompts are so noisy that no interval is narrow. But a gain that matters beside the spread of single
    rewards (`HOPE`) shows all the same, and a real one would show as at least half of its standard error.
    """
    recent = series.between(view.baseline_start(), view.step).last(STILL_MOST).finite()
    count = len(recent)
    if count < SURELY or recent.steps[-1] - recent.steps[0] < LONG:
        return None
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
        first, now = recent.values[: count // 8], values[rows // 3 :]
        error = noise * math.sqrt(1 / len(first) + 1 / len(now))
        grew = rows < count and float(now.mean() - first.mean()) > 3 * error
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


def _broken(view: RunView, series: Series, rows: int, band: float) -> tuple[int, Trend] | None:
    """First step and trend of the newest rows, when growth broke off there: their largest possible gain is less than
    the band and than `BROKEN` of what the twice as many rows before gained at the same learning rate."""
    if rows < STILL // 2 or len(series) < 3 * rows or series.steps[-1] - series.steps[-rows] < BREAK:
        return None
    recent = series.last(3 * rows + rows // 4).finite().last(3 * rows)
    if len(recent) < 3 * rows or recent.steps[0] < view.baseline_start():
        return None
    before, newest = recent.values[: 2 * rows], recent.values[2 * rows :]
    half = rows // 2
    moved = float(newest[-half:].mean() - newest[:half].mean())
    pace = float(before[rows:].mean() - before[:rows].mean())
    if not 2 * moved < band or not pace > 0:
        return None  # clearly moving: no interval is needed
    change, grew = trend(newest), trend(before)
    most = change.change + ONE_SIDED * (change.high - change.change)
    pace = min(grew.change / 2, trend(before[rows:]).change) * _rate(view, recent.steps, 2 * rows)
    band = min(band, BROKEN * pace)
    if not grew.rising or change.rising or change.falling or not -band / 2 < change.change <= most < band:
        return None
    return int(recent.steps[2 * rows]), change


def _elbow(view: RunView, series: Series) -> tuple[int, int, Trend] | None:
    """Rows, first step and trend since the run bent, when it rose before and its possible gain since is clearly less
    than `BROKEN` of the smallest plausible pace before. After a fast start that pace is no yardstick, so the gain,
    continued for as long as the run has had, must also be less than `AGAIN` of the gain before.

    The bend is that of the two joined lines that fit the run best. A naturally bending curve is nowhere that flat
    before almost everything is learned, and the intervals include what noise could hide of a smaller growth.
    """
    recent = series.between(view.baseline_start(), view.step).last(LONGEST).finite()
    if len(recent) < STILL + LEAST_RISE or recent.steps[-1] - recent.steps[0] < BREAK:
        return None
    steps, values = _averaged(recent)
    bends, shapes, power = _bends(len(values))
    if not len(bends):
        return None
    at = int(bends[np.argmax(shapes.dot(values) ** 2 / power)])
    since = len(recent) * (len(values) - at) // len(values)
    if since < STILL or steps[-1] - steps[at] < BREAK:
        return None
    before, after = trend(values[: at + 1]), trend(values[at:])
    least = before.change - SURE * (before.change - before.low)
    if not least > 0 or after.rising or after.falling:
        return None
    pace = least / at * _rate(view, steps, at)
    most = after.high / (len(values) - 1 - at)
    if not most < BROKEN * pace or not most * len(values) < AGAIN * before.change:
        return None
    return since, int(steps[at]), after


def _averaged(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """First step and mean of neighbouring rows, grouped so that at most `BINS` remain, the newest groups complete."""
    width = math.ceil(len(series) / BINS)
    extra = len(series) % width
    return series.steps[extra::width], series.values[extra:].reshape(-1, width).mean(1)


@lru_cache(maxsize=64)
def _bends(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where a run of this many points can have bent, and per bend the part of a joined line that no straight line
    has."""
    rows, power = centred_rows(count)
    places = np.linspace(LEAST_RISE, BEND * count, 14).astype(int).tolist() if BEND * count > LEAST_RISE else []
    bends = np.array(sorted(set(places)), int)  # `np.unique` takes seven milliseconds to import when first called
    shapes = np.maximum(np.arange(count) - bends[:, None], 0.0)
    shapes = shapes - shapes.mean(1, keepdims=True)
    shapes = shapes - np.outer(shapes.dot(rows) / power, rows)
    return bends, shapes, np.einsum("ij,ij->i", shapes, shapes)


def _rate(view: RunView, steps: np.ndarray, split: int) -> float:
    """The learning rate since a row relative to that of the rows before, where it fell; else 1."""
    rates = view.series("optim/lr")
    before = rates.between(int(steps[0]), int(steps[split]) - 1).finite().values
    since = rates.between(int(steps[split]), int(steps[-1])).finite().values
    if not len(before) or not len(since) or not before.mean() > 0:
        return 1.0
    return min(1.0, float(since.mean() / before.mean()))
