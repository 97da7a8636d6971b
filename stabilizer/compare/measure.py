"""What a curve is like, in numbers with intervals: level, peak, time to peak, trend and noise.

A robust smooth (spikes pulled in, then a local straight line over an eighth of the points) represents the curve; the
rest is its noise. Neighbouring training steps are correlated, so the noise is taken as AR(1). Smoothing hides
part of that repetition; what it hides is known exactly for a given window and is put back before anything is claimed.
Standard errors come from drawing such noise around the smooth and measuring again (parametric bootstrap, seeded),
with the uncertainty of the noise itself in the draws. Over seeds they come from the seeds instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

from stabilizer.core.stats import median_scale

MINIMUM = 8
"""Points below which no interval is given."""
DRAWS = 400
MOST_POINTS = 600
"""Longer series are averaged in equal stretches down to this before noise is drawn for them."""
REACHED = 0.9
"""Share of the rise to the peak that counts as having reached it: where a plateau is highest is chance."""
LOST = 0.5
"""Share of its rise that a run which fell back has lost at its end: it is nearer to its start than to its best."""
FALL = 3.0
"""Standard deviations of noise within a run by which a smooth falls: its own error is a quarter of one or less."""

Scale = Literal["linear", "ratio"]


def smooth(values: np.ndarray, half: int) -> np.ndarray:
    """A local straight line through the `half` points on either side, fewer at the ends; along the last axis."""
    count = values.shape[-1]
    rows = np.arange(count)
    low, high = np.maximum(rows - half, 0), np.minimum(rows + half, count - 1) + 1
    n = high - low
    centre = (low + high - 1) / 2
    spread = n * (n * n - 1) / 12
    zero = np.zeros((*values.shape[:-1], 1))
    total = np.concatenate([zero, np.cumsum(values, axis=-1)], axis=-1)
    moment = np.concatenate([zero, np.cumsum(values * rows, axis=-1)], axis=-1)
    mean = (total[..., high] - total[..., low]) / n
    tilt = (moment[..., high] - moment[..., low]) - centre * (total[..., high] - total[..., low])
    line: np.ndarray = mean + tilt / np.maximum(spread, 1e-12) * (rows - centre)
    return line


def half_window(count: int) -> int:
    """Points on either side that the smooth takes in: a sixteenth of all, at least 2."""
    return max(2, count // 16)


class Noise(NamedTuple):
    """Noise around the smooth. `sd` is the residual standard deviation, corrected for what the smooth follows; `phi`
    and `sigma` are the AR(1) noise that would leave such residuals; `seen` is their lag-1 autocorrelation as it is."""

    sd: float
    phi: float
    sigma: float
    seen: float
    residuals: np.ndarray


@cache
def _hidden(half: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each phi: variance and lag-1 autocorrelation of the residuals that such noise of unit variance leaves.

    Up to the phi whose noise runs on for 1.5 windows: what wanders more slowly looks like the curve itself, is
    taken for it, and shows between seeds only.
    """
    longest = 1.5 * (2 * half + 1)
    phis = np.linspace(0.0, (longest - 1) / (longest + 1), 60)  # (1 + phi) / (1 - phi) = longest
    width = 2 * half + 1
    lags = np.arange(-2 * half, 2 * half + 1)  # the kernel is 1 at 0 less a box of 1 / width; with itself:
    own = (lags == 0) - 2 / width * (abs(lags) <= half) + (width - abs(lags)) / width**2
    left = np.array([own @ phi ** np.abs(lags) for phi in phis])
    next_to = np.array([own @ phi ** np.abs(lags + 1) for phi in phis])
    return phis, left, next_to / left


def noise(values: np.ndarray) -> tuple[np.ndarray, Noise]:
    """The smooth of a series and the noise around it; at least 3 values."""
    half = half_window(len(values))
    tame = _without_spikes(values)
    line = smooth(tame, half)
    residuals = tame - line
    power = float(residuals @ residuals)
    if power <= 1e-24 * max(1.0, float(values @ values)):
        return line, Noise(0.0, 0.0, 0.0, 0.0, np.zeros_like(residuals))
    seen = float(residuals[:-1] @ residuals[1:]) / power
    phis, left, autocorrelations = _hidden(half)
    variance = power / len(values)
    phi = float(np.interp(seen, autocorrelations, phis))
    sigma = math.sqrt(variance / float(np.interp(phi, phis, left)))
    return line, Noise(math.sqrt(variance / left[0]), phi, sigma, seen, residuals)


def _without_spikes(values: np.ndarray) -> np.ndarray:
    """Values further from the median of their five neighbours than noise is are pulled in; a steep rise is kept."""
    if len(values) < 5:
        return values
    padded = np.concatenate([values[1::-1], values, values[:-3:-1]])
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=-1)
    away = values - middle
    reach = 5 * median_scale(away)[1]
    return middle + np.clip(away, -reach, reach) if reach > 0 else values


@dataclass(frozen=True)
class Measure:
    """One number of one side with its standard error (of its logarithm, where `scale` is ratio) and 95 % interval."""

    value: float
    error: float
    freedom: float
    scale: Scale
    seeds: int = 1
    between: float = math.nan
    """Standard deviation between seeds; NaN for one."""

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true value lies with 95 % confidence."""
        reach = t_quantile(0.975, self.freedom) * self.error
        if self.scale == "ratio":
            return self.value * math.exp(-reach), self.value * math.exp(reach)
        return self.value - reach, self.value + reach


@dataclass(frozen=True)
class Shape:
    """One member's curve: points, smooth, noise, and the draws around them that give standard errors."""

    x: np.ndarray
    y: np.ndarray
    line: np.ndarray
    noise: Noise
    draws: np.ndarray
    drawn_lines: np.ndarray
    up: bool

    @property
    def rise(self) -> float:
        """From the start of the smooth to its best."""
        return float(abs(self.peak(self.line[None])[0] - self.line[0]))

    def peak(self, lines: np.ndarray) -> np.ndarray:
        """The best value of each smooth."""
        best: np.ndarray = lines.max(axis=-1) if self.up else lines.min(axis=-1)
        return best

    def peak_at(self) -> float:
        """Where the smooth is best."""
        return float(self.x[np.argmax(self.line if self.up else -self.line)])

    def reached(self, lines: np.ndarray) -> np.ndarray:
        """Where each smooth first has `REACHED` of its rise."""
        start, best = lines[..., :1], self.peak(lines)[..., None]
        there = (lines - start) >= REACHED * (best - start) if self.up else (start - lines) >= REACHED * (start - best)
        places: np.ndarray = np.maximum(self.x[np.argmax(there, axis=-1)], 1e-9)
        return places

    def rises(self) -> bool:
        """Whether the rise is more than noise: 97.5 % of the draws rise more than flat noise would."""
        if not len(self.draws):
            return False
        flat = smooth(self.draws - self.line, half_window(len(self.line)))
        chance = np.quantile(np.abs(self.peak(flat) - flat[:, 0]), 0.975)
        return self.rise > chance and self.rise > 0

    def fell_back(self) -> tuple[float, float] | None:
        """Its best and its final level, where it ends nearer to its start than to its best, by more than noise."""
        if not len(self.draws):
            return None
        best, end = float(self.peak(self.line)), float(final_level(self)(self.line))
        lost = best - end if self.up else end - best
        return (best, end) if lost > max(LOST * self.rise, FALL * self.noise.sd) else None

    def rising_at_end(self) -> bool:
        """The best of the smooth lies in the last twentieth: the peak may be yet to come."""
        return bool(np.argmax(self.line if self.up else -self.line) >= 0.95 * (len(self.line) - 1))


def shape(x: np.ndarray, y: np.ndarray, *, up: bool = True, seed: int = 0) -> Shape:
    """Measure a series; `up` says which way is better."""
    raw_noise = noise(y)[1] if len(y) >= 3 else Noise(0.0, 0.0, 0.0, 0.0, np.zeros(len(y)))
    if len(y) > MOST_POINTS:
        pieces = np.array_split(np.arange(len(y)), MOST_POINTS)
        x = np.array([x[piece].mean() for piece in pieces])
        y = np.array([np.clip(y[piece], *_fence(y[piece])).mean() for piece in pieces])
    if len(y) < MINIMUM:
        return Shape(x, y, y.copy(), raw_noise, np.empty((0, len(y))), np.empty((0, len(y))), up)
    line, own = noise(y)
    half = half_window(len(y))
    rng = np.random.default_rng(seed)
    seen = own.seen + rng.normal(0, math.sqrt(max(1e-3, 1 - own.seen**2) / len(y)), DRAWS)
    phis, left, autocorrelations = _hidden(half)
    phi = np.interp(seen, autocorrelations, phis)
    sigma = own.sd * np.sqrt(left[0] / np.interp(phi, phis, left))
    drift = rng.normal(0, 1, (len(y), DRAWS))
    fresh = np.sqrt(1 - phi**2)
    for row in range(1, len(y)):
        drift[row] = phi * drift[row - 1] + fresh * drift[row]
    draws = line + (drift * sigma).T
    return Shape(x, y, line, raw_noise, draws, smooth(draws, half), up)


def _fence(values: np.ndarray) -> tuple[float, float]:
    level, scale = median_scale(values)
    return (level - 4 * scale, level + 4 * scale) if scale > 0 else (-math.inf, math.inf)


def final_level(item: Shape) -> Callable[[np.ndarray], np.ndarray]:
    """Mean over the last fifth of the points."""
    count = max(min(5, len(item.y)), len(item.y) // 5)
    return lambda curves: curves[..., -count:].mean(axis=-1)


def end_trend(item: Shape) -> Callable[[np.ndarray], np.ndarray]:
    """Change over the last third by least squares."""
    count = max(min(6, len(item.y)), len(item.y) // 3)
    rows = np.arange(count) - (count - 1) / 2
    return lambda curves: curves[..., -count:] @ rows / (rows @ rows) * (count - 1)


def level_at(item: Shape, place: float) -> Callable[[np.ndarray], np.ndarray]:
    """Value of the smooth at a position."""
    right = int(np.clip(np.searchsorted(item.x, place), 1, len(item.x) - 1))
    share = float(np.clip((place - item.x[right - 1]) / (item.x[right] - item.x[right - 1]), 0, 1))
    return lambda lines: lines[..., right - 1] * (1 - share) + lines[..., right] * share


def measured(
    shapes: Sequence[Shape],
    statistic: Callable[[Shape], Callable[[np.ndarray], np.ndarray]],
    *,
    of_smooth: bool,
    scale: Scale = "linear",
) -> Measure | None:
    """A statistic of one side: mean over its seeds, or one run's with the standard error from its draws."""
    values, errors = [], []
    for item in shapes:
        if not len(item.draws):
            return None
        ask = statistic(item)
        value = float(ask((item.line if of_smooth else item.y)[None])[0])
        drawn = ask(item.drawn_lines if of_smooth else item.draws)
        if scale == "ratio":
            if value <= 0 or np.any(drawn <= 0):
                return None
            value, drawn = math.log(value), np.log(drawn)
        far_low, low, high, far_high = np.quantile(drawn, [0.005, 0.025, 0.975, 0.995])
        error = max((high - low) / 3.92, (far_high - far_low) / 5.152)  # tails may be heavier than normal ones
        if scale == "ratio":  # and one longer than the other, as with a place on a plateau: the longer one counts
            error = max(error, (far_high - value) / 2.576, (value - far_low) / 2.576)
        values.append(value)
        errors.append(error)
    freedom = min(_freedom(item) for item in shapes)
    return _over_seeds(values, errors, freedom, scale)


def noise_measure(shapes: Sequence[Shape], *, relative: bool = False) -> Measure | None:
    """Standard deviation of the noise around the smooth; `relative` to the rise of the curve."""
    values, errors = [], []
    for item in shapes:
        size = item.rise if relative else 1.0
        if not len(item.draws) or item.noise.sd <= 0 or size <= 0:
            return None
        residuals = item.noise.residuals
        count = len(residuals) * (1 - item.noise.phi**2) / (1 + item.noise.phi**2)
        heavy = float(np.mean(residuals**4) / np.mean(residuals**2) ** 2)
        values.append(math.log(item.noise.sd / size))
        errors.append(math.sqrt(max(heavy - 1, 2.0) / 4 / max(count, 3)))
    return _over_seeds(values, errors, min(_freedom(item) for item in shapes), "ratio")


def _freedom(item: Shape) -> float:
    """Independent values' worth of noise in a run, less what the smooth takes: how well its noise is known."""
    phi = item.noise.phi
    return max(3.0, 0.9 * len(item.y) * (1 - phi) / (1 + phi))


def _over_seeds(values: list[float], errors: list[float], freedom: float, scale: Scale) -> Measure:
    count = len(values)
    mean = sum(values) / count
    value = math.exp(mean) if scale == "ratio" else mean
    if count == 1:
        return Measure(value, errors[0], freedom, scale)
    between = float(np.std(values, ddof=1))
    within = math.sqrt(sum(error**2 for error in errors) / count)
    if between >= within:
        return Measure(value, between / math.sqrt(count), count - 1, scale, count, between)
    return Measure(value, within / math.sqrt(count), freedom, scale, count, between)  # seeds agree by luck


def t_quantile(level: float, freedom: float) -> float:
    """Student's t: exact for 1 and 2 degrees of freedom, else the Cornish-Fisher series (within 1 % from 3 on)."""
    if freedom <= 1:
        return math.tan(math.pi * (level - 0.5))
    if freedom <= 2:
        return (2 * level - 1) * math.sqrt(2 / (4 * level * (1 - level)))
    z = _NORMAL[level]
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


_NORMAL = {0.975: 1.959964, 0.995: 2.575829}
