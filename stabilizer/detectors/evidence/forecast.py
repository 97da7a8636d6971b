"""Where a run is heading: the limit of its reward, whether the remaining steps are worth it, and what will break when.

Pure functions: numbers in, numbers with intervals out, None where nothing can be said. There are two questions.

`asymptote` fits saturating curves to the reward: sigmoids in the logarithm of the step (ScaleRL, arXiv 2510.13786) and
exponentials. The interval is the profile of the fit: every curve that the data cannot tell from the best one counts. A
curve whose bend has not been seen yet gets no asymptote.

`crossing` extrapolates a trend to a level at which it does harm. The choice between linear and exponential growth
depends on which predicts the newest fifth better from the rest. Where that does not decide, the interval covers both:
where the band of the line, widened for autocorrelation, reaches the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from stabilizer.core.stats import autocorrelation, median, median_scale
from stabilizer.detectors.evidence.progress import progress
from stabilizer.runs.history import RunView

BAND = 2.3
"""Standard errors on either side of a 90 % interval: more than the 1.645 of a known noise, because the noise is
estimated."""
BINS = 80
"""Points a curve is averaged to before fitting."""
CURVE_ROWS = 40
"""Rows that a fit needs."""
TREND_ROWS = 60
"""Newest rows that define a trend."""
MODEL = 0.01
"""Share of the whole rise by which the true curve may differ from any of ours (root mean square)."""
WORTH = 0.05
"""Share of the whole rise that the remaining steps must promise to be worth it."""


CLEARLY = 2.0
"""Factor by which one kind of growth must predict worse than the other to be ruled out."""

Model = Literal["linear", "exponential"]


class Interval(NamedTuple):
    """A 90 % interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Asymptote:
    """The limit of a curve, in the metric's unit."""

    start: float
    now: float
    """The fitted curve at the newest step."""
    level: float
    interval: Interval
    ahead: int
    """Remaining steps that `gain` is for; 0 when the planned length is unknown."""
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
    """When a metric will reach a harmful level if its trend continues."""

    metric: str
    model: Model
    now: float
    level: float
    step: int
    earliest: int
    latest: int | None
    """None when the slowest trend that the data allow never gets there."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The outlook of a run."""

    metric: str
    asymptote: Asymptote | None
    worth: Literal["yes", "no", "open"] | None
    """Whether the remaining steps are worth it; None when their number or the limit is unknown."""
    crossings: tuple[Crossing, ...]
    lines: tuple[str, ...]
    """The same in words, one sentence each."""


def forecast(view: RunView) -> Forecast | None:
    """The outlook at the view's step, or None when nothing can be said."""
    reward = progress(view)
    if reward is None:
        return None
    series = view.series(reward.metric).between(view.baseline_start(), view.step)
    planned = view.about("steps")
    ahead = max(0, planned - view.step) if isinstance(planned, int) else 0
    curve = None if reward.dropped else asymptote(series.steps, series.values, ahead)
    crossings = () if reward.rising or reward.solved else _crossings(view, reward.peak_step)
    worth = _worth(curve) if curve and ahead else None
    seen = series.finite().values
    shares = len(seen) > 0 and 0 <= float(seen.min()) <= float(seen.max()) <= 1
    lines = [_curve_words(reward.metric, curve, worth, shares)] if curve else []
    lines += [_crossing_words(crossing) for crossing in crossings]
    return Forecast(reward.metric, curve, worth, crossings, tuple(lines)) if lines else None


# --- the limit of a curve --------------------------------------------------------------------------------------------


def asymptote(steps: np.ndarray, values: np.ndarray, ahead: int = 0) -> Asymptote | None:
    """Fit saturating curves by least squares; None when the curve does not rise, or its bend has not been seen."""
    keep = np.isfinite(values)
    if keep.sum() < CURVE_ROWS:
        return None
    span = float(steps[keep][-1] - steps[keep][0] + 1)
    clock = (steps[keep] - steps[keep][0] + 1) / span  # 0-1 over what was seen
    x, y = _binned(clock, values[keep])
    fits = _fit(_shapes(x), y)
    if fits is None:
        return None
    ends = _shapes(np.array([x[0], 1.0, 1 + ahead / span]))
    start, now = (float(fits.base[fits.best] + fits.rise[fits.best] * end) for end in ends[fits.best, :2])
    level = fits.interval(np.ones(len(ends)), with_base=True)
    more = ends[:, 2] - ends[:, 1]
    gain = fits.interval(more, with_base=False)
    promised = max(0.0, gain.low - MODEL * float(fits.rise[fits.best]))  # reduced by the error of the models
    error = math.sqrt(5 * fits.variance / len(x))
    if now - start < 4 * error or level.high - now > 3 * (now - start):
        return None
    top = float(fits.base[fits.best] + fits.rise[fits.best])
    gained = float(fits.rise[fits.best] * more[fits.best])
    return Asymptote(start, now, top, level, ahead, gained, Interval(promised, gain.high))


@dataclass(frozen=True)
class _Fits:
    """Every shape fitted to the data, and which of them the data cannot tell from the best."""

    base: np.ndarray
    rise: np.ndarray
    slack: np.ndarray
    """Standard errors that remain for base and rise of each shape that is `like` the best."""
    mean: np.ndarray
    power: np.ndarray
    variance: float
    points: int
    best: int
    like: np.ndarray

    def interval(self, heights: np.ndarray, *, with_base: bool) -> Interval:
        """The range of base (or 0) + rise x height over all those shapes."""
        heights, rise_error = heights[self.like], np.sqrt(self.variance / self.power)
        middle = self.rise[self.like] * heights + (self.base[self.like] if with_base else 0.0)
        distance = heights - self.mean if with_base else heights
        error = np.hypot(rise_error * distance, math.sqrt(self.variance / self.points) if with_base else 0.0)
        return Interval(float((middle - self.slack * error).min()), float((middle + self.slack * error).max()))


def _fit(shapes: np.ndarray, y: np.ndarray) -> _Fits | None:
    """Least squares for every shape; None when none of them rises."""
    mean = shapes.mean(axis=1)
    centred = shapes - mean[:, None]
    power = np.maximum((centred**2).sum(axis=1), 1e-12)
    rise = centred @ (y - y.mean()) / power
    base = y.mean() - rise * mean
    residuals = y - base[:, None] - rise[:, None] * shapes
    loss = np.where(rise > 0, (residuals**2).sum(axis=1), np.inf)
    best = int(np.argmin(loss))
    if not rise[best] > 0:
        return None
    noise = median_scale(np.diff(y))[1] / math.sqrt(2)
    variance = max(loss[best] / max(len(y) - 4, 1), noise * noise, 1e-18) * min(_widening(residuals[best]), 1e6) ** 2
    # Curves that the data can't tell from the best: the difference in loss is within the chance gain of one parameter
    # plus the error of a three-parameter model.
    allowed = loss[best] + BAND**2 * variance + len(y) * (MODEL * rise[best]) ** 2
    like = np.flatnonzero(loss <= allowed)
    slack = np.sqrt((allowed - loss[like]) / variance)
    return _Fits(base, rise, slack, mean[like], power[like], variance, len(y), best, like)


def _binned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of at most `BINS` groups of neighbouring rows."""
    groups = np.array_split(np.arange(len(x)), min(BINS, len(x)))
    return np.array([x[rows].mean() for rows in groups]), np.array([y[rows].mean() for rows in groups])


def _shapes(x: np.ndarray) -> np.ndarray:
    """Curves that rise from 0 towards 1, one per row: sigmoids of the step's logarithm, of the step, and
    exponentials."""
    middle, power = _grid(np.geomspace(0.02, 3, 50), np.geomspace(0.7, 12, 20))
    centre, width = _grid(np.linspace(-0.5, 1.5, 41), np.geomspace(0.02, 0.6, 16))
    times = np.geomspace(0.02, 3, 60)[:, None]
    return np.vstack([
        1 / (1 + np.exp(power * (np.log(middle) - np.log(x)))), 1 / (1 + np.exp((centre - x) / width)),
        1 - np.exp(-x / times),
    ])  # fmt: skip


def _grid(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of two lists of numbers, as two columns."""
    first, second = np.meshgrid(one, other)
    return first.ravel()[:, None], second.ravel()[:, None]


def _worth(curve: Asymptote) -> Literal["yes", "no", "open"]:
    needed = WORTH * (curve.level - curve.start)
    if curve.gain_interval.high < needed:
        return "no"
    return "yes" if curve.gain_interval.low > needed else "open"


# --- when it will do harm -------------------------------------------------------------------------------------------


def crossing(name: str, steps: np.ndarray, values: np.ndarray, level: float) -> Crossing | None:
    """When the newest trend reaches `level`; None when there is no trend towards it, or it is already there."""
    keep = np.isfinite(values)
    steps, values = steps[keep][-TREND_ROWS:].astype(float), values[keep][-TREND_ROWS:]
    if len(values) < TREND_ROWS // 2:
        return None
    up = level > median(values[-5:])
    model, *others = _models(steps, values) if values.min() > 0 and level > 0 else ("linear",)
    expected = _reaches(model, steps, values, level, up)
    if expected is None or expected[0] is None:
        return None
    bounds = list(expected[1:])
    for other in others:
        bounds += (_reaches(other, steps, values, level, up) or (None,) * 3)[1:]
    known = [bound for bound in bounds if bound is not None]
    latest = round(max([expected[0], *known])) if len(known) == len(bounds) else None
    return Crossing(
        name, model, median(values[-5:]), level, round(expected[0]), round(min([expected[0], *known])), latest
    )


def _reaches(
    model: Model, steps: np.ndarray, values: np.ndarray, level: float, up: bool
) -> tuple[float | None, float | None, float | None] | None:
    """Steps at which the trend and the two ends of its band reach the level; None without a clear trend towards it."""
    scale = np.log if model == "exponential" else np.asarray
    line, goal = _line(steps, scale(values)), float(scale(np.array(level)))
    towards = line.slope > 0 if up else line.slope < 0
    if not towards or abs(line.slope) < 3 * line.slope_error or (line.at(steps[-1]) >= goal) == up:
        return None
    expected, soonest, slowest = (line.reaches(goal, steps[-1], errors) for errors in (0.0, BAND, -BAND))
    return expected, soonest, slowest


class _Line(NamedTuple):
    """A line through points with its errors."""

    centre: float
    height: float
    slope: float
    height_error: float
    slope_error: float

    def at(self, step: float) -> float:
        return self.height + self.slope * (step - self.centre)

    def along(self, steps: np.ndarray) -> np.ndarray:
        return np.add(self.height, self.slope * (steps - self.centre))

    def reaches(self, goal: float, now: float, errors: float) -> float | None:
        """The step at which the line, moved by some standard errors, reaches the goal; None when never."""
        steepness = self.slope
        ahead = np.geomspace(1, 1e6, 600)
        error = np.hypot(self.height_error, self.slope_error * (now + ahead - self.centre))
        path = self.at(now) + steepness * ahead + errors * error
        there = np.flatnonzero(path >= goal if steepness > 0 else path <= goal)
        return float(now + ahead[there[0]]) if len(there) else None


def _line(steps: np.ndarray, values: np.ndarray) -> _Line:
    centre, count = steps.mean(), len(steps)
    x = steps - centre
    power = float(x @ x)
    slope = float(x @ values) / power
    residuals = values - values.mean() - slope * x
    noise = math.sqrt(float(residuals @ residuals) / max(count - 2, 1)) * _widening(residuals)
    return _Line(centre, float(values.mean()), slope, noise / math.sqrt(count), noise / math.sqrt(power))


def _widening(residuals: np.ndarray) -> float:
    """Factor by which autocorrelation widens an error; a short stretch shows less of it than there is."""
    repeats = autocorrelation(residuals)
    repeats = min(0.95, repeats + (1 + 4 * repeats) / len(residuals))
    return math.sqrt((1 + repeats) / (1 - repeats))


def _models(steps: np.ndarray, values: np.ndarray) -> tuple[Model, ...]:
    """Linear and exponential growth, fitted to the older four fifths: the one nearer to the newest fifth first.

    The other is left out when it predicts clearly worse.
    """
    cut = len(values) * 4 // 5
    straight = _line(steps[:cut], values[:cut])
    growing = _line(steps[:cut], np.log(values[:cut]))
    by_steps = float(np.abs(values[cut:] - straight.along(steps[cut:])).mean())
    by_factors = float(np.abs(values[cut:] - np.exp(growing.along(steps[cut:]))).mean())
    ranked: tuple[Model, ...] = ("exponential", "linear") if by_factors < by_steps else ("linear", "exponential")
    clear = max(by_steps, by_factors) > CLEARLY * min(by_steps, by_factors)
    return ranked[:1] if clear else ranked


def _crossings(view: RunView, peak: int) -> tuple[Crossing, ...]:
    """Entropy on its way to collapse, KL and gradient norm on their way to explosion, while the reward does not
    rise."""
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


def _curve_words(name: str, curve: Asymptote, worth: str | None, shares: bool) -> str:
    """`shares`: all observed values lie between 0 and 1."""
    low, high = curve.interval
    text = f"{name} is approaching {curve.level:.3g} (90 % interval {low:.3g} to {high:.3g})"
    text += ", or 1 if that is its maximum" if shares and curve.level > 1 else ""
    least = min(max(curve.reached_at_least, 0.0), 1.0)
    text += f"; it has covered at least {math.floor(100 * least)} % of the way" if least >= 0.5 else ""
    if not curve.ahead:
        return text
    gain_low, gain_high = curve.gain_interval
    text += f"; the remaining {curve.ahead:,} steps should gain {curve.gain:+.2g} ({gain_low:.2g} to {gain_high:.2g})"
    verdict = {"no": " and are not worth running as things are", "yes": " and are worth running", "open": ""}[
        worth or "open"
    ]
    return text + verdict


def _crossing_words(hit: Crossing) -> str:
    until = f"{hit.latest:,}" if hit.latest is not None else "never"
    return (
        f"{hit.metric} is {hit.now:.3g} and, if its {hit.model} trend continues, will reach {hit.level:.3g} around step"
        f" {hit.step:,} (90 % interval {hit.earliest:,} to {until})"
    )
