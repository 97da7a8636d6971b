"""Whether growth stopped: a curve that bends naturally and then stops, against the same curve that continues.

A test of one slope against another needs hundreds of noisy rows on both sides. Two whole curves differ sooner: one that
saturates as e^-x towards its limit, and one that follows it up to some row and stays flat from there. The second
contains the first, so a run that merely saturates, however early, is explained as well without a halt. Both use the
amount of learning as their clock (the sum of learning rates), so a schedule is no halt.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stabilizer.core.stats import Trend, inflation, mean, step_noise
from stabilizer.runs.history import RunView, Series

LEAST_ROWS = 60
"""Rows below which nothing is reported."""
POINTS = 120
"""Points of equal learning that a run is averaged to."""
LONGEST = 5000
"""Rows looked back on, so that a row costs no more at the end of a long run than at its beginning."""
CERTAIN = 8.0
"""Multiple of the squared noise by which a halt must explain the run better: it is the best of many, tested
repeatedly."""
KEPT = 0.35
"""Share of the gain that the curve would have made since, which the run has clearly not made."""
AGAIN = 0.3
"""Share of the rise that would justify continuing if the run gained it again over as many rows as it has had."""
STEPPED = 2.0
"""Multiple of the squared noise by which a curve that continues after one sudden fall may explain the run better.
Undeclared harder data look like a halt until the loss is made good."""
PLAIN = 2.5
"""Standard errors between the newest two eighths of the run from which it clearly moves."""
ONE_SIDED = 1.645


class Halt(NamedTuple):
    """Rows since growth stopped, the first of their steps, and their change."""

    rows: int
    onset_step: int
    change: Trend


def halt(view: RunView, series: Series, least_steps: int) -> Halt | None:
    """The halt that explains the run, if one clearly does and has lasted for `least_steps`."""
    recent = series.between(view.baseline_start(), view.step).last(LONGEST).finite()
    count = len(recent)
    if count < LEAST_ROWS or recent.steps[-1] - recent.steps[0] < 2 * least_steps:
        return None
    values = recent.values
    eighth = count // 8
    newest, before = values[-eighth:], values[-2 * eighth : -eighth]
    now = mean(newest)
    if not now > mean(values[:eighth]):
        return None
    if now - mean(before) > PLAIN * step_noise(values[-2 * eighth :]) * math.sqrt(2 / eighth):
        return None  # clearly moving: no curve is needed
    clock = _clock(view, recent)
    points = min(POINTS, count // 2) // 10 * 10
    edges = np.interp(np.linspace(0, 1, points + 1), clock, np.arange(count + 1))
    y = np.diff(np.interp(edges, np.arange(count + 1), np.concatenate(([0.0], np.cumsum(values))))) / np.diff(edges)
    y = y - y.mean()
    shapes, stopped, which = _shapes(points)
    going, standing = shapes.dot(y), stopped.dot(y)
    best = int(np.argmax(standing))
    total, rise = float(y.dot(y)), float(standing[best])
    goes_on = float(going.max())
    if not rise > 0 or not goes_on > 0:
        return None
    better = rise * rise - goes_on * goes_on
    if better < CERTAIN * (total - rise * rise) / (points - 4):
        return None  # not even for noise without autocorrelation
    curve, at = which[best]
    row = min(int(edges[at]), count - 1)
    if recent.steps[-1] - recent.steps[row] < least_steps:
        return None
    since = np.maximum(np.arange(points) - at, 0.0)
    design = np.column_stack((np.ones(points), np.minimum(curve, curve[at]), since))
    inverse = np.linalg.inv(design.T.dot(design))
    level, height, slope = inverse.dot(design.T.dot(y))
    residuals = y - design.dot((level, height, slope))
    variance = float(residuals.dot(residuals)) / (points - 6) * inflation(residuals) ** 2
    if not variance > 0 or better < CERTAIN * variance or not height > 0:
        return None
    error = math.sqrt(variance * float(inverse[2, 2]))
    most, left = slope + ONE_SIDED * error, points - 1 - at
    if slope + 1.96 * error < 0 or most * left > KEPT * height * float(curve[-1] - curve[at]):
        return None
    if most * points > AGAIN * height * float(curve[at]):
        return None
    if _stepped(points, shapes, y) > rise * rise + STEPPED * variance:
        return None
    change = slope * left
    wide = 1.96 * error * left
    return Halt(count - row, int(recent.steps[row]), Trend(change, change - wide, change + wide))


def _clock(view: RunView, recent: Series) -> np.ndarray:
    """Share of all learning before each row, and 1 at the end."""
    rates = view.series("optim/lr").between(int(recent.steps[0]), view.step).finite()
    pace = np.ones(len(recent))
    if len(rates) > 1 and float(rates.values.min()) >= 0 and float(rates.values.max()) > 0:
        pace = np.interp(recent.steps, rates.steps, rates.values) + 1e-6 * float(rates.values.max())
    clock = np.concatenate(([0.0], np.cumsum(pace)))
    share: np.ndarray = clock / clock[-1]
    return share


def _curves(points: int) -> list[np.ndarray]:
    """Shapes of learning curves: saturating from some start, and starting slowly before saturating."""
    share = (np.arange(points) + 0.5) / points
    times = (0.03, 0.06, 0.1, 0.15, 0.2, 0.27, 0.35, 0.5, 0.7, 1.0, 1.5, 3.0)
    curves = [
        1 - np.exp(-np.maximum(0.0, share - start) / time) for start in (0.0, 0.1, 0.2, 0.35, 0.5) for time in times
    ]
    middles, widths = (0.3, 0.4, 0.5, 0.65), (0.1, 0.14, 0.2)
    return curves + [1 / (1 + np.exp((middle - share) / width)) for middle in middles for width in widths]


@lru_cache(maxsize=4)
def _shapes(points: int) -> tuple[np.ndarray, np.ndarray, list[tuple[np.ndarray, int]]]:
    """Curves that continue, the same stopped at some point, all centred and of length 1, and the description of the
    latter."""
    curves = _curves(points)
    halts = sorted(set(np.linspace(0.1 * points, 0.9 * points, 17).astype(int).tolist()))
    which = [(curve, at) for curve in curves for at in halts if curve[at] > curve[0]]
    stopped = [np.minimum(curve, curve[at]) for curve, at in which]
    return _unit(np.array(curves)), _unit(np.array(stopped)), which


def _stepped(points: int, shapes: np.ndarray, y: np.ndarray) -> float:
    """How much of the run is explained by a curve that continues after one sudden fall."""
    along, fell = shapes.dot(y), np.minimum(_falls(points).dot(y), 0.0)
    return float((along[:, None] ** 2 + fell**2).max())


@lru_cache(maxsize=4)
def _falls(points: int) -> np.ndarray:
    """For each continuing curve and each point, a step upward there, as far as the curve does not explain it."""
    going = _shapes(points)[0]
    steps = (np.arange(points) >= np.linspace(0.15 * points, 0.95 * points, 33).astype(int)[:, None]).astype(float)
    steps -= steps.mean(1, keepdims=True)
    beside = steps[None] - np.einsum("ik,jk->ij", going, steps)[:, :, None] * going[:, None]
    unit: np.ndarray = beside / np.sqrt(np.einsum("ijk,ijk->ij", beside, beside))[:, :, None]
    return unit


def _unit(shapes: np.ndarray) -> np.ndarray:
    shapes = shapes - shapes.mean(1, keepdims=True)
    unit: np.ndarray = shapes / np.sqrt(np.einsum("ij,ij->i", shapes, shapes))[:, None]
    return unit
