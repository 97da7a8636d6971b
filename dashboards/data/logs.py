"""Logs of other trainers, looked at where they lie: found, read and judged by a thread of their own.

A request never waits for any of it: it gets what is known so far, and the page says what is still to come. Nothing is
written. What is held is capped: the number of logs, the size of one, the time for judging one, and how many stay in
memory as a whole; of the others the line in the list remains.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dashboards.security.containment import Containment
from stabilizer.analysis.analyse import Analysis, analyse
from stabilizer.core.records import Action, Event, Finding
from stabilizer.core.text import spoken
from stabilizer.formats import tensorboard
from stabilizer.formats.tailing import Tails
from stabilizer.runs.history import History, Series
from stabilizer.runs.listing import KEY_NUMBERS, Extremes, Reading, RunLine, recipe, settings, whole_number, word
from stabilizer.runs.loaded import LoadedRun, NoMetrics, Texts
from stabilizer.runs.trend import Trend
from stabilizer.trainers.folder import may_be_log
from stabilizer.trainers.places import MAX_LOGS, find, format_of
from stabilizer.trainers.reading import load

MAX_BYTES = 256 * 2**20
"""Larger logs are listed and not read."""
MAX_FILES = 1000
BUDGET_S = 20.0
"""Time to judge one log; detectors stop after it, and the page reports the step they reached."""
HELD = 24
"""Logs kept in memory as a whole: the most recently viewed."""
WANTED_S = 60.0
"""A log somebody looked at less than this long ago comes before the others."""
SCAN_S, PAUSE_S = 10.0, 1.0
DUTY = 0.1
"""Largest share of the time that goes into reading a log that grows."""
WRITING_S = 120.0
"""A log that grew less than this long ago is being written."""
GRAVE = ("warn", "critical", "crashed")
"""Verdicts that hold for a log of which only a part was looked at."""
READING = "Loading this log; its charts appear in a moment."
JUDGING = "Detectors are still running on this log; findings appear here."


@dataclass(frozen=True)
class LogReader:
    """A log as far as it was read, with what a page asks of a run directory's reader. Never changed, only replaced."""

    path: Path
    about: dict[str, Any]
    status: dict[str, Any]
    histories: dict[int, History]
    ticks: list[tuple[int, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    skipped: int = 0
    notes: tuple[str, ...] = ()
    verdict: str = "waiting"
    texts: Texts = field(default_factory=Texts)
    reach: int | None = None
    """The step at which detectors stopped because their time was up; None where they saw all there is."""

    @property
    def names(self) -> frozenset[str]:
        """Its metrics."""
        return frozenset(self.history.names())

    @property
    def history(self) -> History:
        """The current lineage."""
        return self.histories[max(self.histories)]

    def checkpoints(self) -> list[Event]:
        """None: where another trainer puts its states is not known."""
        return []


class Later(Exception):
    """Somebody waits for another log."""


class Log:
    """One log: what is known of it, and when it is examined next."""

    def __init__(self, path: Path, format: str):
        self.path, self.format = path, format
        self.asked = -math.inf
        self.hidden = False
        self._lock = threading.Lock()
        self._line: RunLine | None = None
        self._status: dict[str, Any] = {}
        self._reader = _waiting(path, "being read", (READING,))
        self._rewrites = 0
        self._refused = False
        self._held: LoadedRun | None = None
        self._tails = Tails()
        self._files: tuple[Any, ...] | None = None
        self._judged: tuple[Any, ...] | None = None
        self._look_after, self._read_after, self._judge_after = -math.inf, -math.inf, -math.inf

    def wanted(self, now: float) -> tuple[LogReader, int]:
        """The log for a page, and how often it changed other than by growing. Asking moves it to the front."""
        self.asked = time.monotonic()
        with self._lock:
            return replace(self._reader, status=_timed(self._reader.status, now)), self._rewrites

    @property
    def findings(self) -> list[Finding]:
        """The findings so far. Asking does not move the log to the front of the queue."""
        with self._lock:
            return self._reader.findings

    def line(self, id: str, now: float) -> RunLine:
        """The log in a list."""
        with self._lock:
            line = self._line
            if line is None:
                return RunLine(id, self.path, "being read", source=self.format, verdict="waiting")
            return replace(line, id=id, state=str(_timed(self._status, now)["state"]))

    # --- in the thread ------------------------------------------------------------------------------------------------

    def due(self, now: float) -> bool:
        """Whether the log needs work. One without viewers is examined every `SCAN_S`."""
        if now - self.asked > WANTED_S:
            if now < self._look_after:
                return self._to_judge(now)
            self._look_after = now + SCAN_S
        return self._to_read(files_of(self.path), now) or self._to_judge(now)

    def read(self, urgent: threading.Event, budget: float = BUDGET_S) -> None:
        """Read it when it changed, then judge it. `Later` when somebody waits for another one meanwhile."""
        files, began = files_of(self.path), time.monotonic()
        try:
            if self._to_read(files, began):
                if sum(size for _, size, _, _ in files) > MAX_BYTES:
                    raise ValueError(
                        f"it is larger than {MAX_BYTES >> 20} MB, so it is not read in place; "
                        "convert it with `stabilizer import`"
                    )
                with self._tails if self._held is not None else contextlib.nullcontext():  # it grows: read on
                    run = loaded(self.path, self.format)
                self._take(run, files)
                self._read_after = time.monotonic() + (time.monotonic() - began) * (1 / DUTY - 1)
            if self._to_judge(time.monotonic()):
                began = time.monotonic()
                watched = _Watched(**vars(self._held), until=began + budget, urgent=urgent)
                self._judge(analyse(watched), watched)
                self._judge_after = time.monotonic() + (time.monotonic() - began) * (1 / DUTY - 1)
        except Later:
            raise
        except Exception as error:  # whatever a log holds, the list stays up and reports it
            self._refuse(error, files)

    def _to_read(self, files: tuple[Any, ...], now: float) -> bool:
        if files == self._files:
            return self._held is None and now - self.asked <= WANTED_S and not self._refused
        return now >= self._read_after

    def _to_judge(self, now: float) -> bool:
        return self._held is not None and self._judged != self._files and now >= self._judge_after

    def let_go(self) -> None:
        """Free the numbers; the line stays."""
        with self._lock:
            if self._held is not None and self._judged == self._files:
                waiting = _waiting(self.path, "being read", (READING,))
                known = self._reader
                self._held, self._reader = (
                    None,
                    replace(waiting, findings=known.findings, verdict=known.verdict, reach=known.reach),
                )
                self._tails = Tails()

    def rested(self) -> None:
        """Look at it now, however short ago that was done."""
        self._look_after = -math.inf

    @property
    def waits(self) -> bool:
        """Whether a viewer has to wait for its metrics."""
        return self._held is None and not self._refused

    @property
    def held(self) -> bool:
        """Whether its metrics are in memory."""
        return self._held is not None

    def _take(self, run: LoadedRun, files: tuple[Any, ...]) -> None:
        about = dict(run.history.about)
        steps = [step for _, step in run.ticks] or [0]
        status = {"state": "log", "step": max(steps), "steps": about.get("steps"), "t": _newest(files)}
        if self._judged == files:  # read again for a viewer: what it ended with is known
            status["crashed"] = self._status.get("crashed", False)
        reader = LogReader(
            self.path,
            {**about, "trainer": run.source.trainer, "config": about.get("config") or {}},
            status,
            run.histories,
            list(run.ticks),
            actions=list(run.actions),
            events=list(run.history.events),
            skipped=run.source.skipped_lines,
            notes=_told(run) if self._judged == files else (*_told(run), JUDGING),
            texts=run.texts,
        )
        with self._lock:
            before = self._reader
            if not _grown(before, reader):
                self._rewrites += 1
            # keep the findings until the log is judged again
            reader = replace(reader, findings=before.findings, verdict=before.verdict, reach=before.reach)
            self._held, self._files, self._reader = run, files, reader
            self._line, self._status = _line(reader, run, self.format), status
            self._refused = self.hidden = False

    def _judge(self, found: Analysis, watched: _Watched) -> None:
        findings = list(found.records)
        notes = _told(watched)
        if watched.stopped is not None:
            notes += (
                f"Detectors stopped at step {watched.stopped:,} after {spoken(BUDGET_S)}; "
                "`stabilizer diagnose` checks the whole log.",
            )
        # of a log that was looked at in part, what was found is known, and that all is well is not
        told = found.verdict if watched.stopped is None or found.verdict in GRAVE else ""
        with self._lock:
            if findings != self._reader.findings or told != self._reader.verdict:
                self._rewrites += 1
            self._status = status = {**self._reader.status, "crashed": found.verdict == "crashed"}
            self._reader = replace(
                self._reader, findings=findings, verdict=told, notes=notes, status=status, reach=watched.stopped
            )
            if self._line is not None:
                self._line = replace(self._line, verdict=told, worst=found.worst or "", reach=watched.stopped)
            self._judged = self._files

    def _refuse(self, error: Exception, files: tuple[Any, ...]) -> None:
        words = (str(error) or type(error).__name__)[:600]
        with self._lock:
            self._rewrites += 1
            self._held, self._files, self._judged, self._tails = None, files, files, Tails()
            self._reader = _waiting(self.path, "unreadable", (f"This log can't be read: {words}",))
            self._line = RunLine("", self.path, "unreadable", problem=words, source=self.format)
            self._status = self._reader.status
            self._refused = True
            self.hidden = self.format in ("json_log", "table")  # it only looked like a log


class Logs:
    """All logs of other trainers under some roots. Safe to share between threads; `start` gives it its own."""

    def __init__(self, roots: Sequence[Path]):
        self.roots = tuple(roots)
        self._lock = threading.Lock()
        self._logs: dict[Path, Log] = {}
        self._formats: dict[Path, tuple[Any, str]] = {}
        self._urgent = threading.Event()
        self._stopped = threading.Event()
        self._scanned = -math.inf

    def paths(self) -> list[Path]:
        """Where the logs lie."""
        with self._lock:
            return [path for path, log in self._logs.items() if not log.hidden]

    def get(self, path: Path) -> Log | None:
        """The log at a path that was found."""
        with self._lock:
            log = self._logs.get(path)
        if log is not None and log.waits:
            log.asked = time.monotonic()
            self._urgent.set()
        return log

    def findings(self, path: Path) -> list[Finding] | None:
        """The findings in a log; None when the path is none."""
        with self._lock:
            log = self._logs.get(path)
        return log.findings if log else None

    def line(self, path: Path, id: str, now: float) -> RunLine | None:
        """A log's line in a list, None when the path is none."""
        with self._lock:
            log = self._logs.get(path)
        return log.line(id, now) if log else None

    # --- the thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for logs, read them, and keep at it until `stop`."""
        threading.Thread(target=self._go, name="logs", daemon=True).start()

    def stop(self) -> None:
        """End the thread after what it is doing."""
        self._stopped.set()

    def scan(self) -> None:
        """Search for logs again; known ones keep their state."""
        before, self._formats = self._formats, {}

        def ask(path: Path) -> str:
            return self._format(path, before)

        inside = Containment(self.roots)  # new each time: a link may appear deep in a folder
        places = [place for root in self.roots for place in find(root, ask)][:MAX_LOGS]
        found = [place for place in places if inside.holds(place.path)]
        with self._lock:
            self._logs = {path: self._logs.get(path) or Log(path, format) for path, format in found}

    def settle(self, budget: float = BUDGET_S) -> None:
        """Look for logs and do all that is due, now."""
        self.scan()
        for known in self._logs.values():
            known.rested()
        while log := self._next():
            log.read(threading.Event(), budget)

    def _go(self) -> None:
        while not self._stopped.is_set():
            now = time.monotonic()
            if now - self._scanned >= SCAN_S:
                with contextlib.suppress(OSError, RecursionError):  # a folder that goes away: it is looked at again
                    self.scan()
                self._scanned = time.monotonic()
            self._urgent.clear()
            log = self._next()
            if log is None:
                self._urgent.wait(PAUSE_S)
                continue
            try:
                log.read(self._urgent if now - log.asked > WANTED_S else threading.Event())
            except Later:
                continue
            self._let_go()

    def _next(self) -> Log | None:
        now = time.monotonic()
        with self._lock:
            logs = sorted(self._logs.values(), key=lambda log: -log.asked)
        return next((log for log in logs if log.due(now)), None)

    def _let_go(self) -> None:
        with self._lock:
            held = sorted((log for log in self._logs.values() if log.held), key=lambda log: -log.asked)
        for place, log in enumerate(held):
            if place >= HELD or time.monotonic() - log.asked > WANTED_S:
                log.let_go()

    def _format(self, path: Path, before: dict[Path, tuple[Any, str]]) -> str:
        """The format of a file, asked again only when it is another file, or grew and was none before."""
        try:
            status = path.stat()
        except OSError:
            return ""
        key, known = (status.st_ino, status.st_size, status.st_mtime_ns), before.get(path)
        if known is None or known[0] != key and not (known[1] and known[0][0] == key[0]):
            known = (key, format_of(path))
        self._formats[path] = known
        return known[1]


@dataclass
class _Watched(LoadedRun):
    """A run that is replayed until the time is up or somebody waits for another; requests get their turn between."""

    until: float = math.inf
    urgent: threading.Event = field(default_factory=threading.Event)
    stopped: int | None = None

    def views(self) -> Iterator[Any]:
        """The run tick by tick, as far as the time reaches."""
        for attempt, step in self.ticks:
            if self.urgent.is_set():
                raise Later
            if time.monotonic() > self.until:
                self.stopped = step
                return
            yield self.histories[attempt].view(step)
            time.sleep(0)


def _waiting(path: Path, state: str, notes: tuple[str, ...]) -> LogReader:
    return LogReader(path, {}, {"state": state}, {0: History({})}, notes=notes)


def _told(run: LoadedRun) -> tuple[str, ...]:
    return (f"Read in place from a log ({run.source.format}).", *run.source.notes[:5])


def _timed(status: dict[str, Any], now: float) -> dict[str, Any]:
    """The status with a state derived from the log, which rarely records that training ended."""
    if status.get("state") != "log":
        return status
    if status.get("crashed"):
        state = "failed"
    elif whole_number(status.get("steps")) and status["step"] >= status["steps"]:
        state = "finished"
    else:
        state = "running" if now - (status.get("t") or 0) < WRITING_S else "quiet"
    return {**status, "state": state, "t": None if state == "running" else status.get("t")}


def loaded(path: Path, format: str) -> LoadedRun:
    """The run in a log of a format, or in a run directory (of no format)."""
    try:  # beside event files there may be other logs, listed by themselves
        return load(path, format=format if format == tensorboard.NAME else None)
    except NoMetrics as failed:  # training ended before its first metric, and the log explains why
        return failed.run


def _line(reader: LogReader, run: LoadedRun, format: str) -> RunLine:
    view, config = run.history.view(), settings(reader.about.get("config"))
    numbers = {}
    for key, names in KEY_NUMBERS.items():
        if name := next((name for name in names if name in view), None):
            series = view.series(name)
            trend = Trend(series.values.tolist()).points()
            numbers[key] = Reading(name, float(series.values[-1]), int(series.steps[-1]), tuple(trend))
    task, trainer = word(reader.about.get("task")), word(run.source.trainer)
    written = reader.status.get("t")
    return RunLine(
        id="",
        path=reader.path,
        state="quiet",
        step=reader.status["step"],
        steps=whole_number(reader.status["steps"]),
        verdict=reader.verdict,
        task=task,
        trainer=trainer,
        heartbeat=written,
        created=written,
        numbers=numbers,
        measured=reader.names,
        extremes={name: _extremes(view.series(name)) for name in view.names()},
        reach=reader.reach,
        settings=config,
        recipe=recipe(task, trainer, config),
        source=format,
        reward=numbers["reward"].last if "reward" in numbers else None,
        accuracy=numbers["accuracy"].last if "accuracy" in numbers else None,
    )


def _extremes(series: Series) -> Extremes:
    known = series.finite().values
    last = float(series.values[-1])
    return Extremes(last, float(known.min()), float(known.max())) if len(known) else Extremes(last, None, None)


def _grown(before: LogReader, after: LogReader) -> bool:
    """Whether all earlier points are still there, so that a viewer needs only the new ones."""
    if before.histories.keys() != after.histories.keys():
        return False
    old, new = before.history.view(), after.history.view()
    return all(
        name in new
        and len(new.series(name)) >= len(old.series(name))
        and np.array_equal(new.series(name).steps[: len(old.series(name))], old.series(name).steps)
        and np.array_equal(new.series(name).values[: len(old.series(name))], old.series(name).values, equal_nan=True)
        for name in old.names()
    )


def files_of(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Name, size, modification time and inode of a log's files, to detect changes."""
    files = [path, path.with_name(f"{path.name}-wal")] if path.is_file() else sorted(_below(path))
    known = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        known.append((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(known)


def _below(folder: Path) -> list[Path]:
    """Files of a folder that its log may be in; weights and pictures do not count."""
    found: list[Path] = []
    for file in folder.rglob("*"):
        if may_be_log(file):
            found.append(file)
        if len(found) >= MAX_FILES:
            break
    return found


def _newest(files: tuple[Any, ...]) -> float | None:
    return max((age for _, _, age, _ in files), default=0) / 1e9 or None
