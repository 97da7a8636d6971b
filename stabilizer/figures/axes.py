"""What runs along the bottom of a chart: steps, tokens, or the time spent in training.

Time is that of one lineage: what lay between two attempts (a crashed night, a branch that was given up) is left out, so
that a resumed run is as long as its training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from stabilizer.runs.history import RunView, Series

X = Literal["step", "tokens", "time"]
XS: tuple[X, ...] = get_args(X)
TOKENS = "tokens/total"
SHORTEST_S = 1e-3
"""Steps that follow each other faster were copied from a log, so their times mean nothing."""
UNITS = ((36_000.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
USUAL = 50
"""Steps before a break whose pace is used for it."""


@dataclass(frozen=True)
class Axis:
    """Where steps lie: positions of the steps that are known, those between them at the one before."""

    title: str = "step"
    steps: np.ndarray | None = None
    positions: np.ndarray | None = None

    @property
    def by_step(self) -> bool:
        """Whether a step lies at its own number."""
        return self.steps is None

    def places(self, steps: np.ndarray) -> list[float]:
        """Positions of many steps."""
        if self.steps is None or self.positions is None:
            return list(steps.tolist())
        found = np.searchsorted(self.steps, steps, side="right") - 1
        return list(self.positions[np.maximum(found, 0)].tolist())

    def within(self, steps: np.ndarray, window: tuple[float, float]) -> slice:
        """The points of ascending `steps` whose positions lie in a range."""
        start, end = window
        if self.steps is not None and self.positions is not None:
            first = int(np.searchsorted(self.positions, start))
            last = int(np.searchsorted(self.positions, end, side="right"))
            start = float(self.steps[first]) if first < len(self.steps) else np.inf
            end = float(self.steps[last]) - 1 if last < len(self.steps) else np.inf
        return slice(int(np.searchsorted(steps, start)), int(np.searchsorted(steps, end, side="right")))

    def place(self, step: float) -> float:
        """Position of one step."""
        return float(step) if self.steps is None else self.places(np.array([step]))[0]


def axis(view: RunView, x: X) -> Axis:
    """The chosen axis; steps when the run did not record what it needs."""
    if x == "tokens" and len(counted := view.series(TOKENS).finite()):
        return Axis("tokens", counted.steps, counted.values)
    if x == "time" and (spent := trained(view)):
        scale, unit = next((size, unit) for least, size, unit in UNITS if spent.values[-1] >= least)
        return Axis(f"time in training ({unit})", spent.steps, spent.values / scale)
    return Axis()


def trained(view: RunView) -> Series | None:
    """Seconds of training up to each step since the first; None when the run was not timed."""
    steps, times = view.times()
    gaps = np.maximum(np.diff(times), 0.0)
    if not len(gaps) or np.median(gaps) < SHORTEST_S:
        return None
    for fork in view.forks:
        index = int(np.searchsorted(steps, fork)) - 1  # the gap that ends at the first step of the attempt
        if 0 <= index < len(gaps):
            before = gaps[max(0, index - USUAL) : index]
            gaps[index] = min(gaps[index], float(np.median(before)) if len(before) else 0.0)
    return Series(steps, np.concatenate(([0.0], np.cumsum(gaps))))
