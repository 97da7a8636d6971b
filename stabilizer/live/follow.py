"""Following a run that is still being written, by any trainer: the rows since the last look, for a `Watch`.

Run directories, consoles and JSON lines are followed by byte offset, so that each line is read once
(`formats.tailing`). What several lines decide together (the total of a progress bar, which of two names a trainer
uses) is computed again from all of them, as in a reading of the whole file. Other formats (tables, event files,
databases, one JSON value) are read again whenever they grew. Only new rows are added to the history, so that detectors
continue where they were. Reading takes at most a tenth of the time: a log that takes one second to read is read every
ten seconds.

Trainers write a step in several lines, and a row judged by half of its numbers would differ from what `diagnose` judges
later. The newest row of a foreign log therefore waits until another row follows, or until the files of the log did not
grow for `SETTLED` looks.

A log that was rotated or truncated is continued (`runs.continued`): results are kept, and no row is judged twice. Rows
between the last look and the rotation are read from the rotated file, if it lies beside the log.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterable, Sequence
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
"""Newest files beside a log that are searched for its rotated part."""
MOST_FILES = 1000
"""Files of a folder whose growth is checked, in addition to the files of the log."""
DUTY = 0.1
"""Largest share of the time spent on reading."""
OVER = frozenset({"finished", "stopped", "failed", "preempted"})
"""States of a run that has ended."""

Load = Callable[[Path], LoadedRun]


@dataclass
class News:
    """What one look brought."""

    views: list[RunView] = field(default_factory=list)
    """The run at every new row, oldest first."""
    replaced: bool = False
    """The log was replaced by that of another run: nothing known of the old one applies."""
    over: bool = False
    """The run has ended."""
    asked: list[Action] = field(default_factory=list)
    """Proposals that wait for a user and were not reported before."""
    grew: bool = False
    """Whether the files of the log changed since the last look."""
    cut: bool = False
    """Whether the log was rotated or truncated: its rows are kept, and new ones follow them."""
    stalled: RunView | None = None
    """The run at its newest row, where a watchdog reported a stall after that row was judged."""
    trouble: str = ""
    """Why the log, which was readable before, can't be read now; reported once."""


class FollowedRun:
    """A run directory of `stabilizer train`."""

    def __init__(self, path: Path):
        self._reader = RunReader(path, spills=True)
        self._seen = self._starts = 0
        """Rows shown so far, and how often the reader had begun by then."""
        self._shown = hash(())
        """A digest of these rows."""
        self._asked: set[str] = set()
        self._stalls = 0

    @property
    def run(self) -> LoadedRun:
        """The run as read so far."""
        return load_own(self._reader.path)

    @property
    def newest(self) -> None:
        """None: the status of such a run says how it ended."""
        return None

    def look(self) -> News:
        """What was written since the last look."""
        self._reader.refresh()
        ticks, replaced = self._reader.ticks, False
        if self._starts != self._reader.starts:  # the same rows again, or other ones
            replaced = len(ticks) < self._seen or _digest(ticks[: self._seen]) != self._shown
            self._starts = self._reader.starts
        if replaced:
            self._seen, self._shown = 0, hash(())
        new = ticks[self._seen :]
        self._seen, self._shown = len(ticks), _digest(new, self._shown)
        views = [self._reader.histories[attempt].view(step) for attempt, step in new]
        over = run_state(self._reader.status, time.time()) in OVER
        return News(views, replaced, over, self._questions(), stalled=self._stalled())

    def _stalled(self) -> RunView | None:
        """The run as it is now, if a stall was reported since the last look."""
        before, self._stalls = self._stalls, sum("stall" in event.data for event in self._reader.events)
        return self._reader.history.view(max(self._reader.history.step, 0)) if self._stalls > before else None

    def _questions(self) -> list[Action]:
        """New proposals that wait for an answer, which only happens with `--remedy approve`."""
        if self._reader.status.get("remedy") != "approve":
            return []
        latest = newest(self._reader.actions).values()
        asked = [entry for entry in latest if entry.entry == "proposed" and entry.safety != "advice"]
        fresh = [entry for entry in asked if entry.hash not in self._asked]
        self._asked |= {entry.hash for entry in fresh}
        return fresh


def _digest(ticks: Iterable[tuple[int, int]], before: int = hash(())) -> int:  # noqa: B008 (a constant)
    """A digest of rows, continued from that of the rows before them."""
    for tick in ticks:
        before = hash((before, tick))
    return before


class FollowedLog:
    """A log of another trainer: a file, or the folder that holds it."""

    def __init__(self, path: Path, load: Load):
        self._path, self._load = path, load
        self._log = path
        """The file that is followed; for a folder the file it was first read from, if it is only one."""
        self._run: LoadedRun | None = None
        self._failed: LoadedRun | None = None
        """The run without rows, when training failed before its first one."""
        self._held: dict[int, History] = {}
        self._seen: list[tuple[int, int]] = []
        self._part: Sequence[tuple[int, int]] = []
        """Rows of the log when it was last read; after a rotation fewer than were seen."""
        self._cut = False
        """Whether the log was rotated or truncated and this was not reported yet."""
        self._trouble: str | None = None
        """Why it can't be read; empty once that was reported."""
        self._files: _Files | None = None
        self._own: _Files = {}
        self._rested = 0
        self._not_before = 0.0
        self._tails = Tails()

    @property
    def run(self) -> LoadedRun | None:
        """The run as read so far; None before its first row."""
        return self._run

    @property
    def newest(self) -> RunView | None:
        """Everything read so far, including the row that still waits, also for a failed start."""
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
        """The files that the run was read from, if known."""
        return [Path(file) for file in self._run.source.files] if self._run else []

    def _among(self, files: _Files) -> _Files:
        """The files whose growth counts as growth of the log."""
        sources = set(self._sources())
        own = {file: known for file, known in files.items() if sources & {file, _of_base(file), *file.parents}}
        return own or files

    def _read(self, first: bool) -> bool:
        """Read the log; whether it holds more than before."""
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
                raise  # not a log at all: tell the user now
            if self._run and self._trouble is None:  # reported only if it stays unreadable: it may be being rewritten
                self._trouble = str(error)
            return self._failed is not None and known is None
        finally:
            self._not_before = time.monotonic() + (time.monotonic() - began) * (1 / DUTY - 1)
        self._failed, self._trouble = None, None
        self._run = self._gone_on(run)
        return known is None or _extent(known) != _extent(self._run)

    def _loaded(self) -> LoadedRun:
        """Read the path, or the log alone when the folder can't be read because it holds a rotated part too."""
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
        """The run that was read; if its beginning is gone, continued from what was read before."""
        if self._run is None or self._covers(run):
            self._part, self._cut = run.ticks, False
            return run
        if run.ticks[: len(self._part) - 1] != self._part[:-1]:  # truncated again, not only grown
            self._cut = True
            self._run = self._moved() or self._run
        taken = len(self._part) if self._grew_from_part(run) else 0
        self._part = run.ticks
        return continued(self._run, run, taken) or run

    def _grew_from_part(self, run: LoadedRun) -> bool:
        """Whether it begins with the rows that were last read, judged by two rows that are in the history."""
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
        """Whether all rows that were seen are there, with any values."""
        return run.ticks[: len(self._seen)] == self._seen

    def _moved(self) -> LoadedRun | None:
        """The rotated part of the log, from the files beside it."""
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
        replaced = ticks[: len(self._seen)] != self._seen or self._rewritten(self._run)
        if replaced:
            self._seen, self._held, self._cut = [], {}, False
        new = ticks[len(self._seen) :]
        self._seen = list(ticks)
        for attempt, held in self._held.items():  # a failure follows the last row
            held.about, held.events = self._run.histories[attempt].about, self._run.histories[attempt].events
        cut = self._cut and bool(new or self._rested)  # a file that is being rewritten is shorter for a moment
        self._cut = self._cut and not cut
        return News([self._take(attempt, step) for attempt, step in new], replaced, grew=grew, cut=cut)

    def _rewritten(self, run: LoadedRun) -> bool:
        """Whether rows that were judged have other values in `run`, so that it is the log of another run."""
        last = len(self._seen) - 1
        for attempt, step in {self._seen[place * last // 4] for place in range(5)} if self._seen else ():
            shown = row(self._held[attempt].view(step)) if attempt in self._held else {}
            if not holds(shown, row(run.histories[attempt].view(step))):
                return True
        return False

    def _take(self, attempt: int, step: int) -> RunView:
        """Add one row to the history and return its view."""
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
"""Suffix of the file to which SQLite writes new rows first."""


def _of_base(file: Path) -> Path:
    """The database whose newest rows a file holds; any other file itself."""
    return file.with_name(file.name.removesuffix(_WAL))


def _files(path: Path, sources: Iterable[Path]) -> _Files:
    """Size, time and identity of the file, or of the files of the folder: they change when the log grows."""
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
    """A sort key: newer files first."""
    try:
        return -file.stat().st_mtime
    except OSError:
        return 0.0


def _extent(run: LoadedRun) -> tuple[object, ...]:
    """Values that change when a log holds more."""
    history = run.history
    return len(run.ticks), run.ticks[-1:], len(history.events), run.source.files, len(history.names())
