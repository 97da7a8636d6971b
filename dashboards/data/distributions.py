"""How a quantity of single completions is spread, step by step: the counts behind a heat map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dashboards.data.completions_store import CompletionsStore, LoggedCompletion
from stabilizer.figures.spread import Spread

QUANTITIES = {
    "reward": "reward",
    "advantage": "advantage",
    "length": "length of answers",
    "tokens": "-log p of tokens, nats",
}
"""What can be drawn over the steps. The mean of -log p over sampled tokens estimates the entropy of the policy."""
LINES = {"tokens": np.mean}
"""The number of each step that is drawn as a line, where it is not the median."""
WORDS = {"tokens": {"line": "mean, an estimate of the entropy", "of": "tokens"}}
MOST_STEPS = 60
"""Steps that are read, evenly chosen, the newest among them."""
BINS = 24
"""Intervals of the quantity, from the lowest to the highest value."""
TAIL = 0.005
"""Share of values at each end that may fall outside, so that one outlier does not hide all others."""


def spread_of(store: CompletionsStore, run: Path, quantity: str, by: str = "") -> Spread:
    """The spread of `quantity` over the logged steps; `by` names a component of the reward."""
    steps = chosen(store.steps(run))
    found: list[tuple[int, np.ndarray]] = []
    for step in steps:
        rows = store.step(run, step).newest_rows
        values = np.array([value for row in rows for value in _values(row, quantity, by)], float)
        values = values[np.isfinite(values)]
        if len(values):
            found.append((step, values))
    if not found:
        return Spread((), (), (), (), (), QUANTITIES[quantity])
    every = np.concatenate([values for _, values in found])
    low, high = (float(end) for end in np.quantile(every, (TAIL, 1 - TAIL)))
    with np.errstate(over="ignore"):
        width = high - low
    if not (0 < width < math.inf):
        low, high = low - 0.5, low + 0.5
    edges = np.linspace(low, high, BINS + 1)
    shares = [np.histogram(np.clip(values, low, high), edges)[0] / len(values) for _, values in found]
    return Spread(
        steps=tuple(step for step, _ in found),
        middles=tuple(((edges[1:] + edges[:-1]) / 2).tolist()),
        shares=tuple(tuple(share.tolist()) for share in shares),
        lines=tuple(float(LINES.get(quantity, np.median)(values)) for _, values in found),
        counts=tuple(len(values) for _, values in found),
        unit=by if quantity == "reward" and by else QUANTITIES[quantity],
        **WORDS.get(quantity, {}),
    )


def chosen(steps: Sequence[int]) -> list[int]:
    """At most `MOST_STEPS` of the steps, evenly chosen."""
    if len(steps) <= MOST_STEPS:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (MOST_STEPS - 1))] for place in range(MOST_STEPS)]


def _values(row: LoggedCompletion, quantity: str, by: str) -> list[float]:
    sample = row.sample
    if quantity == "tokens":
        return [-logp for logp in sample.logps if logp is not None]
    if quantity == "length":
        return [float(sample.length or len(sample.completion))]
    if quantity == "advantage":
        return [sample.advantage]
    return [sample.rewards.get(by, math.nan) if by else sample.reward]
