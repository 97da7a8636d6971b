"""Where a run is heading: what its reward tends to, whether the steps left are worth spending, what will break when.

Pure: numbers in, numbers with intervals out, None where there is nothing to say. Two questions:

`asymptote` fits saturating curves to the reward, sigmoids in the logarithm of the step (ScaleRL, arXiv 2510.13786) and
exponentials, and takes the profile of the fit as the interval: every curve that the data can't tell from the best one
counts. A curve whose bend has not been seen has no asymptote, and then none is given.

`crossing` extrapolates a trend to a level at which it does harm. Whether it grows by steps or by factors is decided by
which of the two predicts the newest fifth better from the rest; the interval is where the 90 % band of the line,
widened for autocorrelation, reaches the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from stabilizer.detectors.progress import progress
from stabilizer.runs.history import RunView
from stabilizer.signals import inflation, median, median_scale

Z90 = 1.645
"""Standard errors in a two-sided 90 % interval."""
BINS = 80
"""Rows a curve is averaged into before fitting."""
CURVE_ROWS = 40
"""Rows a curve needs before anything is fitted."""
TREND_ROWS = 60
"""Newest rows a trend is taken from."""
REACHED = 0.95
"""Share of the asymptote from which a run counts as having reached it."""
WORTH = 0.05
"""Share of the whole rise that the steps left must promise to be worth spending."""


class Interval(NamedTuple):
    """A 90 % interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Asymptote:
    """What a curve tends to, in the metric's unit."""

    start: float
    now: float
    """The fitted curve at the newest step."""
    level: float
    interval: Interval
    ahead: int
    """Steps left that `gain` is for; 0 when nobody said how long the run is to be."""
    gain: float
    gain_interval: Interval

    @property
    def reached(self) -> float:
        """Share of the way from the start to the asymptote."""
        return (self.now - self.start) / (self.level - self.start)

    @property
    def reached_at_least(self) -> float:
        """The same for the highest asymptote that the data allow."""
        return (self.now - self.start) / (max(self.interval.high, self.now) - self.start)


@dataclass(frozen=True, slots=True)
class Crossing:
    """When a metric will be at a level that does harm, if it goes on as it has been going."""

    metric: str
    model: Literal["linear", "exponential"]
    now: float
    level: float
    step: int
    earliest: int
    latest: int | None
    """None when the slowest trend that the data allow never gets there."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What there is to say of a run's future."""

    metric: str
    asymptote: Asymptote | None
    worth: Literal["yes", "no", "open"] | None
    """Whether the steps left are worth spending; None when it is not known how many there are, or what they tend to."""
    crossings: tuple[Crossing, ...]
    lines: tuple[str, ...]
    """The same in words, a sentence each."""


def forecast(view: RunView) -> Forecast | None:
    """The outlook at the view's step, or None when there is nothing to say."""
    reward = progress(view)
    if reward is None:
        return None
    series = view.series(reward.metric).between(view.baseline_start(), view.step)
    planned = view.about("steps")
    ahead = max(0, planned - view.step) if isinstance(planned, int) else 0
    curve = None if reward.dropped else asymptote(series.steps, series.values, ahead)
    crossings = () if reward.rising or reward.solved else _crossings(view, reward.peak_step)
    worth = _worth(curve) if curve and ahead else None
    lines = ([_curve_words(reward.metric, curve, worth)] if curve else []) + [_crossing_words(c) for c in crossings]
    return Forecast(reward.metric, curve, worth, crossings, tuple(lines)) if lines else None


# --- what a curve tends to -------------------------------------------------------------------------------------------


def asymptote(steps: np.ndarray, values: np.ndarray, ahead: int = 0) -> Asymptote | None:
    """Fit saturating curves by least squares; None when the curve does not rise, or its bend has not been seen."""
    keep = np.isfinite(values)
    if keep.sum() < CURVE_ROWS:
        return None
    steps, values = steps[keep].astype(float), values[keep].astype(float)
    clock = (steps - steps[0] + 1) / (steps[-1] - steps[0] + 1)  # 0-1 over what was seen
    x, y, noise = _binned(clock, values)
    shapes = _shapes(x)
    base, rise, loss = _fit(shapes, y)
    rising = rise > 0
    if not rising.any():
        return None
    loss = np.where(rising, loss, np.inf)
    best = int(np.argmin(loss))
    residuals = y - base[best] - rise[best] * shapes[best]
    widen = inflation(residuals) ** 2
    variance = max(loss[best] / max(len(x) - 4, 1), noise**2) * widen
    # Curves the data can't tell from the best: their loss is within what one free number may gain by chance.
    allowed = loss[best] + Z90**2 * variance
    like = np.flatnonzero(loss <= allowed)
    last = 1 + ahead / (steps[-1] - steps[0] + 1)
    ends = _shapes(np.array([1.0, last]))
    level = base + rise
    gain = rise * (ends[:, 1] - ends[:, 0])
    slack = np.sqrt(np.maximum(allowed - loss[like], 0.0) / variance)
    centred = shapes[like] - shapes[like].mean(axis=1, keepdims=True)
    rise_error = np.sqrt(variance / np.maximum((centred**2).sum(axis=1), 1e-12))
    level_error = np.hypot(np.sqrt(variance / len(x)), rise_error * (1 - shapes[like].mean(axis=1)))
    low, high = level[like] - slack * level_error, level[like] + slack * level_error
    gain_error = slack * rise_error * (ends[like, 1] - ends[like, 0])
    now = float(base[best] + rise[best] * ends[best, 0])
    start = float(base[best] + rise[best] * shapes[best][0])
    found = Asymptote(
        start, now, float(level[best]), Interval(float(low.min()), float(high.max())), ahead, float(gain[best]),
        Interval(max(0.0, float((gain[like] - gain_error).min())), float((gain[like] + gain_error).max())),
    )  # fmt: skip
    error = math.sqrt(variance / max(len(x) / 5, 1))
    seen = now - start > 4 * error and found.interval.high - now < 3 * (now - start)
    return found if seen else None


def _binned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """(steps, means, noise of a mean) of at most `BINS` groups of neighbouring rows, outliers pulled in."""
    window = max(5, len(y) // BINS)
    trendless = np.diff(y)
    reach = 4 * median_scale(trendless)[1] / math.sqrt(2) if len(trendless) else 0.0
    middle = np.array([median(part) for part in np.array_split(y, max(1, len(y) // window))])
    level = np.repeat(middle, [len(part) for part in np.array_split(y, len(middle))])
    y = np.clip(y, level - reach - np.ptp(middle) / 2, level + reach + np.ptp(middle) / 2) if reach > 0 else y
    edges = np.array_split(np.arange(len(x)), min(BINS, len(x)))
    means = np.array([y[rows].mean() for rows in edges])
    noise = median_scale(np.diff(means))[1] / math.sqrt(2)
    return np.array([x[rows].mean() for rows in edges]), means, noise


def _shapes(x: np.ndarray) -> np.ndarray:
    """Curves from 0 towards 1, one a row: sigmoids with their middle and steepness, exponentials with their time."""
    middles, powers = np.geomspace(0.03, 3, 40), np.array([1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0])
    middle, power = (grid.ravel()[:, None] for grid in np.meshgrid(middles, powers))
    sigmoids = 1 / (1 + (middle / x) ** power)
    times = np.geomspace(0.03, 3, 40)[:, None]
    return np.vstack([sigmoids, 1 - np.exp(-x / times)])


def _fit(shapes: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, rise, squared error) of every shape, by least squares."""
    centred = shapes - shapes.mean(axis=1, keepdims=True)
    power = np.maximum((centred**2).sum(axis=1), 1e-12)
    rise = centred @ (y - y.mean()) / power
    base = y.mean() - rise * shapes.mean(axis=1)
    return base, rise, ((y - base[:, None] - rise[:, None] * shapes) ** 2).sum(axis=1)


def _worth(curve: Asymptote) -> Literal["yes", "no", "open"]:
    needed = WORTH * (curve.level - curve.start)
    if curve.gain_interval.high < needed:
        return "no"
    return "yes" if curve.gain_interval.low > needed else "open"


# --- when it will do harm -------------------------------------------------------------------------------------------


def crossing(name: str, steps: np.ndarray, values: np.ndarray, level: float) -> Crossing | None:
    """When the newest trend reaches `level`; None when there is no trend towards it, or it is there already."""
    keep = np.isfinite(values)
    steps, values = steps[keep][-TREND_ROWS:].astype(float), values[keep][-TREND_ROWS:]
    if len(values) < TREND_ROWS // 2:
        return None
    up = level > median(values[-5:])
    model = _model(steps, values) if values.min() > 0 and level > 0 else "linear"
    scale = np.log if model == "exponential" else np.asarray
    line, goal = _line(steps, scale(values)), float(scale(np.array(level)))
    towards = line.slope > 0 if up else line.slope < 0
    if not towards or abs(line.slope) < 3 * line.slope_error or (line.at(steps[-1]) >= goal) == up:
        return None
    reach = [line.reaches(goal, steps[-1], side) for side in (0.0, Z90, -Z90)]
    expected, *sides = reach
    if expected is None:
        return None
    known = [side for side in sides if side is not None]
    earliest = min([expected, *known])
    latest = max([expected, *known]) if len(known) == 2 else None
    now = float(np.exp(line.at(steps[-1])) if model == "exponential" else line.at(steps[-1]))
    return Crossing(
        name, model, now, level, round(expected), round(earliest), None if latest is None else round(latest)
    )


class _Line(NamedTuple):
    """A line through points with what is known of its error."""

    centre: float
    height: float
    slope: float
    height_error: float
    slope_error: float

    def at(self, step: float) -> float:
        return self.height + self.slope * (step - self.centre)

    def reaches(self, goal: float, now: float, errors: float) -> float | None:
        """The step at which the line, moved by some standard errors, reaches the goal; None when never."""
        steepness = self.slope
        ahead = np.geomspace(1, 1e6, 600)
        error = np.hypot(self.height_error, self.slope_error * (now + ahead - self.centre))
        path = self.at(now) + steepness * ahead + errors * error
        there = np.flatnonzero(path >= goal if steepness > 0 else path <= goal)
        return float(now + ahead[there[0]]) if len(there) else None


def _line(steps: np.ndarray, values: np.ndarray) -> _Line:
    centre = steps.mean()
    x = steps - centre
    power = float(x @ x)
    slope = float(x @ values) / power
    residuals = values - values.mean() - slope * x
    noise = math.sqrt(float(residuals @ residuals) / max(len(x) - 2, 1)) * inflation(residuals)
    return _Line(centre, float(values.mean()), slope, noise / math.sqrt(len(x)), noise / math.sqrt(power))


def _model(steps: np.ndarray, values: np.ndarray) -> Literal["linear", "exponential"]:
    """Which of the two, fitted to the older four fifths, is nearer to the newest fifth."""
    cut = len(values) * 4 // 5
    straight = _line(steps[:cut], values[:cut])
    growing = _line(steps[:cut], np.log(values[:cut]))
    by_steps = np.abs(values[cut:] - straight.at(steps[cut:]))
    by_factors = np.abs(values[cut:] - np.exp(growing.at(steps[cut:])))
    return "exponential" if by_factors.mean() < by_steps.mean() else "linear"


def _crossings(view: RunView, peak: int) -> tuple[Crossing, ...]:
    """Entropy on its way to collapse, KL and gradient norm on theirs to explosion, while the reward does not rise."""
    found = []
    for name, factor, least in (
        ("policy/entropy", 0.25, 0.0),
        ("policy/kl_ref", 10.0, 0.5),
        ("optim/grad_norm", 10.0, 0.0),
    ):
        series = view.series(name).between(view.baseline_start(), view.step).finite()
        usual = series.values[:20] if name != "policy/kl_ref" else series.between(0, peak).last(20).values
        if len(usual) < 10 or median(usual) <= 0:
            continue
        hit = crossing(name, series.steps, series.values, max(factor * median(usual), least))
        if hit and (hit.step - view.step) <= max(view.step - int(series.steps[0]), 1) / 2:
            found.append(hit)
    return tuple(sorted(found, key=lambda hit: hit.step))


# --- in words ---------------------------------------------------------------------------------------------------------


def _curve_words(name: str, curve: Asymptote, worth: str | None) -> str:
    low, high = curve.interval
    text = f"{name} tends to {curve.level:.3g} (90 % interval {low:.3g} to {high:.3g})"
    least = min(max(curve.reached_at_least, 0.0), 1.0)
    text += f"; at least {math.floor(100 * least)} % of the way is done" if least >= 0.5 else ""
    if not curve.ahead:
        return text
    gain_low, gain_high = curve.gain_interval
    text += (
        f"; the {curve.ahead:,} steps left are expected to gain {curve.gain:+.2g} ({gain_low:.2g} to {gain_high:.2g})"
    )
    verdict = {"no": ": not worth spending as things stand", "yes": ": worth spending", "open": ""}[worth or "open"]
    return text + verdict


def _crossing_words(hit: Crossing) -> str:
    until = f"{hit.latest:,}" if hit.latest is not None else "never"
    return (
        f"{hit.metric} is {hit.now:.3g} and, going on like this ({hit.model} trend), will be at {hit.level:.3g} around"
        f" step {hit.step:,} (90 % interval {hit.earliest:,} to {until})"
    )
