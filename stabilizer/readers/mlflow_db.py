"""MLflow: the SQLite database of its tracking store, `mlflow.db` or whatever the tracking URI names.

What MLflow keeps by default from 3.7 on. Table `metrics` has a row a value (key, value, timestamp, step, run), `params`
the configuration as text, `runs` the names. Traps:

- NaN is stored as 0 with `is_nan`, an infinity as the largest number there is.
- A reader's lock can make a trainer's `log_metric` fail, so the file is opened as one that nobody writes, without any
  lock and without a file beside it. Where it changed meanwhile it is read again.
- What is still in a write-ahead log is not in the file yet; that is said.
- A database holds all runs of a server: the one with the most values is read, and the others are named.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from stabilizer.readers.mlflow import in_order, setting, theirs
from stabilizer.readers.names import named_log
from stabilizer.readers.rows import number, step_number
from stabilizer.readers.steps import MAX_NAMES
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError

NAME = "mlflow_db"
WHAT = "the SQLite database of an MLflow tracking store, e.g. mlflow.db"

MAX_ROWS = 10_000_000
TRIES = 3
_DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged database ends in: its own messages may hold bytes that are no text."""
_MAGIC = b"SQLite format 3\0"
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
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if file.read(16) != _MAGIC:
                return False
        with closing(_open(path)) as base:
            return _columns(base, "metrics") >= _COLUMNS
    except (OSError, *_DAMAGED):
        return False


def read(path: Path, *, mapping: dict[str, str], config: Path | None) -> LoadedRun:
    """The run with the most values in a tracking store."""
    for _ in range(TRIES):
        before = _stamp(path)
        found: _Found | sqlite3.Error | UnicodeDecodeError
        try:
            with closing(_open(path)) as base:
                found = _found(base, path)
        except _DAMAGED as error:
            found = error
        if _stamp(path) == before:
            break
    else:
        raise RunError(f"{path}: it changed while it was read, {TRIES} times; try again, or read a copy of it")
    if isinstance(found, _DAMAGED):
        raise RunError(f"{path}: not readable as a database of MLflow: {found}")
    notes = []
    if found.others:
        notes.append(f"{found.others} other runs set aside, e.g. {found.example}: {found.name} has the most values")
    waiting = path.with_name(path.name + "-wal")
    if waiting.is_file() and waiting.stat().st_size:
        notes.append(f"the newest values may still be in {waiting.name}, which is left alone")
    if found.skipped:
        notes.append(f"{found.skipped} values left out: no number with a name and a step")
    return named_log(
        found.name, in_order(found.lines), format=NAME, files=[path], mapping=mapping, config=config,
        settings=found.settings, skipped=found.skipped, notes=notes,
    )  # fmt: skip


def _found(base: sqlite3.Connection, path: Path) -> _Found:
    if not _columns(base, "metrics") >= _COLUMNS:
        raise RunError(f"{path}: no table of metrics as MLflow has it; is this the tracking store's database?")
    runs = base.execute(
        "SELECT run_uuid, count(*) FROM metrics WHERE key NOT LIKE 'system/%' "
        "GROUP BY run_uuid ORDER BY count(*) DESC, run_uuid"
    ).fetchall()
    if not runs:
        raise RunError(f"{path}: no metrics in it; was the trainer stopped before its first log?")
    run, count = runs[0]
    if count > MAX_ROWS:
        raise RunError(f"{path}: {count:,} values are more than the {MAX_ROWS:,} this reader takes")
    lines: list[tuple[float, int, str, float]] = []
    names: set[str] = set()
    skipped = 0
    rows = base.execute("SELECT timestamp, step, key, value, is_nan FROM metrics WHERE run_uuid IS ?", (run,))
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
    example = _name(base, runs[1][0]) if len(runs) > 1 else ""
    return _Found(_name(base, run), len(runs) - 1, example, lines, _settings(base, run), skipped)


def _open(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    base.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return base


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    """Those of a plain table: a view may never come to an end."""
    plain = base.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    return {row[1] for row in base.execute(f"PRAGMA table_info({table})")} if plain else set()


def _name(base: sqlite3.Connection, run: Any) -> str:
    """The run's name where it has one, otherwise its id."""
    if {"name", "run_uuid"} <= _columns(base, "runs"):
        found = base.execute("SELECT name FROM runs WHERE run_uuid IS ?", (run,)).fetchone()
        if found and isinstance(found[0], str) and found[0]:
            return found[0][:250]
    return str(run)[:250]


def _settings(base: sqlite3.Connection, run: Any) -> dict[str, Any]:
    if not {"key", "value", "run_uuid"} <= _columns(base, "params"):
        return {}
    found = base.execute("SELECT key, value FROM params WHERE run_uuid IS ? LIMIT 2000", (run,))
    return {str(key): setting(value) for key, value in found if isinstance(value, str)}
