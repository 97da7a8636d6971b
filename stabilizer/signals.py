"""Pure numbers: levels, scales, trends and change detection that survive outliers, drift and autocorrelation.

The method: compare now with a *lagged* reference window (its newest point is `LAG` rows old, so the shift that is being
judged can't hide in it), extrapolate the reference's own trend, widen its noise by its autocorrelation and by the
uncertainty of that extrapolation, and accumulate what remains in a one-sided CUSUM. Rolling z-scores with a window
that contains the shift, and absolute thresholds on quantities without a natural unit, fire on healthy runs; neither
is used. Every array entry depends on entries at or before it alone.
"""

from __future__ import annotations

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
CUSUM_ALARM = 20.0
"""Accumulated standard deviations that count as a shift."""
_Z_RANGE = (-4.0, 6.0)
_CUSUM_CAP = 2 * CUSUM_ALARM
_MAD_TO_SD = 1.4826
_TINY = 1e-12


def to_scale(values: np.ndarray, kind: str) -> np.ndarray:
    """Values where a difference means the same everywhere: log for positive ones, the rest as they are."""
    return np.log(np.maximum(values, _TINY)) if kind == "positive" else values.astype(float)


def median(values: np.ndarray) -> float:
    """The middle value. numpy's own spends ten times this on generality, and detectors ask for dozens a step."""
    ordered = np.sort(values)
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else float(ordered[middle - 1] + ordered[middle]) / 2


def median_scale(values: np.ndarray) -> tuple[float, float]:
    """Robust level and standard deviation: median and scaled MAD. A mostly constant series falls back on its spread."""
    level = median(values)
    deviation = np.abs(values - level)
    scale = median(deviation) * _MAD_TO_SD
    return level, scale if scale > 0 else float(np.mean(deviation))


def step_noise(values: np.ndarray) -> float:
    """Standard deviation of the noise around whatever trend there is, from differences of neighbours."""
    if len(values) < 3:
        return 0.0
    return median_scale(np.diff(values))[1] / np.sqrt(2)


def autocorrelation(residuals: np.ndarray) -> float:
    """Lag-1 autocorrelation, clipped to [0, 0.95]: how far neighbours repeat one another."""
    centred = residuals - residuals.mean()
    power = float(centred @ centred)
    return float(np.clip(centred[:-1] @ centred[1:] / power, 0.0, 0.95)) if power > 0 else 0.0


def inflation(residuals: np.ndarray) -> float:
    """Factor by which autocorrelation widens the noise of an average."""
    phi = autocorrelation(residuals)
    return float(np.sqrt((1 + phi) / (1 - phi)))


class Reference(NamedTuple):
    """What yesterday predicts for today, on the scale of `to_scale`."""

    level: float
    scale: float


def predict(reference: np.ndarray, ahead: int) -> Reference:
    """Extrapolate a reference `ahead` rows past its end; noise, autocorrelation and extrapolation widen the scale."""
    count = len(reference)
    half = count // 2
    centre = (count - 1) / 2
    slope = (median(reference[-half:]) - median(reference[:half])) / (count - half)
    offsets = np.arange(count) - centre
    residuals = reference - (median(reference) + slope * offsets)
    level, noise = median_scale(residuals)
    noise *= inflation(residuals)
    distance = count - 1 - centre + ahead
    if abs(slope) * count < 2 * noise * np.sqrt(12 / count):  # a trend that is not there is not extrapolated
        slope = 0.0
    spread = noise * np.sqrt(1 + 1 / count + 12 * distance**2 / count**3)
    return Reference(float(median(reference) + level + slope * distance), float(max(spread, 1e-6)))


def shift(
    values: np.ndarray, done: np.ndarray, *, kind: str, first: int = 0, floor: float = 0.05
) -> tuple[float, float]:
    """One row of (CUSUM of upward shift, expected value); a causal signal for `RunView.causal`.

    `first` is the first row that compares with today's. `floor` is the smallest standard deviation believed: a series
    that was constant by luck is not infinitely sure. Non-finite values are passed over: another detector's business.
    """
    row = len(values) - 1
    if row < first:
        return 0.0, np.nan
    total = float(done[-1, 0]) if row > first else 0.0
    reference = values[max(first, row - LAG - WINDOW) : max(first, row - LAG)]
    reference = reference[np.isfinite(reference)]
    if len(reference) < MINIMUM or not np.isfinite(values[row]):
        return total, np.nan
    expected, scale = predict(to_scale(reference, kind), LAG)
    z = (float(to_scale(values[row:], kind)[0]) - expected) / max(scale, floor)
    return min(_CUSUM_CAP, max(0.0, total + float(np.clip(z, *_Z_RANGE)) - CUSUM_SLACK)), expected


def onset_row(cusum: np.ndarray) -> int:
    """Where the shift that the CUSUM ends in began: the row after its last zero."""
    zeros = np.flatnonzero(cusum <= 0)
    return min(int(zeros[-1]) + 1, len(cusum) - 1) if len(zeros) else 0


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
    rows = np.arange(count) - (count - 1) / 2
    power = float(rows @ rows)
    slope = float(rows @ values) / power
    residuals = values - values.mean() - slope * rows
    reach = 4 * median_scale(residuals)[1]
    pulled = values - residuals + np.clip(residuals, -reach, reach)
    slope = float(rows @ pulled) / power
    residuals = pulled - pulled.mean() - slope * rows
    error = 1.96 * float(np.sqrt(residuals @ residuals / max(1, count - 2) / power)) * inflation(residuals)
    return Trend(slope * (count - 1), (slope - error) * (count - 1), (slope + error) * (count - 1))
