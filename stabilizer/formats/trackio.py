"""trackio: the SQLite database that a project keeps, `<TRACKIO_DIR>/<project>.db`.

Table `metrics` has one row a call of `log()`: run, step and a JSON object; `configs` has the run's configuration.
NaN and Infinity are text in the JSON. A database holds all runs of a project: the one with the most rows is read, and
a note names the others.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from stabilizer.core.json_text import loads_python
from stabilizer.formats import database
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import Row, number
from stabilizer.formats.steps import rows_of
from stabilizer.runs.reader import RunError

NAME = "trackio"
WHAT = "the .db file of a trackio project"

MAX_ROWS = 2_000_000
_COLUMNS = {"id", "run_name", "step", "metrics"}


def recognises(path: Path) -> bool:
    """By SQLite's first bytes and the columns of the table of metrics."""
    return database.has_columns(path, "metrics", _COLUMNS)


def read(path: Path) -> NumberLog:
    """The run with the most rows in a project's database."""
    found, notes = database.read(path, ("metrics", "configs"), lambda base: _found(base, path), "a trackio database")
    run, others, rows, skipped, said, settings = found
    if others:
        notes.append(f"{len(others)} other runs of the project not used, e.g. {others[0]}: {run} has the most rows")
    return NumberLog(
        name=str(run),
        rows=rows,
        format=NAME,
        files=[path],
        settings=settings,
        skipped=skipped,
        notes=notes + said,
    )


def _found(base: database.Database, path: Path) -> tuple[Any, list[Any], list[Row], int, list[str], dict[str, Any]]:
    """The longest run, the other runs, its rows, the number skipped, notes, and its settings."""
    if not base.columns("metrics") >= _COLUMNS:
        raise RunError(f"{path}: no table of metrics as trackio has it; is this the project's .db file?")
    counts = Counter(run for (run,) in base.rows("SELECT run_name FROM metrics"))
    if not counts:
        raise RunError(f"{path}: no metrics in it; was the trainer stopped before its first log?")
    run, *others = sorted(counts, key=lambda run: (-counts[run], str(run)))
    found = base.rows("SELECT id, step, metrics FROM metrics WHERE run_name IS ?", (run,))
    kept = sorted(islice(found, MAX_ROWS), key=lambda row: number(row[0]) or 0)
    rows, skipped, said = rows_of(({"_step": step, **_object(text)} for _, step, text in kept), path)
    if counts[run] > MAX_ROWS:
        said.append(f"{counts[run] - MAX_ROWS:,} rows left out: this reader takes {MAX_ROWS:,}")
    return run, others, rows, skipped, said, _settings(base, run)


def _settings(base: database.Database, run: Any) -> dict[str, Any]:
    if not {"config", "run_name"} <= base.columns("configs"):
        return {}
    found = next(base.rows("SELECT config FROM configs WHERE run_name IS ?", (run,)), None)
    return {key: value for key, value in _object(found[0]).items() if not key.startswith("_")} if found else {}


def _object(text: Any) -> dict[str, Any]:
    try:
        value = loads_python(text)
    except (ValueError, TypeError):
        return {}
    return value if isinstance(value, dict) else {}
