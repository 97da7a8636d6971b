"""Pure numbers: levels, scales, trends and change detection that survive outliers, drift and autocorrelation.

The method (`detectors.departure`): compare now with a *lagged* reference window (its newest point is `LAG` rows old, so
the shift that is being judged can't hide in it), extrapolate the reference's own trend, widen its noise by its
autocorrelation and by the uncertainty of that extrapolation, and accumulate what remains in a one-sided CUSUM. Rolling
z-scores with a window that contains the shift, and absolute thresholds on quantities without a natural unit, fire on
healthy runs; neither is used.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

LAG = 15
"""Rows between now and the newest row of the reference."""
WINDOW = 100
"""Rows in a full reference."""
MINIMUM = 20
"""Rows a reference needs before anything is said."""
CUSUM_SLACK = 0.75
"""Standard deviations of shift that are let pass."""
CUSUM_ALARM = 12.0
"""Accumulated standard deviations that count as a shift. Independent normal rows come to it once in 10^8 (Siegmund's
approximation), so what a higher bar would keep out is not chance: it is drift and waves, which the detectors tell apart
by size and by what came of it. Three rows far beyond anything seen are enough."""
_MAD_TO_SD = 1.4826


def finite(values: np.ndarray) -> np.ndarray:
    """The values that are numbers one can calculate with; the same array when all are, which one product tells."""
    power = float(values.dot(values))
    return values if power - power == 0.0 else values[np.isfinite(values)]


def mean(values: np.ndarray) -> float:
    """The average of at least one value."""
    return float(np.add.reduce(values)) / len(values)


def deviation(values: np.ndarray) -> float:
    """Standard deviation of at least one value, with their number below it."""
    away = values - np.add.reduce(values) / len(values)
    return math.sqrt(float(np.add.reduce(away * away)) / len(values))


def median(values: np.ndarray) -> float:
    """The middle value, NaN sorted last. numpy's own spends ten times this on generality, and detectors ask for dozens
    a step; so it is with the other plain sums here."""
    ordered = values.copy()
    ordered.sort()
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else float(ordered[middle - 1] + ordered[middle]) / 2


def middle(values: np.ndarray) -> float:
    """`median`, NaN where there is nothing or a NaN among them."""
    return median(values) if len(values) and not np.isnan(values).any() else math.nan


def median_scale(values: np.ndarray) -> tuple[float, float]:
    """Robust level and standard deviation: median and scaled MAD. A mostly constant series falls back on its spread."""
    level = median(values)
    deviation = np.abs(values - level)
    scale = median(deviation) * _MAD_TO_SD
    return level, scale if scale > 0 else mean(deviation)


def step_noise(values: np.ndarray) -> float:
    """Standard deviation of the noise around whatever trend there is, from differences of neighbours."""
    if len(values) < 3:
        return 0.0
    return median_scale(values[1:] - values[:-1])[1] / math.sqrt(2)


@lru_cache(maxsize=1024)
def centred_rows(count: int) -> tuple[np.ndarray, float]:
    """Row numbers about their middle, and the sum of their squares: one side of every line fitted here."""
    rows = np.arange(count) - (count - 1) / 2
    rows.setflags(write=False)
    return rows, float(rows.dot(rows))


def autocorrelation(residuals: np.ndarray) -> float:
    """Lag-1 autocorrelation, clipped to [0, 0.95]: how far neighbours repeat one another."""
    centred = residuals - mean(residuals)
    power = float(centred.dot(centred))
    return min(max(float(centred[:-1].dot(centred[1:])) / power, 0.0), 0.95) if power > 0 else 0.0


def inflation(residuals: np.ndarray) -> float:
    """Factor by which autocorrelation widens the noise of an average."""
    phi = autocorrelation(residuals)
    return math.sqrt((1 + phi) / (1 - phi))


class Trend(NamedTuple):
    """Change over a window, in the metric's own unit, with a 95 % interval that allows for autocorrelation."""

    change: float
    low: float
    high: float

    @property
    def rising(self) -> bool:
        """The whole interval is above zero."""
        return self.low > 0

    @property
    def falling(self) -> bool:
        """The whole interval is below zero."""
        return self.high < 0


def trend(values: np.ndarray) -> Trend:
    """Change from first to last row by least squares, after outliers were pulled in; at least 3 values."""
    count = len(values)
    rows, power = centred_rows(count)
    slope = float(rows.dot(values)) / power
    residuals = values - mean(values) - slope * rows
    reach = 4 * median_scale(residuals)[1]
    pulled = values - residuals + np.minimum(np.maximum(residuals, -reach), reach)
    slope = float(rows.dot(pulled)) / power
    residuals = pulled - mean(pulled) - slope * rows
    error = 1.96 * math.sqrt(float(residuals.dot(residuals)) / max(1, count - 2) / power) * inflation(residuals)
    return Trend(slope * (count - 1), (slope - error) * (count - 1), (slope + error) * (count - 1))
