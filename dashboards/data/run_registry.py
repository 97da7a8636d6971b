"""Which runs and logs there are under the given folders, by id, and those that viewers follow.

Run ids from the outside are looked up among the runs that were found; they never become part of a path.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dashboards.data.alerts import Alerts, Run
from dashboards.data.checks import GIVEN_UP, SECONDS, Checked, Checks, ToCheck
from dashboards.data.files import modified_ns, size_of
from dashboards.data.followed_run import FollowedLogFile, FollowedRun
from dashboards.data.logs import Logs, files_of
from dashboards.data.run_verdict import checkable, run_verdict
from dashboards.data.viewer_file import Remarks, ViewerFile, ViewerFiles
from dashboards.data.worker import Worker
from dashboards.security.containment import Containment
from stabilizer.core.records import Event
from stabilizer.figures.marks import ANNOTATION
from stabilizer.runs.listing import FINDINGS, SMALL_FILES, RunLine, as_of, list_runs, read_line

FOLLOWED = 28
"""Runs kept in memory; the least recently viewed one goes first."""


class Runs:
    """The runs under some folders, by id, and the followed ones among them. Safe to share between threads."""

    def __init__(self, roots: Sequence[Path], clock: Callable[[], float] = time.time):
        self.roots = tuple(Path(root) for root in roots)
        self.clock = clock
        self.token = secrets.token_urlsafe(32)
        """Known only to pages of this server; requests without it are refused."""
        self.asked: dict[tuple[str, str, str], tuple[Any, float]] = {}
        """Requests sent from here: (run, kind, action) -> the situation at that time, and when."""
        self._lock = threading.Lock()
        self._paths: dict[str, Path] = {}
        self.logs = Logs(self.roots)
        self.contained = Containment(self.roots)
        self.notes = ViewerFiles()
        self.alerts = Alerts(self._alerted, lambda: self.home.alerts(), clock)
        checker = Worker[ToCheck, Checked](SECONDS, GIVEN_UP)
        self.checks = Checks(stamp_of, checker, checker.close)
        self._listing = threading.Lock()
        self._listed: list[RunLine] = []
        self._listed_t = -1.0
        self._lines: dict[str, tuple[tuple[int, ...], RunLine, dict[str, Any]]] = {}
        self._followed: OrderedDict[str, FollowedRun] = OrderedDict()

    def scan(self) -> dict[str, Path]:
        """Run ids and their folders, newest first.

        Two runs of one name get their parent's in front, and so does a log file in a folder below those given.

        A run that leads out of the folders that were given, by a link, is passed over.
        """
        found: dict[Path, None] = {}
        for root in self.roots:
            try:
                found |= dict.fromkeys(filter(self.contained.holds, list_runs(root)))
            except OSError:
                continue
        logs = set(self.logs.paths())
        found |= dict.fromkeys(logs)
        names = Counter(path.name for path in found)
        paths: dict[str, Path] = {}
        for path in sorted(found, key=lambda path: (path.name, str(path)), reverse=True):
            longer = names[path.name] > 1 or (path in logs and self._below(path))
            id = f"{path.parent.name}/{path.name}" if longer else path.name
            while id in paths:
                id += "'"
            paths[id] = path
        with self._lock:
            self._paths = paths
        return dict(paths)

    def _below(self, log: Path) -> bool:
        """Whether it is a file in a folder below those that were given."""
        return log.suffix != "" and not {log, log.parent} & set(self.roots)

    def lines(self) -> list[RunLine]:
        """All runs as list lines, newest first; small files are read again only when they changed.

        Viewers that ask at the same time share an answer that was begun after they asked.
        """
        asked = time.monotonic()
        with self._listing:
            if self._listed_t <= asked:
                self._listed_t = time.monotonic()
                self._listed = self._list()
            return list(self._listed)

    def _list(self) -> list[RunLine]:
        now = self.clock()
        lines, known = [], {}
        for id, path in self.scan().items():
            if (line := self.logs.line(path, id, now)) is None:
                key = tuple(modified_ns(path / name) for name in (*SMALL_FILES, FINDINGS))
                cached = self._lines.get(id)
                if cached is None or cached[0] != key or cached[1].path != path:
                    cached = (key, *read_line(path, id))
                known[id] = cached
                line = as_of(cached[1], cached[2], now)
            lines.append(self._remarked(self._judged(line)))
        self._lines = known
        return sorted(lines, key=lambda line: line.created or 0.0, reverse=True)

    def _remarked(self, line: RunLine) -> RunLine:
        """A line with what viewers noted about its run."""
        told = self.remarks(line.path)
        return replace(line, label=told.name, tags=told.tags, archived=told.archived) if told != Remarks() else line

    def remarks(self, run: Path) -> Remarks:
        """What viewers noted about a run."""
        return self.notes.remarks(run)

    def _annotations(self, run: Path) -> list[Event]:
        """What viewers wrote at steps of a run, as events for its charts."""
        return [Event(one.step, ANNOTATION, one.text) for one in self.remarks(run).annotations]

    @property
    def home(self) -> ViewerFile:
        """The file that holds the saved views: beside the runs of the first folder."""
        root = self.roots[0] if self.roots else Path()
        alone = root.is_file() or (root / "run.json").is_file()
        return self.notes.inside(root.parent if alone else root)

    def _alerted(self) -> Iterator[Run]:
        """The runs that alerts look at: all but archived ones and logs that nothing is known of yet."""
        for id, path in self.scan().items():
            log = self.logs.get(path)
            waits = log is not None and log.line(id, self.clock()).verdict == "waiting"
            if not waits and not self.remarks(path).archived:
                yield Run(id, path, log.findings if log else None)

    def _judged(self, line: RunLine) -> RunLine:
        """A line with the verdict that the run's page shows."""
        if line.state == "unreadable":
            return line
        check = self.checks.of(line.path)
        judged = run_verdict(line.verdict, line.measured, check, line.reach)
        gravest = check.found.worst if check.found and checkable(line.verdict, line.reach) else line.worst
        return replace(line, verdict=judged.verdict, note=judged.note, worst=gravest)

    def check(self, id: str) -> str:
        """Have a run checked in the background; why not, in words, where that can't be."""
        followed = self.get(id)
        if followed is None:
            return "this run no longer exists"
        return self.checks.ask(ToCheck(followed.path, followed.log.format if followed.log else ""))

    def get(self, id: str) -> FollowedRun | None:
        """The followed run of an id, None when no such run was found."""
        with self._lock:
            path = self._paths.get(id)
        if path is None:
            path = self.scan().get(id)
        if path is None:
            return None
        with self._lock:
            followed, log = self._followed.get(id), self.logs.get(path)
            if followed is None or followed.path != path or followed.log is not log:
                given = (self.clock, self.checks, partial(self._annotations, path))
                followed = FollowedLogFile(log, *given) if log else FollowedRun(path, *given)
                self._followed[id] = followed
            self._followed.move_to_end(id)
            while len(self._followed) > FOLLOWED:
                self._followed.popitem(last=False)
            return followed


def stamp_of(path: Path) -> Any:
    """A value that changes when a run or a log is written to."""
    if not (path / "run.json").is_file():
        return files_of(path)
    metrics = path / "metrics"
    try:
        files = [*sorted(metrics.iterdir()), path / "events.jsonl", path / "run.json"]
    except OSError:
        files = [path / "run.json"]
    return tuple((file.name, modified_ns(file), size_of(file)) for file in files)
