"""A running mean that forgets with distance: what is seen of a noisy metric when the noise is not of interest.

It is causal (a point rests on earlier ones alone, so a line that is drawn stays as it is while the run goes on), it
weighs by steps, not by points (a metric logged every tenth step is smoothed over the same stretch of training), and it
starts without bias. It is meant for all values of a metric: smoothing what was thinned before gives another curve.
"""

from __future__ import annotations

import numpy as np

REACH = 200.0
"""Largest exponent a block of the running sum grows to, well inside what a float holds."""


def smoothed(steps: np.ndarray, values: np.ndarray, over: float) -> np.ndarray:
    """The mean of the values so far, each weighted by exp(-distance in steps / `over`).

    Values that are no numbers have no weight, and none comes out in their place.
    """
    known = np.isfinite(values)
    if over <= 0 or not known.any():
        return values.astype(float)
    at = (steps - steps[0]) / over
    weights, sums = known.astype(float), np.where(known, values, 0.0)
    blocks = np.floor(at / REACH)
    edges = np.flatnonzero(np.diff(blocks, prepend=-1.0))
    means = np.empty(len(values))
    total, weight, last = 0.0, 0.0, 0.0
    for start, stop in zip(edges, np.append(edges[1:], len(values)), strict=True):
        grown = np.exp(at[start:stop] - at[start])
        left = np.exp(last - at[start])  # of what came before this block
        block_total = total * left + np.cumsum(sums[start:stop] * grown)
        block_weight = weight * left + np.cumsum(weights[start:stop] * grown)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            means[start:stop] = block_total / block_weight
        last = at[stop - 1]
        total, weight = block_total[-1] / grown[-1], block_weight[-1] / grown[-1]
    return np.where(known, means, np.nan)
