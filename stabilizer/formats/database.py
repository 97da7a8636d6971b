"""Reads SQLite databases of other programs without a lock, without leaving a file, and within bounds.

A database may be hostile: a view or a virtual table can run an endless query, and a damaged tree can return the same
rows forever. So only plain tables that the reader names are read, each query has a time budget, and the rows may hold
no more bytes than the files do.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from stabilizer.runs.reader import RunError

DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""Errors of a damaged database. SQLite's own messages may hold bytes that are no text."""
BUDGET_S = 10.0
"""Seconds for reading a database, whatever its size."""
BUDGET_S_PER_MB = 2.0
"""Additional seconds for each MB of its files."""
RECOGNISE_BUDGET_S = 2.0
"""Seconds for looking at the columns of a database that may belong to any program."""
MAX_COPY_BYTES = 256 * 2**20
"""A database and its write-ahead log are copied up to this size. A larger one is read without its log."""
MAX_VALUE_BYTES = 16 * 2**20
"""One text or blob."""
TRIES = 3

T = TypeVar("T")

_MAGIC = b"SQLite format 3\0"
_STEPS_BETWEEN_LOOKS = 10_000
"""Instructions of SQLite's machine between two looks at the clock."""
_PLAIN = re.compile(r"CREATE TABLE\b", re.I)
_SCHEMA = frozenset({"sqlite_master", "sqlite_schema"})
_UNFINISHED = ("-wal", "-journal")
"""Suffixes of the files in which SQLite keeps what is not in the database yet, or what it has to undo."""


class Database:
    """Plain tables of one database, within a budget of time and of bytes."""

    def __init__(self, base: sqlite3.Connection, tables: Iterable[str], size: int, budget_s: float):
        self._base, self._tables = base, frozenset(tables)
        self._size, self._until = size, time.monotonic() + budget_s
        base.text_factory = lambda raw: raw.decode("utf-8", "replace")
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        base.execute("PRAGMA trusted_schema = OFF")
        base.execute("PRAGMA mmap_size = 0")
        base.set_authorizer(self._allowed)
        base.set_progress_handler(lambda: time.monotonic() > self._until, _STEPS_BETWEEN_LOOKS)

    def columns(self, table: str) -> set[str]:
        """The columns of a plain table, none where it is a view, a virtual table or absent."""
        made = self._base.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? AND rootpage > 0", (table,)
        ).fetchone()
        if not made or not isinstance(made[0], str) or not _PLAIN.match(made[0]):
            return set()
        return {row[1] for row in self._base.execute(f"PRAGMA table_info({table})")}

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query. An error where they hold more bytes than the database has."""
        left = self._size
        for row in self._base.execute(query, values):
            left -= 1 + sum(len(value) for value in row if isinstance(value, (str, bytes)))
            if left < 0:
                raise sqlite3.DatabaseError("it returns more rows than a file of its size can hold")
            if time.monotonic() > self._until:
                raise sqlite3.OperationalError("reading it takes too long for its size")
            yield row

    def _allowed(self, action: int, first: str | None, second: str | None, _: Any, inside: str | None) -> int:
        """SQLite asks before each part of a query: views, triggers and other tables are refused."""
        if inside is None and (
            action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION)
            or (action == sqlite3.SQLITE_READ and first in self._tables | _SCHEMA)
            or (action == sqlite3.SQLITE_PRAGMA and first == "table_info" and second in self._tables)
        ):
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY


def has_columns(path: Path, table: str, columns: set[str]) -> bool:
    """Whether the file is a database with a plain table of these columns. Never raises."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
        beside = _unfinished(path)
        size = _size(path, beside)
        with _opened(path, [table], size, RECOGNISE_BUDGET_S) as base:
            if base.columns(table) >= columns:
                return True
        if not beside or size > MAX_COPY_BYTES:
            return False
        with _copied(path) as copy, _opened(copy, [table], size, RECOGNISE_BUDGET_S, immutable=False) as base:
            return base.columns(table) >= columns  # the table may be in the write-ahead log alone
    except (OSError, RunError, *DAMAGED):
        return False


def read(path: Path, tables: Iterable[str], take: Callable[[Database], T], what: str) -> tuple[T, list[str]]:
    """What `take` makes of a database, with notes on what was left out. RunError where it can't be read."""
    tables = tuple(tables)
    try:
        for _ in range(TRIES):
            beside = _unfinished(path)
            size = _size(path, beside)
            if beside and size <= MAX_COPY_BYTES:
                with _copied(path) as copy, _opened(copy, tables, size, immutable=False) as base:
                    return take(base), []
            before = _stamp(path)
            try:
                with _opened(path, tables, size) as base:
                    taken: T | Exception = take(base)
            except (RunError, *DAMAGED) as error:
                taken = error
            if _stamp(path) != before:
                continue
            if isinstance(taken, Exception):
                raise taken
            return taken, [f"what is only in {file.name} is left out: it is too large" for file in beside]
    except DAMAGED as error:
        raise RunError(f"{path}: not readable as {what}: {error}") from None
    raise RunError(f"{path}: it changed while it was read, {TRIES} times; try again, or read a copy of it")


@contextmanager
def _opened(
    path: Path, tables: Iterable[str], size: int, budget_s: float | None = None, *, immutable: bool = True
) -> Iterator[Database]:
    budget_s = BUDGET_S + BUDGET_S_PER_MB * size / 1e6 if budget_s is None else budget_s
    mode = "mode=ro&immutable=1" if immutable else "mode=rw"
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as base:
        yield Database(base, tables, size, budget_s)


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """A copy of the database and of the files beside it, all of one moment, for as long as it is needed."""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="stabilizer-") as folder:
            copy = Path(folder, "copy")
            before = _stamp(path)
            for file in (path, *_unfinished(path)):
                with contextlib.suppress(FileNotFoundError):  # the writer is done with it: then the database changed
                    shutil.copyfile(file, f"{copy}{file.name.removeprefix(path.name)}")
            if _stamp(path) == before:
                yield copy
                return
    raise RunError(f"{path}: it changed while it was copied, {TRIES} times; try again, or read a copy of it")


def _unfinished(path: Path) -> list[Path]:
    beside = [path.with_name(path.name + suffix) for suffix in _UNFINISHED]
    return [file for file in beside if file.is_file() and file.stat().st_size]


def _size(path: Path, beside: list[Path]) -> int:
    return sum(file.stat().st_size for file in (path, *beside) if file.exists())


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
