"""Numbers and records as short words, the same in charts, cards, tables and reports.

What comes out of here is text, not markup: whoever puts it into plotly escapes it there (`marks.py`, `metric.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stabilizer.core.metrics import Metric, metric
from stabilizer.core.records import Finding
from stabilizer.runs.history import RunView


def short(value: Any) -> str:
    """A value as a person would say it: 4 significant digits, thousands grouped, NaN and Inf by name."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else f"{float(value):.4g}"
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "+Inf" if value > 0 else "−Inf"
        if value == int(value) and abs(value) < 10**9:
            return f"{int(value):,}"
        return f"{value:,.1f}" if 1000 <= abs(value) < 10**9 else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {short(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(short(inner) for inner in value)
    return str(value)


def change_words(change: Mapping[str, tuple[float | None, float | None]]) -> list[str]:
    """A remedy's change, one knob a line: `control/beta: 0 → 0.001`."""
    return [f"{knob}: {short(before)} → {short(after)}" for knob, (before, after) in change.items()]


def age_words(seconds: float) -> str:
    """How long ago, in the largest unit that says something."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


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
