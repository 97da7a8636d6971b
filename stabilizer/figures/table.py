"""The numbers behind a chart as a table that other programs read: every point, one row a step."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence

import numpy as np

from stabilizer.runs.history import RunView

MAX_ROWS = 200_000
"""Rows of a table; a longer one keeps the newest."""
FORMULA = re.compile(r"""(^|[\t\r\n;,|"'])(?=[=+@\uff1d\uff0b\uff0d\uff20\t\r\n-])""")
"""Where a spreadsheet begins a formula: at the start of a cell, or behind what it may take for the end of one."""


def table(view: RunView, names: Sequence[str], max_rows: int = MAX_ROWS) -> tuple[str, int]:
    """A CSV with a column for steps, one for when they were written where that is known, and one a metric; and how
    many older rows were left out. A metric that was not measured at a step has an empty cell."""
    columns = [view.series(name) for name in names]
    steps = np.unique(np.concatenate([series.steps for series in columns])) if columns else np.empty(0, np.int64)
    left_out = max(0, len(steps) - max_rows)
    steps = steps[left_out:]
    timed, when = view.times()
    cells = [_cells(steps, timed, when)] if len(timed) else []
    cells += [_cells(steps, series.steps, series.values) for series in columns]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["step", *(["seconds_since_epoch"] if len(timed) else []), *map(heading, names)])
    writer.writerows(zip(steps.tolist(), *cells, strict=True))
    return out.getvalue(), left_out


def _cells(steps: np.ndarray, known: np.ndarray, values: np.ndarray) -> list[str]:
    found = np.searchsorted(known, steps)
    there = (found < len(known)) & (known[np.minimum(found, len(known) - 1)] == steps)
    taken = values[np.where(there, found, 0)].tolist()
    return [_number(value) if ok else "" for value, ok in zip(taken, there.tolist(), strict=True)]


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else "Inf" if value > 0 else "-Inf"


def heading(name: str) -> str:
    """A header no spreadsheet takes for a formula."""
    return FORMULA.sub(r"\1'", name)
