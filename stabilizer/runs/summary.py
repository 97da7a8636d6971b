"""`summary.json`: last, min and max of each metric and the trend of a few, kept up while rows come in.

It is derived from the metrics and can be rebuilt from them. Lists of runs read it, and open no file of metrics.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from stabilizer.runs.history import History
from stabilizer.runs.trend import KEY_METRICS, Trend

EVERY_S = 5.0
"""Seconds between two summaries."""


class Summary:
    """The summary of one lineage, from the rows of its history and those added since."""

    def __init__(self, history: History | None = None):
        self._metrics: dict[str, dict[str, float]] = {}
        self._trends: dict[str, Trend] = {}
        self._t = 0.0
        if history is not None:
            self._take_in(history)

    @property
    def due(self) -> bool:
        """Whether the last summary is old enough to be written again."""
        return time.time() - self._t >= EVERY_S

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Take in a row. NaN counts for `last` alone."""
        for name, given in values.items():
            value = _as_float(given)
            known = self._metrics.get(name)
            if known is None:
                self._metrics[name] = {"last": value, "step": step, "min": value, "max": value}
            else:
                known["last"], known["step"] = value, step
                if value < known["min"] or known["min"] != known["min"]:
                    known["min"] = value
                if value > known["max"] or known["max"] != known["max"]:
                    known["max"] = value
            if name in KEY_METRICS:
                self._trends.setdefault(name, Trend()).add(value)

    def row(self, verdict: str, worst: str | None) -> dict[str, Any]:
        """What `summary.json` says now."""
        self._t = time.time()
        return {
            "verdict": verdict,
            "worst": worst,
            "metrics": {name: dict(known) for name, known in self._metrics.items()},
            "trends": {name: trend.points() for name, trend in self._trends.items()},
        }

    def _take_in(self, history: History) -> None:
        view = history.view()
        for name in view.names():
            steps, values = view.series(name)
            known = values[~np.isnan(values)]
            low, high = (float(known.min()), float(known.max())) if len(known) else (np.nan, np.nan)
            self._metrics[name] = {"last": float(values[-1]), "step": int(steps[-1]), "min": low, "max": high}
        self._trends = {name: Trend(view.series(name).values.tolist()) for name in KEY_METRICS if name in view}


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer no float can hold; the record keeps it as Inf too
        return float("inf") if value > 0 else float("-inf")
