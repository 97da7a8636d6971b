"""A run in memory, whichever tool wrote it. Every reader returns one, and `diagnose` replays it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stabilizer.core.records import Action, Finding, Sample
from stabilizer.runs.history import History, RunView
from stabilizer.runs.reader import RunError, RunReader

if TYPE_CHECKING:
    import pandas


PASTED = "pasted text"
"""Name of a run that was read from standard input."""


@dataclass(frozen=True)
class Source:
    """Where a run came from, as `diagnose --json` reports it. `notes` are remarks of the reader on the log."""

    format: str
    trainer: str
    files: tuple[str, ...]
    steps: int
    skipped_lines: int = 0
    notes: tuple[str, ...] = ()


def _none(_step: int) -> list[Sample]:
    return []


@dataclass(frozen=True)
class Texts:
    """Completions in a log: the steps that have some, and a function that reads those of one step."""

    steps: tuple[int, ...] = ()
    read: Callable[[int], list[Sample]] = _none


@dataclass
class LoadedRun:
    """Lineages by attempt, and `ticks`: (attempt, step) in the order things were written."""

    name: str
    source: Source
    histories: dict[int, History]
    ticks: Sequence[tuple[int, int]]
    recorded: list[Finding] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    texts: Texts = field(default_factory=Texts)

    @property
    def history(self) -> History:
        """The lineage of the newest attempt."""
        return self.histories[max(self.histories)]

    def noted(self, notes: Iterable[str]) -> LoadedRun:
        """The same run with more notes."""
        return replace(self, source=replace(self.source, notes=(*self.source.notes, *notes)))

    def read_from(self, place: str, leave_out: frozenset[str] = frozenset()) -> LoadedRun:
        """The same run, said to be read from `place` and not from the file in which its text was kept for reading.
        `leave_out` names data of events that hold for that file alone, as line numbers."""
        for history in self.histories.values():
            history.events[:] = [
                replace(event, data={k: v for k, v in event.data.items() if k not in leave_out} | {"file": place})
                if "file" in event.data
                else event
                for event in history.events
            ]
        return replace(self, source=replace(self.source, files=(place,)))

    def views(self) -> Iterator[RunView]:
        """The run as a live watcher saw it, tick by tick."""
        for attempt, step in self.ticks:
            yield self.histories[attempt].view(step)

    def frame(self) -> pandas.DataFrame:
        """The metrics of the newest attempt as a pandas table: one row per step, one column per metric.

        The index is `step`. A metric that was not logged at a step is NaN there.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("frame() needs pandas: pip install pandas") from None
        view = self.history.view()
        series = {name: view.series(name) for name in sorted(view.names())}
        steps = np.unique(np.concatenate([one.steps for one in series.values()] or [np.empty(0, np.int64)]))
        columns = {name: np.full(len(steps), np.nan) for name in series}
        for name, one in series.items():
            columns[name][np.searchsorted(steps, one.steps)] = one.values
        return pandas.DataFrame(columns, index=pandas.Index(steps, name="step"))


class NoMetrics(RunError):
    """A log in which training failed before its first number. `run` holds the failure and no step."""

    def __init__(self, message: str, run: LoadedRun):
        super().__init__(message)
        self.run = run


def imported(about: Mapping[str, Any]) -> Source | None:
    """The source recorded by an imported run; None for a run that was not imported."""
    origin = about.get("imported")
    if not isinstance(origin, Mapping):
        return None
    files, notes = (tuple(map(str, v)) if isinstance(v := origin.get(k), list) else () for k in ("files", "notes"))
    steps, skipped = (v if type(v := origin.get(k)) is int else 0 for k in ("steps", "skipped_lines"))
    return Source(str(origin.get("format", "")), str(about.get("trainer", "")), files, steps, skipped, notes)


def load_own(path: Path) -> LoadedRun:
    """A run directory of ours."""
    reader = RunReader(path)
    trainer = str(reader.about.get("trainer", "stabilizer"))
    files = tuple(str(file) for file in sorted((path / "metrics").glob("*.jsonl")))
    origin = imported(reader.about) or Source("", "", (), 0)
    skipped = reader.skipped + origin.skipped_lines
    source = Source("stabilizer", trainer, files, reader.ticks.distinct, skipped, (*origin.notes, *reader.notes))
    return LoadedRun(path.name, source, reader.histories, reader.ticks, reader.findings, reader.actions)
