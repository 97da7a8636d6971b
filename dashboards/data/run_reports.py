"""The report of a run as one HTML file, made in a process of its own: what `stabilizer report` writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stabilizer.analysis.analyse import analyse
from stabilizer.formats import tensorboard
from stabilizer.output.report import html
from stabilizer.trainers.reading import load

SECONDS = 120.0
"""The longest a report may take here."""
GIVEN_UP = "it took more than {seconds} or too much memory; `stabilizer report` has no such limit"


@dataclass(frozen=True)
class ToReport:
    """A run or a log to report on."""

    path: Path
    format: str = ""
    """The format of a log; empty for a run directory."""


def reported(asked: ToReport) -> str:
    """The page."""
    return html(analyse(load(asked.path, format=asked.format if asked.format == tensorboard.NAME else None)))


class Reports:
    """One report at a time, made by `compute`, which `done` ends."""

    def __init__(self, compute: Callable[[ToReport], str], done: Callable[[], None]):
        self._compute = compute
        self._done = done
        self._lock = threading.Lock()

    def make(self, asked: ToReport) -> str:
        """The report. ValueError says why there is none."""
        if not self._lock.acquire(blocking=False):
            raise ValueError("another report is being made; try again in a moment")
        try:
            return self._compute(asked)
        finally:
            self._done()
            self._lock.release()
