"""A run that is still being written, whatever writes it: what came since the last look, as ticks for a `Watch`.

A run directory of ours is followed by byte offset, and so are consoles and JSON lines of other trainers: their lines
are read once (`readers.tailing`). Only what lines mean together is settled
again with all of them (a progress bar's total, which of two names a trainer uses), as a reading of the whole would.
Other formats (tables, event files, data bases, one JSON value) are read anew when they grew. Only the rows that are new
are added to what is held, so detectors go on where they were. Reading takes at most a tenth of the time: a log that
takes a second to read is looked at every ten.

The newest row of a foreign log waits until another one follows or the log has rested for `SETTLED` looks: trainers
write a step in several lines, and a row judged by half of its numbers would not be what `diagnose` judges later. It
rests by the files it is read from, whatever else is written beside them.

A log that was rotated, or cut, is gone on with (`runs.continued`): what was judged stands, and is not judged again. The
rows that came between the last look and the rotation are taken from where it moved them, if that lies beside the log.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stabilizer.core.records import Action
from stabilizer.formats.tailing import Tails
from stabilizer.runs.continued import continued, holds, row
from stabilizer.runs.history import History, RunView
from stabilizer.runs.journal import newest
from stabilizer.runs.listing import run_state
from stabilizer.runs.loaded import LoadedRun, NoMetrics, load_own
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.trainers.stabilizer import log as own

SETTLED = 2
"""Looks without growth after which the newest row counts as complete."""
PARTS = 5
"""Files beside a log, the newest ones, that are looked at for the part of it that was moved away."""
MOST_FILES = 1000
"""Files of a folder whose growth is looked at, beside those that the log is read from."""
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
    cut: bool = False
    """The log was rotated or cut: what was read of it stands, and it is gone on with."""
    trouble: str = ""
    """Why the log, which was read before, can't be read now; said once."""


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
        self._log = path
        """The file that is followed: of a folder the one that it was read from first, where that is one alone."""
        self._run: LoadedRun | None = None
        self._failed: LoadedRun | None = None
        """What is there instead of a run, where training failed before its first row."""
        self._held: dict[int, History] = {}
        self._seen: list[tuple[int, int]] = []
        self._part: list[tuple[int, int]] = []
        """Rows that the log held when it was read last; fewer than were seen once it was cut."""
        self._cut = False
        """It was, and that was not told yet."""
        self._trouble: str | None = None
        """Why it can't be read; empty once that was told."""
        self._files: _Files | None = None
        self._own: _Files = {}
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
        files = _files(self._path, self._sources())
        grew = self._files is None or self._among(files) != self._own
        changed = files != self._files
        self._rested = 0 if grew else self._rested + 1
        if changed and time.monotonic() >= self._not_before:
            first, self._files = self._files is None, files
            grew = self._read(first) or grew
            self._own = self._among(files)
            self._rested = 0 if grew else self._rested
        elif grew:
            return News(grew=True)
        news = self._news(grew) if self._run else News(grew=grew)
        if self._rested:
            news.trouble, self._trouble = self._trouble or "", self._trouble and ""
        return news

    def _sources(self) -> list[Path]:
        """The files that the run was read from, so far as that is known."""
        return [Path(file) for file in self._run.source.files] if self._run else []

    def _among(self, files: _Files) -> _Files:
        """Those files by whose growth the log rests or goes on."""
        sources = set(self._sources())
        own = {file: known for file, known in files.items() if sources & {file, _of_base(file), *file.parents}}
        return own or files

    def _read(self, first: bool) -> bool:
        """Read what is there; whether it holds more than was known."""
        began = time.monotonic()
        known = self._failed or self._run
        try:
            with self._tails:
                run = self._loaded()
        except RunError as error:
            self._tails = Tails()
            failed = isinstance(error, NoMetrics) and bool(error.run.history.events)
            self._failed = error.run if isinstance(error, NoMetrics) and failed else None
            if self._run is None and first and not failed:
                raise  # not a log at all, and a person waits for an answer
            if self._run and self._trouble is None:  # being rewritten just now, unless it stays so
                self._trouble = str(error)
            return self._failed is not None and known is None
        finally:
            self._not_before = time.monotonic() + (time.monotonic() - began) * (1 / DUTY - 1)
        self._failed, self._trouble = None, None
        self._run = self._gone_on(run)
        return known is None or _extent(known) != _extent(self._run)

    def _loaded(self) -> LoadedRun:
        """The run as it can be read: of a folder in which a part of the log was kept, which then holds two, the log."""
        try:
            run = self._load(self._path)
        except RunError:
            if self._run is None or not self._log.is_file():
                raise
            return self._load(self._log)
        if self._run is None and len(run.source.files) == 1:
            self._log = Path(run.source.files[0])
        return run

    def _gone_on(self, run: LoadedRun) -> LoadedRun:
        """The run that was read, or where its beginning is gone, with what was read before."""
        if self._run is None or self._covers(run):
            self._part, self._cut = run.ticks, False
            return run
        if run.ticks[: len(self._part) - 1] != self._part[:-1]:  # not only grown since it was cut
            self._cut = True
            self._run = self._moved() or self._run
        taken = len(self._part) if self._grew_from_part(run) else 0
        self._part = run.ticks
        return continued(self._run, run, taken) or run

    def _grew_from_part(self, run: LoadedRun) -> bool:
        """It begins with the rows of the log as it was read last, by two of them, which went into what is held."""
        assert self._run is not None
        if not self._part or run.ticks[: len(self._part)] != self._part:
            return False
        for attempt, step in (self._part[0], self._part[max(0, len(self._part) - 2)]):
            shown = (row(history.view(step)) for history in self._run.histories.values())
            now = row(run.histories[attempt].view(step))
            if not any(numbers and holds(numbers, now) for numbers in shown):
                return False
        return True

    def _covers(self, run: LoadedRun) -> bool:
        """All rows that were seen are there, whatever they hold."""
        return run.ticks[: len(self._seen)] == self._seen

    def _moved(self) -> LoadedRun | None:
        """The log as it was when it was moved away or copied, from the files beside it."""
        if not self._log.is_file():
            return None
        beside = [file for file in self._log.parent.glob(f"{glob.escape(self._log.stem)}*") if file != self._log]
        for file in sorted(filter(Path.is_file, beside), key=_age)[:PARTS]:
            try:
                run = self._load(file)
            except RunError:
                continue
            if self._covers(run) and not self._rewritten(run):
                return run
        return None

    def _news(self, grew: bool) -> News:
        assert self._run is not None
        ticks = self._run.ticks if self._rested >= SETTLED else self._run.ticks[:-1]
        if len(ticks) < len(self._seen) and self._covers(self._run):
            ticks = self._seen
        anew = ticks[: len(self._seen)] != self._seen or self._rewritten(self._run)
        if anew:
            self._seen, self._held, self._cut = [], {}, False
        new = ticks[len(self._seen) :]
        self._seen = list(ticks)
        for attempt, held in self._held.items():  # a failure comes after the last row
            held.about, held.events = self._run.histories[attempt].about, self._run.histories[attempt].events
        cut = self._cut and bool(new or self._rested)  # shorter for a moment is what is written over
        self._cut = self._cut and not cut
        return News([self._take(attempt, step) for attempt, step in new], anew, grew=grew, cut=cut)

    def _rewritten(self, run: LoadedRun) -> bool:
        """Whether rows that were shown hold other numbers in `run`: another log is where the one was that was read."""
        last = len(self._seen) - 1
        for attempt, step in {self._seen[place * last // 4] for place in range(5)} if self._seen else ():
            shown = row(self._held[attempt].view(step)) if attempt in self._held else {}
            if not holds(shown, row(run.histories[attempt].view(step))):
                return True
        return False

    def _take(self, attempt: int, step: int) -> RunView:
        """Add one row to the history held, and give the view of it."""
        assert self._run is not None
        read = self._run.histories[attempt]
        if attempt not in self._held:
            self._held[attempt] = read.fork(step, attempt)
        held = self._held[attempt]
        held.append(step, row(read.view(step)))
        return held.view(step)


def follow(path: Path, load: Load) -> FollowedRun | FollowedLog:
    """Follow what is at `path`; `load` reads it when it is not a run directory of ours."""
    return FollowedRun(path) if own.recognises(path) else FollowedLog(path, load)


_Files = dict[Path, tuple[int, int, int]]
_WAL = "-wal"
"""What SQLite adds to a data base's name for the file in which new rows come first."""


def _of_base(file: Path) -> Path:
    """The data base of which a file holds the newest rows; any other file itself."""
    return file.with_name(file.name.removesuffix(_WAL))


def _files(path: Path, sources: Iterable[Path]) -> _Files:
    """What changes when a log grows: size, age and identity of the file, or of the files of the folder."""
    alone = path.is_file()
    below = [path, Path(f"{path}{_WAL}")] if alone else sorted(file for file in path.rglob("*") if file.is_file())
    known: _Files = {}
    for file in (*sources, *below[:MOST_FILES]):
        try:
            status = os.stat(file)
        except OSError:
            continue
        known[file] = status.st_size, status.st_mtime_ns, status.st_ino
    return known


def _age(file: Path) -> float:
    """Smaller for what was written later."""
    try:
        return -file.stat().st_mtime
    except OSError:
        return 0.0


def _extent(run: LoadedRun) -> tuple[object, ...]:
    """What differs when a log holds more."""
    history = run.history
    return len(run.ticks), run.ticks[-1:], len(history.events), run.source.files, len(history.names())
