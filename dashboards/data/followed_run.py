"""One run directory or log, read as it grows, for all viewers of it."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dashboards.data.checks import NO_CHECK, Check, Checks
from dashboards.data.files import modified_ns
from dashboards.data.logs import Log, LogReader
from dashboards.data.run_verdict import RunVerdict, checkable, recorded, verdict_of_reader
from stabilizer.core.records import Action, Event, Finding
from stabilizer.figures.families import every_chart
from stabilizer.runs.history import RunView
from stabilizer.runs.listing import SMALL_FILES
from stabilizer.runs.reader import MAX_SMALL, RunReader

Record = TypeVar("Record", Finding, Action)

FRESH_S = 0.2
"""Several viewers of one run share a refresh this long."""
Reader = RunReader | LogReader
"""The reader of a run directory or of a log."""


class FollowedRun:
    """One run directory, read as it grows, for all viewers of it. Hold `lock` while using `reader`."""

    log: Log | None = None
    """The log of another trainer that this is; None of a run directory."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        checks: Checks | None = None,
        annotations: Callable[[], Sequence[Event]] = tuple,
    ):
        self.path = path
        self.annotations = annotations
        """What viewers wrote at steps of the run."""
        self.clock = clock
        self.checks = checks
        self.lock = threading.RLock()
        self.reader: Reader | None = None
        self.rewrites = 0
        self._read = 0.0
        self._newest: dict[str, int] = {}
        self._attempt = -1
        self._checked: Any = None
        """The result of a check that viewers already have."""
        self._told = 0
        """How often that changed."""
        self._verdict: tuple[Any, RunVerdict] | None = None

    def refresh(self) -> Reader:
        """The reader, up to date, with what a check found where nobody else looked; whatever makes a directory
        unreadable is raised."""
        with self.lock:
            reader, found = self._up_to_date(), self.check().found
            if found is not None and not checkable(*recorded(reader)[:2]):
                found = None
            if found is not self._checked:
                self._checked = found
                self._told += 1
                self.rewrites += 1
            if found is None:
                return reader
            if isinstance(reader, LogReader):
                return replace(reader, findings=list(found.findings))
            shown = copy.copy(reader)  # the records of the run stay as they are
            shown.findings = list(found.findings)
            return shown

    def check(self) -> Check:
        """The state of a check of this run."""
        return self.checks.of(self.path) if self.checks else NO_CHECK

    def verdict(self) -> RunVerdict:
        """The verdict on the run, decided again only when something it rests on changed. Call `refresh` before."""
        with self.lock:
            reader, check = self.reader or self.refresh(), self.check()
            if isinstance(reader, LogReader):
                return verdict_of_reader(reader, check)
            files = tuple(modified_ns(self.path / name) for name in ("run.json", "summary.json"))
            key = (files, len(reader.findings), check)
            if self._verdict is None or self._verdict[0] != key:
                self._verdict = (key, verdict_of_reader(reader, check))
            return self._verdict[1]

    def _up_to_date(self) -> Reader:
        with self.lock:
            now, reader = time.monotonic(), self.reader
            if not isinstance(reader, RunReader):
                self._check()
                reader = self.reader = RunReader(self.path)
                self._settle(reader)
            elif now - self._read >= FRESH_S:
                try:
                    self._check()
                    fresh = reader.refresh()
                except Exception:
                    self.reader = None  # half-read records would be counted twice: start over next time
                    raise
                if reader.history.attempt != self._attempt:
                    self._settle(reader)
                for step, names in ((step, block.names) for block in fresh for step in block.steps):
                    for name in names:
                        if step <= self._newest.get(name, -1):
                            self.rewrites += 1  # a point that is drawn already changed, or one came in between
                        self._newest[name] = step
            self._read = now
            return reader

    def warm(self) -> None:
        """Begin to read in the background, before the page asks. Problems are raised when it does."""
        if self.reader is None:
            threading.Thread(target=self._warm, daemon=True).start()

    def _warm(self) -> None:
        with contextlib.suppress(Exception):
            self.refresh()

    def chart(self, id: str) -> tuple[tuple[str, ...], RunView]:
        """The metrics of one of this run's charts, and the view that holds them. KeyError for an unknown chart."""
        with self.lock:
            view = self.refresh().history.view()
        return every_chart(view)[id].metrics, view

    def _check(self) -> None:
        """Raise when the folder is gone, or when a small file is a pipe, which would block all viewers."""
        if not self.path.is_dir():
            raise ValueError(f"{self.path}: the folder of this run is gone")
        for name in SMALL_FILES:
            file = self.path / name
            if file.exists() and (not file.is_file() or file.stat().st_size > MAX_SMALL):
                raise ValueError(f"{file}: not a plain file of at most {MAX_SMALL >> 20} MB")

    def _settle(self, reader: RunReader) -> None:
        view = reader.history.view()
        self._attempt = view.attempt
        self._newest = {name: int(view.series(name).steps[-1]) for name in view.names()}
        self.rewrites += 1


class FollowedLogFile(FollowedRun):
    """A log of another trainer, which a thread of its own reads and judges."""

    def __init__(
        self,
        log: Log,
        clock: Callable[[], float] = time.time,
        checks: Checks | None = None,
        annotations: Callable[[], Sequence[Event]] = tuple,
    ):
        super().__init__(log.path, clock, checks, annotations)
        self.log: Log = log

    def _up_to_date(self) -> LogReader:
        """The log as far as it was read. Asking keeps it in memory and up to date."""
        with self.lock:
            self.reader, rewrites = reader, _ = self.log.wanted(self.clock())
            self.rewrites = rewrites + self._told
            return reader
