"""What remedies and arbitration read off a run before anything is changed."""

from __future__ import annotations

import numpy as np

from stabilizer.runs.history import RunView

ROWS = 20
"""Rows whose median is called the present value."""


def recent(view: RunView, name: str, rows: int = ROWS) -> float | None:
    """The present level of a metric, or None where fewer than five rows tell."""
    values = view.series(name).last(rows).finite().values
    return float(np.median(values)) if len(values) >= 5 else None
