"""trackio: the SQLite database that a project keeps, `<TRACKIO_DIR>/<project>.db`, opened read-only.

Table `metrics` has one row a call of `log()`: run, step and a JSON object; `configs` has the run's configuration.
NaN and Infinity stand in the JSON as text. A database holds all runs of a project: the one with the most rows is read,
and the others are named.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from stabilizer.json_text import loads_python
from stabilizer.readers.names import named_log
from stabilizer.readers.steps import rows_of
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError

NAME = "trackio"
WHAT = "the .db file of a trackio project"

MAX_ROWS = 2_000_000
_DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged database ends in: its own messages may hold bytes that are no text."""
_MAGIC = b"SQLite format 3\0"


def recognises(path: Path) -> bool:
    """By SQLite's first bytes and the columns of the table of metrics."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if file.read(16) != _MAGIC:
                return False
        with closing(_open(path)) as base:
            return {"run_name", "step", "metrics"} <= _columns(base, "metrics")
    except (OSError, *_DAMAGED):
        return False


def read(path: Path, *, mapping: dict[str, str], config: Path | None) -> LoadedRun:
    """The run with the most rows in a project's database."""
    try:
        with closing(_open(path)) as base:
            if not {"run_name", "step", "metrics"} <= _columns(base, "metrics"):
                raise RunError(f"{path}: no table of metrics as trackio has it; is this the project's .db file?")
            runs = base.execute(
                "SELECT run_name, count(*) FROM metrics GROUP BY run_name ORDER BY count(*) DESC, run_name"
            ).fetchall()
            if not runs:
                raise RunError(f"{path}: no metrics in it; was the trainer stopped before its first log?")
            run = runs[0][0]
            found = base.execute(
                "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY id LIMIT ?", (run, MAX_ROWS)
            ).fetchall()
            settings = _settings(base, run)
    except _DAMAGED as error:
        raise RunError(f"{path}: not readable as a trackio database: {error}") from None
    notes = []
    if len(runs) > 1:
        notes.append(f"{len(runs) - 1} other runs of the project set aside, e.g. {runs[1][0]}: {run} has the most rows")
    records = [{"_step": step, **_object(text)} for step, text in found]
    rows, skipped, said = rows_of(records, path)
    return named_log(
        str(run),
        rows,
        format=NAME,
        files=[path],
        mapping=mapping,
        config=config,
        settings=settings,
        skipped=skipped,
        notes=notes + said,
    )


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in base.execute(f"PRAGMA table_info({table})")}


def _settings(base: sqlite3.Connection, run: str) -> dict[str, Any]:
    if "config" not in _columns(base, "configs"):
        return {}
    found = base.execute("SELECT config FROM configs WHERE run_name = ?", (run,)).fetchone()
    return {key: value for key, value in _object(found[0]).items() if not key.startswith("_")} if found else {}


def _object(text: Any) -> dict[str, Any]:
    try:
        value = loads_python(text)
    except (ValueError, TypeError):
        return {}
    return value if isinstance(value, dict) else {}
