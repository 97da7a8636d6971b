"""How a reward grows: every plausible learning curve, weighted by how well it explains the run.

One family of curves answers whether the reward ever rose, since when it has been flat, how far it has come, and how
likely more training gains something that matters. The curves are a constant, a line, logarithms, exponentials and
sigmoids, each also stopped at some point, or continuing after one sudden fall.

The weight of a curve is its likelihood for noise of unknown size (Student), with one penalty of BIC for each fitted
height. Both use the effective number of points, because neighbouring rows of a run are alike. All curves of a kind
share the weight of that kind, so that many shapes are not favoured over few.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stabilizer.core.stats import autocorrelation, mean
from stabilizer.runs.history import RunView, Series

POINTS = 120
"""Points that a run is averaged to: enough for the sharpest bend of the family."""
LEAST_POINTS = 10
"""Rows below which three fitted numbers leave no measure of the noise."""
LONGEST = 5000
"""Rows looked back on, so that a row costs no more at the end of a long run than at its beginning."""
PARTS = 512
"""A run is weighed again when it is longer by one part in so many: a longer wait shows nothing new."""
TIMES = (0.03, 0.06, 0.1, 0.15, 0.2, 0.27, 0.35, 0.5, 0.7, 1.0, 1.5)
"""Time constants of the exponentials, in lengths of the run."""
STARTS = (0.0, 0.1, 0.2, 0.35, 0.5)
"""When they begin to rise, in lengths of the run."""
MIDDLES, WIDTHS = (0.3, 0.4, 0.5, 0.65), (0.06, 0.1, 0.14, 0.2)
"""The same of the sigmoids."""
PACES = (2.0, 8.0)
"""How much faster than at the end the curves without a limit rise at their start."""
STOPS = np.linspace(0.1, 0.95, 18)
"""Where growth may have stopped, in lengths of the run."""
DROPS = np.linspace(0.15, 0.95, 17)
"""Where the reward may have fallen suddenly."""
ALIKE = 0.9
"""Most correlation of neighbouring points that is believed."""
LEVELLED = 0.95
"""Share of its whole rise from which a curve has nearly reached its limit: three time constants of an exponential."""
NEGLIGIBLE = 1e-5
"""Weight of a curve below which it is left out of a chance: a thousand such make 1 %."""
FLAT = 0.9
"""Share of its whole rise, with as much training again, from which a curve counts as flat."""


class Family(NamedTuple):
    """The curves for one number of points, one in each row, and their heights before and after the run."""

    unit: np.ndarray
    """Centred and of length 1."""
    length: np.ndarray
    """The length before."""
    first: np.ndarray
    last: np.ndarray
    ahead: np.ndarray
    """Height after as much training again."""
    limit: np.ndarray
    """Height in the end; infinite for a line."""
    stopped: np.ndarray
    """Whether growth stopped."""
    over: np.ndarray
    """Whether it stopped, or had nearly reached its limit in the middle of the run."""
    prior: np.ndarray
    """Logarithm of its share of the weight of its kind."""


@lru_cache(maxsize=4)
def family(points: int) -> Family:
    """The line, the curves that continue, and the same stopped somewhere."""
    x = (np.arange(2 * points) + 0.5) / points
    kinds = [x], [np.log1p(pace * x) for pace in PACES], _bent(x)
    going = [curve for kind in kinds for curve in kind]
    limits = [math.inf] * len(going[: -len(kinds[-1])]) + [1.0] * len(kinds[-1])
    rows, stopped = list(going), [False] * len(going)
    priors = [-math.log(len(kinds) * len(kind)) for kind in kinds for _ in kind]
    stops = sorted(set((STOPS * points).astype(int).tolist()))
    for curve in going:
        flat = _flat_from(curve, points)
        for at in stops:
            if at < flat and curve[at] - curve[0] > 0.05 * (curve[points - 1] - curve[0]):
                rows.append(np.minimum(curve, curve[at]))
                limits.append(float(curve[at]))
                stopped.append(True)
    count = sum(stopped)
    priors += [-math.log(count)] * count
    curves = np.array(rows)
    seen = curves[:, :points] - curves[:, :points].mean(1, keepdims=True)
    length = np.sqrt(np.einsum("ij,ij->i", seen, seen))
    limit, first = np.array(limits), curves[:, 0]
    levelled = curves[:, points // 2] - first >= LEVELLED * (limit - first)
    return Family(
        seen / length[:, None], length, first, curves[:, points - 1], curves[:, -1], limit,
        np.array(stopped), np.array(stopped) | levelled, np.array(priors),
    )  # fmt: skip


def _bent(x: np.ndarray) -> list[np.ndarray]:
    curves = [1 - np.exp(-np.maximum(0.0, x - start) / time) for start in STARTS for time in TIMES]
    return curves + [1 / (1 + np.exp((middle - x) / width)) for middle in MIDDLES for width in WIDTHS]


def _flat_from(curve: np.ndarray, points: int) -> int:
    high = curve[0] + FLAT * (curve[-1] - curve[0])
    return int(np.argmax(curve >= high)) if curve[points - 1] >= high else points


class _Drops(NamedTuple):
    """Steps upward, and how they lie to each curve that continues: one row per curve and column per step."""

    steps: np.ndarray
    """Centred, one in each row."""
    along: np.ndarray
    """How much of the step the curve explains."""
    beside: np.ndarray
    """Length of what it does not explain."""


@lru_cache(maxsize=4)
def _drops(points: int) -> _Drops:
    known = family(points)
    going = known.unit[~known.stopped]
    steps = (np.arange(points) >= (DROPS * points).astype(int)[:, None]).astype(float)
    steps -= steps.mean(1, keepdims=True)
    along = going @ steps.T
    beside = steps[None] - along[:, :, None] * going[:, None]
    length: np.ndarray = np.sqrt(np.einsum("ijk,ijk->ij", beside, beside))
    return _Drops(steps, along, length)


class Growth(NamedTuple):
    """What is known of the growth of a reward: the weight of every curve, and the height it rises to."""

    metric: str
    rows: int
    steps: np.ndarray
    """First step of each point."""
    level: float
    """Mean over the run."""
    known: Family
    weight: np.ndarray
    """Probability of each curve of the family; the rest belongs to the constant."""
    height: np.ndarray
    error: np.ndarray
    """Height of each curve and its standard error, in the metric's unit."""
    dropped: tuple[np.ndarray, np.ndarray, np.ndarray]
    """The same for curves that continue after a sudden fall, in one row per curve and column per point."""
    many: float
    """Effective number of points."""

    @property
    def rose(self) -> float:
        """Probability that it rose at all."""
        return float(self.weight.sum() + self.dropped[0].sum())

    @property
    def stopped(self) -> float:
        """Probability that it rose and then stopped, or that it levelled off long ago."""
        return float(self.weight[self.known.over].sum())

    @property
    def gain(self) -> float:
        """Expected gain since the start."""
        return self._expected(self.known.last - self.known.first)

    def _expected(self, heights: np.ndarray) -> float:
        return float((self.weight * self.height * heights).sum())

    def chance(self, matters: float) -> float:
        """Probability that as much training again gains more than `matters`."""
        more = self.known.ahead - self.known.last
        weight, height, error = self.dropped
        going = np.broadcast_to(more[~self.known.stopped][:, None], weight.shape)
        return _likely(self.weight, self.height * more, self.error * more, matters) + _likely(
            weight, height * going, error * going, matters
        )

    def flat_since(self, matters: float) -> int:
        """First step since which the likeliest curve has gained less than `matters`."""
        if self.rose < 0.5:
            return int(self.steps[0])
        best = int(np.argmax(self.weight))
        seen = self.known.unit[best] * self.known.length[best]
        return int(self.steps[int(np.argmax(self.height[best] * (seen[-1] - seen) <= matters))])

    def reached(self) -> float:
        """Share of the way to the limit of the likeliest curve that levels off by itself; 0 if that has stopped."""
        best = int(np.argmax(self.weight))
        if self.rose < 0.5 or self.known.stopped[best]:
            return 0.0
        whole = self.known.limit[best] - self.known.first[best]
        return float((self.known.last[best] - self.known.first[best]) / whole) if whole < math.inf else 0.0


def growth(view: RunView, name: str) -> Growth | None:
    """What is known of the growth of a metric since the run, or its newest declared stage, began."""
    return view.once(_growth, name)


def _growth(view: RunView, name: str) -> Growth | None:
    recent = view.series(name).between(view.baseline_start(), view.step).last(LONGEST).finite()
    known = len(recent) - len(recent) % max(1, len(recent) // PARTS)
    if known < LEAST_POINTS:
        return None
    return _weighed(name, recent.steps[:known].tobytes(), recent.values[:known].tobytes())


@lru_cache(maxsize=8)
def _weighed(name: str, steps: bytes, values: bytes) -> Growth | None:
    """Kept, because the same rows are asked about at several steps."""
    return weighed(name, Series(np.frombuffer(steps, np.int64), np.frombuffer(values, float)))


def weighed(name: str, recent: Series) -> Growth | None:
    """Every curve weighed by the data."""
    count = len(recent)
    points = min(POINTS, count) // 10 * 10
    edges = np.linspace(0, count, points + 1)
    sums = np.concatenate(([0.0], np.cumsum(recent.values)))
    y = np.diff(np.interp(edges, np.arange(count + 1), sums)) / np.diff(edges)
    level = mean(y)
    y = y - level
    total = float(y.dot(y))
    if not total > (1e-12 * max(abs(level), 1e-300)) ** 2 * points:
        return None  # a constant number is no measurement
    known = family(points)
    along = known.unit.dot(y)
    best = int(np.argmax(np.abs(along)))
    residuals = y - along[best] * known.unit[best]
    many = max(points / _likeness(residuals), 3.0)
    left = np.maximum(total - along * along, 1e-9 * total)
    # of a kind: constant, rising, stopped, falling, and rising with a sudden fall
    fit = -0.5 * (many - 2) * np.log(left / total) - 0.5 * math.log(many) + known.prior
    rises, falls = np.where(along > 0, fit, -np.inf), np.where((along < 0) & ~known.stopped, fit, -np.inf)
    spread = np.sqrt(left / max(many - 2, 1.0))
    drops, going = _drops(points), along[~known.stopped][:, None]
    down = np.minimum((drops.steps.dot(y) - drops.along * going) / drops.beside, 0.0)
    share = drops.along / drops.beside
    left_too = np.maximum(total - going**2 - down**2, 1e-9 * total)
    fit_too = -0.5 * (many - 3) * np.log(left_too / total) - math.log(many) + known.prior[~known.stopped][:, None]
    height = going - down * share  # with the fall beside it, the curve itself is this high
    fit_too = np.where((down < 0) & (height > 0), fit_too - math.log(down.shape[1]), -np.inf)
    top = max(0.0, float(rises.max()), float(falls.max()), float(fit_too.max()))
    weights = [np.exp(part - top) for part in (rises, falls, fit_too)]
    whole = math.exp(-top) + sum(float(part.sum()) for part in weights)
    unit = known.length[~known.stopped][:, None]
    error_too = np.sqrt(left_too / max(many - 3, 1.0)) * np.sqrt(1 + share**2)
    rows = np.minimum(edges[:-1].astype(int), count - 1)
    return Growth(
        name, count, recent.steps[rows], level, known, weights[0] / whole, along / known.length, spread / known.length,
        (weights[2] / whole, height / unit, error_too / unit), many,
    )  # fmt: skip


def _likeness(residuals: np.ndarray) -> float:
    """How many neighbouring points count as one: by the correlation of neighbours, or by the means of batches as long
    as their number, which show slower waves, whichever is more."""
    count = len(residuals)
    near = autocorrelation(residuals)
    near = min(ALIKE, near + (1 + 4 * near) / count)  # a short stretch shows less of it than there is
    size = math.isqrt(count)
    batches = residuals[count % size :].reshape(-1, size).mean(1)
    slow = size * float(batches.dot(batches)) / len(batches) / (float(residuals.dot(residuals)) / count)
    return max((1 + near) / (1 - near), slow)


def _likely(weight: np.ndarray, middle: np.ndarray, error: np.ndarray, least: float) -> float:
    """Weight of normal values above `least`."""
    kept = weight > NEGLIGIBLE
    weight, middle, error = weight[kept], middle[kept], error[kept]
    z = np.where(error > 0, (middle - least) / np.where(error > 0, error, 1.0), np.where(middle > least, 40.0, -40.0))
    above = 1 / (1 + np.exp(-np.clip(z * (1.5976 + 0.07056 * z * z), -40, 40)))  # within 0.0002 of normal
    return float(weight.dot(above))
