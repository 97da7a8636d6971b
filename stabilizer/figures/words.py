"""Numbers and records as short words, the same in charts, cards, tables and reports.

What comes out of here is text, not markup: whoever puts it into plotly escapes it there (`marks.py`, `metric.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from stabilizer.core.metrics import Metric, metric
from stabilizer.core.records import Finding
from stabilizer.runs.history import RunView


def definition(view: RunView, name: str) -> Metric:
    """What `name` means in this run: our vocabulary, overruled by what the run itself states (a foreign trainer's)."""
    known = metric(name)
    stated = view.about("metrics")
    row = stated.get(name) if isinstance(stated, Mapping) else None
    if not isinstance(row, Mapping):
        return known
    told = {key: row[key] for key in ("unit", "estimator", "aggregation") if isinstance(row.get(key), str) and row[key]}
    return Metric(**{**{field: getattr(known, field) for field in Metric.__slots__}, **told})


def meaning_words(view: RunView, name: str) -> str:
    """The definition of a metric as one paragraph, for tooltips."""
    known = definition(view, name)
    unit = f" Unit: {known.unit}." if known.unit and known.unit != "1" else ""
    return f"{name}: {known.meaning}{unit} Estimator: {known.estimator} ({known.aggregation})."


PLACE = ",.7~r"
"""The d3 format of a place on an x axis: a step, tokens or a share of the run."""
PLAIN_FROM = 1000.0
"""Numbers from this size on are written as 12,340, smaller ones with the shortest of both notations."""


def hover_number(values: Iterable[float]) -> str:
    """The d3 format of these values in hover texts: 4 significant digits, large ones without a power of ten."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return ",.4~r" if largest >= PLAIN_FROM else ".4g"


def concerns(finding: Finding) -> frozenset[str]:
    """Metrics a finding speaks of: the names its evidence mentions, as keys or as values."""
    names: set[str] = set()
    pending: list[Any] = [finding.evidence]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            names.update(key for key in value if isinstance(key, str) and "/" in key)
            pending += value.values()
        elif isinstance(value, (list, tuple)):
            pending += value
        elif isinstance(value, str) and "/" in value:
            names.add(value)
    return frozenset(names)
