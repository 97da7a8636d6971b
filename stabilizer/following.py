"""A run that is still being written, whatever writes it: what came since the last look, as ticks for a `Watch`.

A run directory of ours is followed by byte offset, and so are consoles and JSON lines of other trainers: their lines
are read once (`readers.tailing`), and what was rotated or cut is read anew. Only what lines mean together is settled
again with all of them (a progress bar's total, which of two names a trainer uses), as a reading of the whole would.
Other formats (tables, event files, data bases, one JSON value) are read anew when they grew. Only the rows that are new
are added to what is held, so detectors go on where they were. Reading takes at most a tenth of the time: a log that
takes a second to read is looked at every ten.

The newest row of a foreign log waits until another one follows or the log has rested for `SETTLED` looks: trainers
write a step in several lines, and a row judged by half of its numbers would not be what `diagnose` judges later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stabilizer.readers import own
from stabilizer.readers.tailing import Tails
from stabilizer.records import Action
from stabilizer.runs.history import History, RunView
from stabilizer.runs.journal import newest
from stabilizer.runs.listing import run_state
from stabilizer.runs.loaded import LoadedRun, NoMetrics, load_own
from stabilizer.runs.reader import RunError, RunReader

SETTLED = 2
"""Looks without growth after which the newest row counts as complete."""
DUTY = 0.1
"""Largest share of the time that goes into reading."""
OVER = frozenset({"finished", "stopped", "failed", "preempted"})
"""States after which nothing more comes."""

Load = Callable[[Path], LoadedRun]


@dataclass
class News:
    """What one look brought."""

    views: list[RunView] = field(default_factory=list)
    """The run at every new row, oldest first."""
    anew: bool = False
    """The log was replaced or cut: the rows are another training's, and what was known of the old one is void."""
    over: bool = False
    """Nothing more will come."""
    asked: list[Action] = field(default_factory=list)
    """Proposals that wait for a person and were not told before."""
    grew: bool = False
    """The files of the log changed since the last look."""


class FollowedRun:
    """A run directory of ours."""

    def __init__(self, path: Path):
        self._reader = RunReader(path)
        self._seen: list[tuple[int, int]] = []
        self._told: set[str] = set()

    @property
    def run(self) -> LoadedRun:
        """The run as far as it was read."""
        return load_own(self._reader.path)

    @property
    def newest(self) -> None:
        """Nothing: how such a run ends stands in its status."""
        return None

    def look(self) -> News:
        """What was written since the last look."""
        self._reader.refresh()
        ticks = self._reader.ticks
        anew = ticks[: len(self._seen)] != self._seen
        new = ticks if anew else ticks[len(self._seen) :]
        self._seen = list(ticks)
        views = [self._reader.histories[attempt].view(step) for attempt, step in new]
        return News(views, anew, run_state(self._reader.status, time.time()) in OVER, self._questions())

    def _questions(self) -> list[Action]:
        """Only a run with --remedy approve waits for anybody."""
        if self._reader.status.get("remedy") != "approve":
            return []
        standing = newest(self._reader.actions).values()
        asked = [entry for entry in standing if entry.entry == "proposed" and entry.safety != "advice"]
        fresh = [entry for entry in asked if entry.hash not in self._told]
        self._told |= {entry.hash for entry in fresh}
        return fresh


class FollowedLog:
    """A log of another trainer: a file, or the folder that holds it."""

    def __init__(self, path: Path, load: Load):
        self._path, self._load = path, load
        self._run: LoadedRun | None = None
        self._failed: LoadedRun | None = None
        """What is there instead of a run, where training failed before its first row."""
        self._held: dict[int, History] = {}
        self._seen: list[tuple[int, int]] = []
        self._files: object = None
        self._rested = 0
        self._not_before = 0.0
        self._tails = Tails()

    @property
    def run(self) -> LoadedRun | None:
        """The run as far as it was read; None before its first row."""
        return self._run

    @property
    def newest(self) -> RunView | None:
        """Everything that was read, the row that waits for another one included; also that of a failed start."""
        run = self._failed or self._run
        return run.history.view() if run else None

    def look(self) -> News:
        """What was written since the last look."""
        files = _sizes(self._path)
        grew = files != self._files
        if grew and time.monotonic() < self._not_before:
            return News(grew=True)
        self._rested = 0 if grew else self._rested + 1
        if grew:
            began = time.monotonic()
            try:
                with self._tails:
                    self._run = self._load(self._path)
                self._failed = None
            except RunError as error:
                self._tails = Tails()
                failed = isinstance(error, NoMetrics) and error.run.history.events
                self._failed = error.run if failed else None
                if self._run is None and self._files is None and not failed:
                    raise  # not a log at all, and a person waits for an answer
                return News(grew=True)  # being rewritten just now
            finally:
                self._files = files
                self._not_before = time.monotonic() + (time.monotonic() - began) * (1 / DUTY - 1)
        return self._news(grew) if self._run else News(grew=grew)

    def _news(self, grew: bool) -> News:
        ticks = self._run.ticks if self._rested >= SETTLED else self._run.ticks[:-1]
        if len(ticks) < len(self._seen) and self._run.ticks[: len(self._seen)] == self._seen:
            ticks = self._seen
        anew = ticks[: len(self._seen)] != self._seen or self._rewritten()
        if anew:
            self._seen, self._held = [], {}
        new = ticks[len(self._seen) :]
        self._seen = list(ticks)
        for attempt, held in self._held.items():  # a failure comes after the last row
            held.about, held.events = self._run.histories[attempt].about, self._run.histories[attempt].events
        return News([self._take(attempt, step) for attempt, step in new], anew, grew=grew)

    def _rewritten(self) -> bool:
        """Whether rows that were shown hold other numbers now: another log is where the one was that was read.

        What joins a row later, as an evaluation does, changes no number that was there.
        """
        last = len(self._seen) - 1
        for attempt, step in {self._seen[place * last // 4] for place in range(5)} if self._seen else ():
            shown = row(self._held[attempt].view(step)) if attempt in self._held else {}
            now = row(self._run.histories[attempt].view(step))
            if any(now.get(name) != value and value == value for name, value in shown.items()):
                return True
        return False

    def _take(self, attempt: int, step: int) -> RunView:
        """Add one row to the history held, and give the view of it."""
        read = self._run.histories[attempt]
        if attempt not in self._held:
            self._held[attempt] = read.fork(step, attempt)
        held = self._held[attempt]
        held.append(step, row(read.view(step)))
        return held.view(step)


def row(view: RunView) -> dict[str, float]:
    """The numbers of a view's own step."""
    found = {name: view.series(name).last(1) for name in view.names()}
    return {name: float(last.values[0]) for name, last in found.items() if last.steps[0] == view.step}


def follow(path: Path, load: Load) -> FollowedRun | FollowedLog:
    """Follow what is at `path`; `load` reads it when it is not a run directory of ours."""
    return FollowedRun(path) if own.recognises(path) else FollowedLog(path, load)


def _sizes(path: Path) -> object:
    """What changes when a log grows: size, age and identity of the file, or of every file of the folder."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    known = []
    for file in files[:1000]:
        try:
            status = os.stat(file)
        except OSError:
            continue
        known.append((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
    return known
