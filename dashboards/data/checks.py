"""Runs that nobody analysed, checked on demand: what `stabilizer diagnose` finds, kept in memory, never in the run."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.data.logs import loaded
from stabilizer.analysis.analyse import analyse
from stabilizer.core.records import Finding

SECONDS = 900.0
"""The longest a check may take; a log of 200,000 rows takes about four minutes."""
KEPT = 200
"""Answers kept in memory; the least recently used one goes first."""
WAITING = 50
"""Checks that may wait; more are refused."""
GIVEN_UP = (
    "the check was stopped: it took more than {seconds} or too much memory; `stabilizer diagnose` has no such limit"
)


@dataclass(frozen=True)
class ToCheck:
    """A run or a log to check."""

    path: Path
    format: str = ""
    """The format of a log; empty for a run directory."""


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    verdict: str
    worst: str
    findings: tuple[Finding, ...]
    """Change by change, as a run directory has them."""
    step: int
    """The last step that was looked at."""


@dataclass(frozen=True)
class Check:
    """The state of the check of a run."""

    found: Checked | None = None
    stale: bool = False
    """Whether the run was written to since the check."""
    working: bool = False
    problem: str = ""


NO_CHECK = Check()


def checked(asked: ToCheck) -> Checked:
    """The part of the analysis of `stabilizer diagnose` that pages show."""
    run = loaded(asked.path, asked.format)
    found = analyse(run)
    return Checked(found.verdict, found.worst or "", found.records, found.last_step)


class Checks:
    """All requested checks, one at a time, in a process that ends when none is left. Safe to share."""

    def __init__(
        self, stamp: Callable[[Path], Any], compute: Callable[[ToCheck], Any], done: Callable[[], None] = lambda: None
    ):
        self._stamp = stamp
        self._compute = compute
        self._done = done
        self._lock = threading.Lock()
        self._waiting: deque[ToCheck] = deque()
        self._working: ToCheck | None = None
        self._found: OrderedDict[Path, tuple[Any, Checked | None, str]] = OrderedDict()
        self._thread: threading.Thread | None = None

    def ask(self, asked: ToCheck) -> str:
        """Have a run checked; why not, in words, where that can't be."""
        with self._lock:
            if asked == self._working or asked in self._waiting:
                return ""
            if len(self._waiting) >= WAITING:
                return f"{WAITING} checks are already waiting; try again when some are done"
            self._waiting.append(asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checks", daemon=True)
                self._thread.start()
        return ""

    def of(self, path: Path) -> Check:
        """The state of the check of a run."""
        with self._lock:
            pending = [*self._waiting, *([self._working] if self._working else [])]
            working = any(asked.path == path for asked in pending)
            stamp, found, problem = self._found.get(path, (None, None, ""))
        stale = found is not None and stamp != self._stamp(path)
        return Check(found, stale, working, problem) if found or working or problem else NO_CHECK

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    self._done()
                    return
                asked = self._working = self._waiting.popleft()
                before = self._found.get(asked.path, (None, None, ""))
            stamp = self._stamp(asked.path)
            try:
                answer = (stamp, self._compute(asked), "")
            except Exception as error:  # whatever a run holds, the page stays up and reports it
                answer = (before[0], before[1], str(error) or type(error).__name__)
            with self._lock:
                self._working = None
                self._found[asked.path] = answer
                self._found.move_to_end(asked.path)
                while len(self._found) > KEPT:
                    self._found.popitem(last=False)
