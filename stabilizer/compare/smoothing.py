"""The exponential moving average that dashboards draw, and the weight that would make a curve as calm as another."""

from __future__ import annotations

import numpy as np

MINIMUM = 20
"""Points below which no weight is looked for."""
MOST = 0.999
"""Largest weight that is tried; dashboards offer no larger one."""


def averaged(values: np.ndarray, weight: float) -> np.ndarray:
    """The debiased average: divided by what the start has not seen yet."""
    state, seen = 0.0, 1.0
    averages = np.empty(len(values))
    for row, value in enumerate(values.tolist()):
        state = weight * state + (1 - weight) * value
        seen *= weight
        averages[row] = state / (1 - seen)
    return averages


def weight_for(residuals: np.ndarray, wanted: float) -> float | None:
    """Weight of the moving average that would bring noise down to `wanted` times what it is; None when none does."""
    if not 0 < wanted < 1 or len(residuals) < MINIMUM or not residuals.any():
        return None
    low, high = 0.0, MOST
    size = float(np.std(residuals))

    def left(weight: float) -> float:
        return float(np.std(averaged(residuals, weight)[len(residuals) // 10 :]))

    if left(high) > wanted * size:
        return None
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > wanted * size else (low, middle)
    return round((low + high) / 2, 2)
