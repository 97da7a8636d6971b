"""MLflow: the SQLite database of its tracking store, `mlflow.db` or whatever the tracking URI names.

The default store from MLflow 3.7 on. Table `metrics` has a row a value (key, value, timestamp, step, run), `params`
the configuration as text, `runs` the names. Traps:

- NaN is stored as 0 with `is_nan`, an infinity as the largest number there is.
- A reader's lock can make a trainer's `log_metric` fail, so no lock is taken (`database`).
- A database holds all runs of a server: the one with the most values is read, and a note names the others.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from stabilizer.formats import database
from stabilizer.formats.mlflow import in_order, setting, theirs
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import MAX_NAMES, number, step_number
from stabilizer.runs.reader import RunError

NAME = "mlflow_db"
WHAT = "the SQLite database of an MLflow tracking store, e.g. mlflow.db"

MAX_ROWS = 10_000_000
_COLUMNS = {"key", "value", "timestamp", "run_uuid", "step", "is_nan"}
_LARGEST = sys.float_info.max


class _Found(NamedTuple):
    """One run of the database, with how many others there are and the name of one of them."""

    name: str
    others: int
    example: str
    lines: list[tuple[float, int, str, float]]
    settings: dict[str, Any]
    skipped: int


def recognises(path: Path) -> bool:
    """By SQLite's first bytes and the columns of the table of metrics."""
    return database.has_columns(path, "metrics", _COLUMNS)


def read(path: Path) -> NumberLog:
    """The run with the most values in a tracking store."""
    tables = ("metrics", "params", "runs")
    found, notes = database.read(path, tables, lambda base: _found(base, path), "a database of MLflow")
    if found.others:
        notes.append(f"{found.others} other runs not used, e.g. {found.example}: {found.name} has the most values")
    if found.skipped:
        notes.append(f"{found.skipped} values left out: no number with a name and a step")
    return NumberLog(
        name=found.name,
        rows=in_order(found.lines),
        format=NAME,
        files=[path],
        settings=found.settings,
        skipped=found.skipped,
        notes=notes,
    )


def _found(base: database.Database, path: Path) -> _Found:
    if not base.columns("metrics") >= _COLUMNS:
        raise RunError(f"{path}: no table of metrics as MLflow has it; is this the tracking store's database?")
    counts = Counter(run for (run,) in base.rows("SELECT run_uuid FROM metrics WHERE key NOT LIKE 'system/%'"))
    if not counts:
        raise RunError(f"{path}: no metrics in it; was the trainer stopped before its first log?")
    run, *others = sorted(counts, key=lambda run: (-counts[run], str(run)))
    if counts[run] > MAX_ROWS:
        raise RunError(f"{path}: {counts[run]:,} values are more than the {MAX_ROWS:,} this reader takes")
    lines: list[tuple[float, int, str, float]] = []
    names: set[str] = set()
    skipped = 0
    rows = base.rows("SELECT timestamp, step, key, value, is_nan FROM metrics WHERE run_uuid IS ?", (run,))
    for when, at, key, value, is_nan in rows:
        name = theirs(key) if isinstance(key, str) else ""
        if name is None:
            continue
        time, step, measured = number(when), step_number(number(at)), math.nan if is_nan else number(value)
        if not name or time is None or step is None or measured is None:
            skipped += 1
            continue
        names.add(name)
        if len(names) > MAX_NAMES:
            raise RunError(f"{path}: more than the {MAX_NAMES:,} metrics this reader takes")
        lines.append((time, step, name, math.copysign(math.inf, measured) if abs(measured) >= _LARGEST else measured))
    if not lines:
        raise RunError(f"{path}: no metrics in it; was the trainer stopped before its first log?")
    example = _name(base, others[0]) if others else ""
    return _Found(_name(base, run), len(others), example, lines, _settings(base, run), skipped)


def _name(base: database.Database, run: Any) -> str:
    """The run's name where it has one, otherwise its id."""
    if {"name", "run_uuid"} <= base.columns("runs"):
        found = next(base.rows("SELECT name FROM runs WHERE run_uuid IS ?", (run,)), None)
        if found and isinstance(found[0], str) and found[0]:
            return found[0][:250]
    return str(run)[:250]


def _settings(base: database.Database, run: Any) -> dict[str, Any]:
    if not {"key", "value", "run_uuid"} <= base.columns("params"):
        return {}
    found = base.rows("SELECT key, value FROM params WHERE run_uuid IS ? LIMIT 2000", (run,))
    return {str(key): setting(value) for key, value in found if isinstance(value, str)}
