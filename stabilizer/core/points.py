"""Which points of a long series to draw, so that a chart stays small and no spike, NaN or incident step is lost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def thin(values: np.ndarray, budget: int, keep: Iterable[int] = ()) -> np.ndarray:
    """Ascending indices of at most `budget` points: first, last, lowest and highest of equal stretches (M4).

    NaN and Inf begin and end the stretches they form, so those edges are kept, as are the indices in `keep`; when they
    alone would exceed half the budget they are themselves thinned evenly.
    """
    count = len(values)
    if count <= budget:
        return np.arange(count)
    finite = np.isfinite(values)
    edges = np.flatnonzero(~finite & ~(np.r_[False, ~finite[:-1]] & np.r_[~finite[1:], False]))
    forced = np.unique(np.r_[edges, np.fromiter((i for i in keep if 0 <= i < count), np.int64), 0, count - 1])
    if len(forced) > budget // 2:
        forced = forced[np.linspace(0, len(forced) - 1, budget // 2).astype(np.int64)]
    stretches = max(1, (budget - len(forced)) // 4)
    size = -(-count // stretches)
    padded = np.full(size * stretches, np.nan)
    padded[:count] = np.where(finite, values, np.nan)
    rows = padded.reshape(stretches, size)
    starts = np.arange(stretches) * size
    lowest = starts + np.where(np.isnan(rows), np.inf, rows).argmin(axis=1)
    highest = starts + np.where(np.isnan(rows), -np.inf, rows).argmax(axis=1)
    chosen = np.r_[forced, starts, starts + size - 1, lowest, highest]
    return np.unique(chosen[chosen < count])


FLOOR_SHARE, FLOOR_DECADES = 0.05, 2.0
"""A log axis ends this many decades below the value that this share of the positive values lies under."""


def log_floor(values: np.ndarray) -> float:
    """The lower end of a log axis, so that a few values of rounding noise don't squash the rest; 0 to show all."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not len(positive):
        return 0.0
    floor = float(np.quantile(positive, FLOOR_SHARE)) / 10**FLOOR_DECADES
    return floor if positive.min() <= floor else 0.0


def wants_log(values: np.ndarray) -> bool:
    """Whether a positive metric is better read on a log axis: it spans close to two decades and is hardly ever zero.

    The low end is a quantile: one rounding-noise value next to zero must not squash the rest.
    """
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    if len(positive) < 10 or len(positive) < 0.98 * len(finite):
        return False
    if positive.max() <= 60 * positive.min():  # the quick way to say no
        return False
    return bool(positive.max() > 60 * np.quantile(positive, 0.05))
