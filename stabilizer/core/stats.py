"""Statistics of a series of numbers: level, scale, noise and trend, robust to outliers, drift and autocorrelation.

`detectors.evidence.departure` builds change detection from them. It compares the newest rows with a *lagged* reference
window, whose newest row is `LAG` rows old, so that a shift can't be part of its own reference. It extrapolates the
trend of the reference, widens its noise by the autocorrelation and by the uncertainty of the extrapolation, and
accumulates what remains in a one-sided CUSUM. Rolling z-scores over a window that contains the shift, and absolute
thresholds on quantities without a natural unit, fire on healthy runs; neither is used.
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
"""Rows a reference must have before anything is compared with it."""
CUSUM_SLACK = 0.75
"""Shift that is not accumulated, in standard deviations."""
CUSUM_ALARM = 12.0
"""Accumulated standard deviations that count as a shift. Independent normal rows reach it once in 10^8 rows (Siegmund's
approximation). A higher bar would keep out drift and waves, not chance; detectors tell those apart by their size and
consequences. Three rows far beyond anything seen are enough."""
_MAD_TO_SD = 1.4826


def finite(values: np.ndarray) -> np.ndarray:
    """The values that are finite; the same array when all are."""
    power = float(values.dot(values))
    return values if power - power == 0.0 else values[np.isfinite(values)]


def mean(values: np.ndarray) -> float:
    """The average of at least one value."""
    return float(np.add.reduce(values)) / len(values)


def deviation(values: np.ndarray) -> float:
    """Standard deviation of at least one value, divided by their number (not by n - 1)."""
    away = values - np.add.reduce(values) / len(values)
    return math.sqrt(float(np.add.reduce(away * away)) / len(values))


def median(values: np.ndarray) -> float:
    """The middle value, NaN sorted last. It takes a tenth of the time of `np.median`; detectors need dozens a step."""
    ordered = values.copy()
    ordered.sort()
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else float(ordered[middle - 1] + ordered[middle]) / 2


def middle(values: np.ndarray) -> float:
    """`median`, or NaN where there are no values or a NaN is among them."""
    return median(values) if len(values) and not np.isnan(values).any() else math.nan


def median_scale(values: np.ndarray) -> tuple[float, float]:
    """Robust level and standard deviation: median and scaled MAD. Where the MAD is 0, the mean deviation is taken."""
    level = median(values)
    deviation = np.abs(values - level)
    scale = median(deviation) * _MAD_TO_SD
    return level, scale if scale > 0 else mean(deviation)


def step_noise(values: np.ndarray) -> float:
    """Standard deviation of the noise around any trend, from differences of neighbouring values."""
    if len(values) < 3:
        return 0.0
    return median_scale(values[1:] - values[:-1])[1] / math.sqrt(2)


@lru_cache(maxsize=1024)
def centred_rows(count: int) -> tuple[np.ndarray, float]:
    """Row numbers with mean 0, and the sum of their squares: the x side of every line fitted here."""
    rows = np.arange(count) - (count - 1) / 2
    rows.setflags(write=False)
    return rows, float(rows.dot(rows))


def line(values: np.ndarray) -> tuple[float, np.ndarray]:
    """Slope per row of the line through some values (least squares), and the residuals."""
    rows, power = centred_rows(len(values))
    slope = float(rows.dot(values)) / power
    return slope, values - mean(values) - slope * rows


def autocorrelation(residuals: np.ndarray) -> float:
    """Lag-1 autocorrelation, clipped to [0, 0.95]."""
    centred = residuals - mean(residuals)
    power = float(centred.dot(centred))
    return min(max(float(centred[:-1].dot(centred[1:])) / power, 0.0), 0.95) if power > 0 else 0.0


def inflation(residuals: np.ndarray) -> float:
    """Factor by which autocorrelation widens the noise of an average."""
    phi = autocorrelation(residuals)
    return math.sqrt((1 + phi) / (1 - phi))


class Trend(NamedTuple):
    """Change over a window, in the unit of the metric, with a 95 % interval that allows for autocorrelation."""

    change: float
    low: float
    high: float

    @property
    def rising(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0

    @property
    def falling(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.high < 0


def trend(values: np.ndarray) -> Trend:
    """Change from the first to the last row by least squares, with outliers pulled in. Needs at least 3 values."""
    count = len(values)
    _, residuals = line(values)
    reach = 4 * median_scale(residuals)[1]
    slope, residuals = line(values - residuals + np.minimum(np.maximum(residuals, -reach), reach))
    power = centred_rows(count)[1]
    error = 1.96 * math.sqrt(float(residuals.dot(residuals)) / max(1, count - 2) / power) * inflation(residuals)
    return Trend(slope * (count - 1), (slope - error) * (count - 1), (slope + error) * (count - 1))
