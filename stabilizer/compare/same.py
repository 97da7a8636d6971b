"""Whether two curves are one run seen twice: the same numbers, or those numbers smoothed, rescaled, or both.

Two runs of one configuration share their trend but never their noise. So the noise decides: what is left of one curve
after the other, smoothed and rescaled at its best, and how alike the two are from step to step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stabilizer.core.text import short

WEIGHTS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)
WINDOWS = (3, 5, 10, 20, 50, 100, 200)
MINIMUM = 20
"""Common points below which nothing is recognised."""
MOST_POINTS = 5000
"""Points that are smoothed in every way that is tried."""
ALIKE = 0.98
"""Correlation of the two from step to step, above which it is the same noise."""


@dataclass(frozen=True)
class Twin:
    """`reference = offset + scale x smoothed(run)`, or the run and the reference exchanged (`of_reference`)."""

    smoothing: str
    weight: float
    scale: float
    offset: float
    alike: float
    points: int
    of_reference: bool = False

    @property
    def identical(self) -> bool:
        """The very same numbers."""
        return not self.smoothing and not self.rescaled

    @property
    def rescaled(self) -> bool:
        """Another scale or zero."""
        return abs(self.scale - 1) > 1e-3 or abs(self.offset) > 1e-3 * max(abs(self.scale), 1e-12)

    @property
    def words(self) -> str:
        """What was done to one to get the other."""
        done = [self.smoothing] if self.smoothing else []
        if self.rescaled:
            shift = "" if abs(self.offset) < 1e-9 else f" {'+' if self.offset > 0 else '-'} {short(abs(self.offset))}"
            done.append(f"x {short(self.scale)}{shift}")
        if not done:
            return f"the same {self.points:,} numbers"
        copy, original = ("run", "reference") if self.of_reference else ("reference", "run")
        return f"the {copy} is the {original}, {' and '.join(done)} (step to step they agree to {self.alike:.3f})"


def moving_average(values: np.ndarray, window: int, *, centred: bool) -> np.ndarray:
    """Mean over `window` points around each, or up to each; fewer at the ends."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    rows = np.arange(len(values))
    back = window // 2 if centred else window - 1
    low = np.maximum(rows - back, 0)
    high = np.minimum(rows + (window - 1 - back if centred else 0), len(values) - 1) + 1
    means: np.ndarray = (total[high] - total[low]) / (high - low)
    return means


def recognise(x: np.ndarray, y: np.ndarray, ref_x: np.ndarray, ref_y: np.ndarray) -> Twin | None:
    """The transformation that turns one curve into the other, or None when they do not share their noise."""
    found = [twin for twin in (_one_way(x, y, ref_x, ref_y), _one_way(ref_x, ref_y, x, y, True)) if twin]
    return max(found, key=lambda twin: (not twin.smoothing, twin.alike), default=None)


def _one_way(x: np.ndarray, y: np.ndarray, other_x: np.ndarray, other_y: np.ndarray, back: bool = False) -> Twin | None:
    shared, rows, other_rows = np.intersect1d(x, other_x, return_indices=True)
    if len(shared) < MINIMUM:
        return None
    target = other_y[other_rows]
    if np.allclose(y[rows], target, rtol=1e-9, atol=1e-12):
        return Twin("", 0.0, 1.0, 0.0, 1.0, len(shared), back)
    if len(y) > MOST_POINTS:  # the newest of them say it as well, and a smoothing forgets where it began
        y, rows, target = y[-MOST_POINTS:], rows - (len(y) - MOST_POINTS), target[rows >= len(y) - MOST_POINTS]
        rows = rows[rows >= 0]
        if len(rows) < MINIMUM:
            return None
    if min(np.ptp(target), np.ptp(y)) < 1e-100:
        return None
    best: Twin | None = None
    for words, weight, curve in _smoothings(y):
        fit = _fit(curve[rows], target)
        if fit and (best is None or fit.alike > best.alike + 1e-6):
            best = Twin(words, weight, fit.scale, fit.offset, fit.alike, len(rows), back)
    return best


class _Fit(NamedTuple):
    scale: float
    offset: float
    alike: float


def _fit(part: np.ndarray, target: np.ndarray) -> _Fit | None:
    """How a curve is scaled to become the target, where the two share their noise."""
    steps, wanted = np.diff(part), np.diff(target)
    if not steps.any() or not wanted.any():
        return None
    alike = _correlation(steps - steps.mean(), wanted - wanted.mean())
    scale, offset = np.polyfit(part, target, 1) if np.ptp(part) > 0 else (0.0, 0.0)
    left = target - offset - scale * part
    if alike < ALIKE or float(np.std(left)) > 0.5 * (float(np.std(wanted)) or 1.0):
        return None
    if abs(scale - 1) < 0.02 and abs(offset) < 0.02 * np.ptp(target):
        scale, offset = 1.0, 0.0  # within what rounding and reading off a plot do
    return _Fit(float(scale), float(offset), float(alike))


def averages(values: np.ndarray, *weights: float) -> tuple[np.ndarray, np.ndarray]:
    """Exponential moving averages of every weight, as dashboards draw them: debiased (divided by what the start has
    not seen yet) and plain. All at once they cost little more than one."""
    kept = np.array(weights)
    state, seen = np.zeros(len(kept)), np.ones(len(kept))
    states, unseen = np.empty((len(values), len(kept))), np.empty((len(values), len(kept)))
    fresh = (1 - kept) * values[:, None]
    for row in range(len(values)):
        state = kept * state + fresh[row]
        seen = kept * seen
        states[row], unseen[row] = state, seen
    return (states / (1 - unseen)).T, (states + unseen * values[0]).T


def _smoothings(values: np.ndarray) -> Iterator[tuple[str, float, np.ndarray]]:
    """Every smoothing that is tried: its words, its weight, and the curve."""
    yield "", 0.0, values
    for weight, debiased, plain in zip(WEIGHTS, *averages(values, *WEIGHTS), strict=True):
        yield f"smoothed with an exponential moving average of weight {weight:g}", weight, debiased
        yield f"smoothed with a plain exponential moving average of weight {weight:g}", weight, plain
    for window in WINDOWS:
        if window < len(values):
            for centred in (True, False):
                side = "centred" if centred else "trailing"
                curve = moving_average(values, window, centred=centred)
                yield f"smoothed with a {side} mean over {window} points", float(window), curve


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    power = float(a @ a) * float(b @ b)
    return float(a @ b) / power**0.5 if power > 0 else 0.0


def weight_for(residuals: np.ndarray, wanted: float) -> float | None:
    """Weight of the moving average that would bring noise down to `wanted` times what it is; None when none does."""
    if not 0 < wanted < 1 or len(residuals) < MINIMUM or not residuals.any():
        return None
    low, high = 0.0, 0.999
    size = float(np.std(residuals))

    def left(weight: float) -> float:
        return float(np.std(averages(residuals, weight)[0][0][len(residuals) // 10 :]))

    if left(high) > wanted * size:
        return None
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > wanted * size else (low, middle)
    return round((low + high) / 2, 2)
