"""The mean of the last N steps: what a noisy metric shows when its noise is not of interest.

It is causal: a point rests on earlier ones alone, so a drawn line stays as it is while the run goes on. It counts
steps, not points, so a metric logged every tenth step is averaged over the same stretch of training. It is meant for
all values of a metric: averaging what was thinned before gives another curve.

The line begins where its window is full: means of fewer values lag less, and would bend it there.
"""

from __future__ import annotations

import numpy as np

AS_LOGGED = ("optim/lr", "control/", "tokens/", "batch/")
"""Metrics, by prefix, that are set and not measured: a mean would show values that never were."""


def steps_of(name: str, smooth: float) -> float:
    """Over how many steps this metric is averaged."""
    return 0.0 if name.startswith(AS_LOGGED) else smooth


def smoothed(steps: np.ndarray, values: np.ndarray, over: float, start: int = 0) -> np.ndarray:
    """For each point from index `start` on, the mean of the values in the last `over` steps, its own included.

    Values that are no numbers are left out, and none comes out in their place. Equal values give exactly that value.
    None comes out before the first full window either, in a series that has one.
    """
    if over <= 0 or not len(values):
        return values[start:].astype(float)
    begins = head(steps, values, over)
    first = int(np.searchsorted(steps, steps[min(start, len(steps) - 1)] - over, side="right"))
    steps, values = steps[first:], values[first:]
    known = np.isfinite(values)
    means = np.full(len(values), np.nan)
    means[known] = _means(steps[known], values[known].astype(float), over)
    means[: max(0, begins - first)] = np.nan
    return means[start - first :]


def head(steps: np.ndarray, values: np.ndarray, over: float) -> int:
    """How many points come before the first full window of `over` steps; 0 where no window is full yet."""
    known = np.flatnonzero(np.isfinite(values)) if over > 0 else np.empty(0, int)
    if not len(known):
        return 0
    at = steps[known]
    full = int(np.searchsorted(at, at[0] + over - 1))
    if full == len(at):
        return 0
    return int(known[full - int(np.searchsorted(at, at[full] - over, side="right"))])


def _means(steps: np.ndarray, values: np.ndarray, over: float) -> np.ndarray:
    if not len(values):
        return values
    index = np.arange(len(values))
    begins = np.searchsorted(steps, steps - over, side="right")
    bounds = np.column_stack([begins, index + 1]).ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        # Every window is summed by itself: a running sum would carry the rounding of one huge value along for ever.
        means: np.ndarray = np.add.reduceat(np.append(values, 0.0), bounds)[::2] / (index + 1 - begins)
    equal_since = np.maximum.accumulate(np.where(np.diff(values, prepend=values[0]) != 0, index, 0))
    return np.where(equal_since <= begins, values, means)
