"""The trend of a metric in a few points, updated with every value. Lists of runs draw it beside the last value.

Each point is the mean of a stretch of values. When there are too many points, neighbours are merged and the stretches
double, so time per value and memory stay constant however long the run. It can be rebuilt from the metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

KEY_METRICS = (
    "reward/mean",
    "accuracy/val",
    "accuracy/train",
    "policy/kl_ref",
    "policy/kl_old",
    "optim/grad_norm",
    "time/step_s",
)
"""Metrics whose trend is kept."""
POINTS = 32
"""Most points of a trend."""


class Trend:
    """A trend that grows."""

    def __init__(self, values: Iterable[float] = ()):
        self._points: list[float | None] = []
        self._stretch = 1
        self._sum, self._finite, self._count = 0.0, 0, 0
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """Add the next value. One that is not finite takes a place but does not count in the mean."""
        if math.isfinite(value):
            self._sum += value
            self._finite += 1
        self._count += 1
        if self._count < self._stretch:
            return
        self._points.append(self._open())
        self._sum, self._finite, self._count = 0.0, 0, 0
        if len(self._points) >= POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [_mean(left, right) for left, right in pairs]
            self._stretch *= 2

    def points(self) -> list[float | None]:
        """Means of equal stretches (the last may be shorter) to 5 digits; None where no value was finite."""
        found = [*self._points, self._open()] if self._count else self._points
        return [None if value is None else float(f"{value:.5g}") for value in found]

    def _open(self) -> float | None:
        mean = self._sum / self._finite if self._finite else None
        return mean if mean is not None and math.isfinite(mean) else None


def _mean(left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return right if left is None else left
    return left / 2 + right / 2
