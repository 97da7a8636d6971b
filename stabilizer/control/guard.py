"""The metric a trial must not harm: held-out accuracy where it is measured often enough, else the reward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stabilizer.core.sequential import half_width, rows_needed
from stabilizer.core.stats import middle
from stabilizer.detectors.evidence.progress import Progress, progress
from stabilizer.runs.history import RunView

BEFORE = 10
"""Rows of reward whose mean is the level before a change."""
MATERIAL = 0.1
"""Share of the range of a metric so far that counts as a relevant loss."""
HELD_OUT = "accuracy/val"
WORTH_ASKING = 2
"""Fewest validations within a trial for held-out accuracy to be the guard."""

Verdict = Literal["worse", "holds", "open"]


@dataclass(frozen=True)
class Guard:
    """A metric, its level before the change and the smallest relevant loss."""

    metric: str = "reward/mean"
    level: float = -math.inf
    noise: float = 0.0
    rows: int = 0
    """Number of values in the mean that is the level."""
    tolerance: float = 0.0
    every: float = 1.0
    """Steps between its values."""
    step: int = 0
    """The newest step in the level."""

    @classmethod
    def of(cls, view: RunView, horizon: int) -> Guard:
        """The guard of a trial of `horizon` steps, with its level at the end of `view`."""
        held_out = view.series(HELD_OUT).finite()
        if len(held_out) >= 2:
            every = middle(np.diff(held_out.steps[-6:]))
            if every * WORTH_ASKING <= horizon:
                problems = view.config("validation.problems") or 256
                level = float(held_out.values[-1])
                noise = math.sqrt(max(level * (1 - level), 0.01) / problems)
                covered = float(held_out.values.max() - held_out.values.min())
                tolerance = max(MATERIAL * covered, 0.05 * level, 0.01)
                return cls(HELD_OUT, level, noise, 1, tolerance, every, int(held_out.steps[-1]))
        return cls.of_reward(view)

    @classmethod
    def of_reward(cls, view: RunView) -> Guard:
        """The reward as the guard, with its level at the end of `view`."""
        reward = progress(view)
        if reward is None:
            return cls()
        rows = view.series(reward.metric).finite().last(BEFORE).values
        level = min(reward.now, float(rows.mean())) if reward.falling else float(rows.mean())
        return cls(reward.metric, level, reward.noise, len(rows), _material(reward), step=view.step)

    def window(self, horizon: int) -> int:
        """Steps until a relevant loss is visible above the noise: at least the horizon, at most twice that."""
        if not self.noise or not self.tolerance:
            return horizon
        least = max(1, int(horizon / self.every))
        return min(2 * horizon, math.ceil(rows_needed(self.noise, self.tolerance, least, 2 * least) * self.every))

    def verdict(self, view: RunView, since: int, expected: int) -> tuple[Verdict, float | None]:
        """Whether the guard is worse after a change made before step `since`, and its mean since then."""
        values = view.series(self.metric).between(since, view.step).values
        if len(values) and not np.isfinite(values[-5:]).any():
            return "worse", float("nan")
        values = values[np.isfinite(values)]
        if not len(values):
            return "open", None
        mean = float(values.mean())
        if not math.isfinite(self.level):
            return "holds", mean
        width = half_width(self.noise, len(values), max(1, int(expected / self.every)))
        width = math.hypot(width, 1.645 * self.noise / math.sqrt(max(1, self.rows)))
        lost = self.level - mean
        if lost - width > 0 and lost > self.tolerance:
            return "worse", mean
        return ("holds" if lost + width < self.tolerance or lost <= 0 else "open"), mean


def _material(reward: Progress) -> float:
    reach = reward.best - reward.lowest
    share = MATERIAL * reach if math.isfinite(reach) else 0.0
    return float(max(share, 0.05 * abs(reward.now), 1e-9))
