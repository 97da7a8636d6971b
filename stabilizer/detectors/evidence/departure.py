"""How far a metric is from where its own past predicts it: the two questions that most detectors are built on.

`departure` asks whether a metric has left its trend: it compares the newest rows with a lagged reference window.
Anything between the level of the window and its continued slope is allowed, so neither a trend that continues nor one
that ends is news. `drift` asks whether a metric is far from where the run began: a frozen baseline, because a moving
one would follow a slow decline.

Both use a scale on which a difference means the same everywhere (log for positive metrics, arcsine for shares). Both
need the change to exceed the noise. Neither judges: the detector decides what is material and whether it does harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from stabilizer.core.metrics import metric
from stabilizer.core.stats import (
    CUSUM_ALARM,
    CUSUM_SLACK,
    LAG,
    MINIMUM,
    WINDOW,
    finite,
    inflation,
    line,
    mean,
    median,
    median_scale,
    step_noise,
)
from stabilizer.detectors.evidence.progress import LEVEL, level
from stabilizer.runs.history import RunView, Series

REFRESH = 10
"""Rows for which one reference is used: it is a hundred rows long, and computing it is the main cost of the signal."""
SUSPICION = 10.0
"""Accumulated standard deviations from which the reference is frozen, so that a slow shift does not become its own
reference."""
HOLD = 200
"""Rows after which a lasting shift is the new normal."""
FLOOR = 0.05
"""Smallest noise assumed on the log or arcsine scale: a series that was constant by chance has some noise."""
CLEAR = 4.0
"""Standard errors that a drift must exceed."""
FIRST, NEWEST = 80, 60
"""Rows at either end of a run whose levels show a change too slow to leave its own trend."""
_Z_LEAST, _Z_MOST = -4.0, 6.0
_CAP = 40.0
"""Most that is accumulated: a clear shift outlasts a few rows that are as before."""
_TINY = 1e-12


_SCALES: dict[str, Callable[[float], float]] = {
    "positive": lambda value: math.log(max(value, _TINY)),
    "fraction": lambda value: math.asin(math.sqrt(min(max(value, 0.0), 1.0))),
}
"""`scaled` for one value."""


def scaled(values: np.ndarray, kind: str) -> np.ndarray:
    """Values on the scale of their kind: log of positive ones, arcsine root of shares, others unchanged."""
    if kind == "positive":
        logs: np.ndarray = np.log(np.maximum(values, _TINY))
        return logs
    return np.arcsin(np.sqrt(np.clip(values, 0.0, 1.0))) if kind == "fraction" else values


def unscaled(value: float, kind: str) -> float:
    """Back to the metric's own unit."""
    if kind == "positive":
        return float(np.exp(value))
    return float(np.sin(np.clip(value, 0.0, np.pi / 2)) ** 2) if kind == "fraction" else float(value)


class Departure(NamedTuple):
    """A metric has left its trend, upward or downward, and has not come back."""

    now: float
    """Median of the newest 5 rows, in the metric's unit."""
    expected: float
    """What the rows before the onset predict for now, in the metric's unit."""
    onset_step: int
    rows: int
    """Rows since the onset."""

    @property
    def ratio(self) -> float:
        """Ratio to the expected value; infinite from zero."""
        return self.now / self.expected if self.expected else np.inf


def departure(view: RunView, name: str, *, up: bool) -> Departure | None:
    """The present departure of a metric in one direction, or None. Needs about 40 rows since the last declared event.

    A row is a measurement, so a metric that is logged less often needs longer. Non-finite values are skipped.
    """
    if not _known(view, name):
        return None
    signal = course(view, name)
    column = 0 if up else 1
    if signal[-1, column] < CUSUM_ALARM:
        return None
    series = view.series(name)
    recent = signal[-HOLD - WINDOW :, column]
    zeros = (recent <= 0).nonzero()[0]
    row = len(series) - len(recent) + (int(zeros[-1]) + 1 if len(zeros) else 0)
    kind = metric(name).kind
    now = level(series.last(3 * LEVEL).finite())
    return Departure(now, unscaled(float(signal[-1, 2 + column]), kind), int(series.steps[row]), len(series) - row)


def _known(view: RunView, name: str) -> bool:
    """Whether there are enough rows since the last declared event for a metric to have a trend: a cheap check."""
    return view.rows(name) > MINIMUM + LAG


def course(view: RunView, name: str) -> np.ndarray:
    """A row of (CUSUM up, CUSUM down, highest expected, lowest expected, ...) per point of a metric."""
    return view.once(_course, name)


def _course(view: RunView, name: str) -> np.ndarray:
    start = view.baseline_start()
    first = int(view.series(name).steps.searchsorted(start)) if start else 0
    return view.causal(name, ("course", first), partial(_advance, kind=metric(name).kind, first=first))


def _advance(
    values: np.ndarray, start: int, last: list[float] | None, *, kind: str, first: int
) -> list[tuple[float, ...]]:
    """(up, down, high, low, level, slope, noise, row of the reference's end, rows held) of every new row."""
    scale = _SCALES.get(kind, float)
    new = values[start:].tolist()
    rows: list[tuple[float, ...]] = []
    up = down = slope = noise = end = held = 0.0
    centre = math.nan
    if last is not None:
        up, down, _, _, centre, slope, noise, end, held = last
    for row, value in enumerate(new, start):
        if row < first + MINIMUM + LAG:
            rows.append((0.0, 0.0, math.nan, math.nan, math.nan, 0.0, 0.0, 0.0, 0.0))
            continue
        suspected = up >= SUSPICION or down >= SUSPICION
        held = held + 1 if suspected else 0.0
        if held > HOLD:
            up = down = held = 0.0
            suspected = False
        if not suspected and (row % REFRESH == 0 or centre != centre):
            centre, slope, noise = _reference(values[max(first, row - LAG - WINDOW) : row - LAG], kind)
            end = float(row - LAG)
        if centre != centre:
            up = down = held = 0.0
            rows.append((0.0, 0.0, math.nan, math.nan, centre, 0.0, 0.0, end, 0.0))
            continue
        distance = WINDOW / 2 + row - end
        ahead = centre + slope * distance
        high, low = (ahead, centre) if ahead > centre else (centre, ahead)
        if value - value == 0.0:  # finite
            now = scale(value)
            spread = noise * math.sqrt(1 + 12 * distance**2 / WINDOW**3)
            up = _summed(up, (now - high) / spread)
            down = _summed(down, (low - now) / spread)
        rows.append((up, down, high, low, centre, slope, noise, end, held))
    return rows


def _summed(sum_: float, z: float) -> float:
    """A CUSUM with one more row. Written with branches, because it runs twice per row of every metric and mostly
    ends at 0."""
    z = _Z_LEAST if z < _Z_LEAST else _Z_MOST if z > _Z_MOST else z
    sum_ = sum_ + z - CUSUM_SLACK
    return 0.0 if sum_ < 0.0 else _CAP if sum_ > _CAP else sum_


def _reference(values: np.ndarray, kind: str) -> tuple[float, float, float]:
    """(level, slope per row, noise) of a window; NaN when it holds too few values."""
    values = finite(values)
    count = len(values)
    if count < MINIMUM:
        return math.nan, 0.0, 0.0
    values = scaled(values, kind)
    middle, spread = median_scale(values)
    # a mean, because shares of a few groups are lumpy
    pulled = np.minimum(np.maximum(values, middle - 4 * spread), middle + 4 * spread)
    centre = mean(pulled)
    slope, residuals = line(pulled)
    noise = math.sqrt(float(residuals.dot(residuals)) / count) * inflation(residuals)
    floor = FLOOR if kind in ("positive", "fraction") else FLOOR * median(np.abs(values))
    return centre, slope * count / WINDOW, max(noise * math.sqrt(1 + 4 / count), floor, 1e-9)


class Drift(NamedTuple):
    """How far a metric is from where the run, or its newest declared stage, began."""

    now: float
    start: float
    clear: bool
    """Whether the difference is beyond the noise of both."""

    @property
    def ratio(self) -> float:
        """Ratio to the start; infinite from zero."""
        return self.now / self.start if self.start else np.inf


def drift(view: RunView, name: str, *, start_rows: int = 20, now_rows: int = 10) -> Drift | None:
    """The level of the newest rows against that of the first; None with fewer than 5 rows of either.

    A young run uses a third of its rows as the start, so a short log can still be judged, with its noise.
    """
    series = view.series(name)
    first = int(series.steps.searchsorted(view.baseline_start()))
    count = len(series) - first
    head = series.values[first : first + min(start_rows, count // 3)]
    tail = series.values[max(first + len(head), len(series) - now_rows) :]
    head, tail = finite(head), finite(tail)
    if len(head) < LEVEL or len(tail) < LEVEL:
        return None
    kind = metric(name).kind
    before, after = scaled(head, kind), scaled(tail, kind)
    start, now = median(before), median(after)
    noise = max(step_noise(before), step_noise(after), median_scale(after)[1])
    floor = FLOOR if kind in ("positive", "fraction") else FLOOR * abs(start)
    error = max(1.25 * noise * np.sqrt(1 / len(head) + 1 / len(tail)), floor / 2, 1e-12)
    return Drift(unscaled(now, kind), unscaled(start, kind), bool(abs(now - start) > CLEAR * error))


def creep(view: RunView, name: str) -> Drift | None:
    """A change over the whole run, or its newest stage, that may be too slow to leave its own trend."""
    return drift(view, name, start_rows=FIRST, now_rows=NEWEST)


def change_step(series: Series, kind: str = "real") -> int:
    """The step that best separates the newest 500 rows from those before it: where a slow change began."""
    recent = series.last(500).finite()
    count = len(recent)
    if count < 4:
        return int(series.steps[0]) if len(series) else 0
    values = scaled(recent.values, kind)
    sums = np.cumsum(values - values.mean())[:-1]
    split = np.arange(1, count)
    return int(recent.steps[1 + int(np.argmax(np.abs(sums) / np.sqrt(split * (count - split))))])
