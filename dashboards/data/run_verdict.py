"""The verdict on a run and what it rests on. The list of runs and all pages take it from here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dashboards.data.checks import NO_CHECK, Check
from dashboards.data.logs import LogReader
from stabilizer.detectors import DETECTORS
from stabilizer.runs.history import History
from stabilizer.runs.listing import measured, verdict_of, word
from stabilizer.runs.reader import RunReader, read_json

UNCHECKED = "unchecked"
WAITING = "waiting"
CALM = ("healthy", "info")
"""Verdicts that mean little without the number of detectors that had no data."""


@dataclass(frozen=True)
class MissingData:
    """A detector that had no data, and the metrics it would need."""

    detector: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class RunVerdict:
    """The verdict on a run, and everything shown beside it."""

    verdict: str
    reach: str = ""
    """In words, how far the detectors looked, where that is not to the end."""
    without_data: tuple[MissingData, ...] = ()
    """Detectors without data, where the verdict is a calm one."""
    ask: str = ""
    """Label of the button that checks the run; empty where nothing is left to check."""
    problem: str = ""
    """Why the last check failed."""

    @property
    def without_data_words(self) -> str:
        """How many of the detectors had no data."""
        return f"{len(self.without_data)} of {len(DETECTORS)} detectors had no data" if self.without_data else ""

    @property
    def note(self) -> str:
        """One line to show beside the verdict."""
        return " · ".join(filter(None, (self.reach, self.without_data_words)))


def run_verdict(recorded: str, names: frozenset[str], check: Check = NO_CHECK, reach: int | None = None) -> RunVerdict:
    """The verdict on a run.

    `recorded` is the verdict of its own records, empty where no detector ran; `reach` is the step at which detectors
    stopped. A check counts where the records do not cover the whole run.
    """
    if recorded == "not-rl" or not checkable(recorded, reach):
        return _with_missing_data(recorded, names)
    if check.working:
        return RunVerdict(WAITING)
    if check.found is None:
        told = "" if reach is None else f"checked up to step {reach:,}"
        ask = "" if not names else "Check this run" if reach is None else "Check the whole log"
        return RunVerdict(recorded or UNCHECKED, told, ask=ask, problem=check.problem)
    if not check.stale:
        return _with_missing_data(check.found.verdict, names)
    told = f"checked up to step {check.found.step:,}; the run has changed since"
    return _with_missing_data(check.found.verdict, names, told, "Check again", check.problem)


def checkable(recorded: str, reach: int | None) -> bool:
    """Whether the records of a run leave something to check."""
    return recorded == "" or reach is not None


def verdict_of_reader(reader: RunReader | LogReader, check: Check = NO_CHECK) -> RunVerdict:
    """The verdict on a run from its records and from a check of it."""
    verdict, reach, names = recorded(reader)
    return run_verdict(verdict, names, check, reach)


def recorded(reader: RunReader | LogReader) -> tuple[str, int | None, frozenset[str]]:
    """The verdict of a run's own records, the step at which its detectors stopped, and its metrics."""
    if isinstance(reader, LogReader):
        return reader.verdict, reader.reach, reader.names
    summary = read_json(reader.path / "summary.json")
    names = measured(reader.about, summary)
    stated = word(summary.get("verdict"))
    return verdict_of(stated, reader.findings, names, lost=reader.lost_findings), None, names


@lru_cache(maxsize=256)
def without_data(names: frozenset[str]) -> tuple[MissingData, ...]:
    """The detectors that have nothing to look at in a run with these metrics."""
    history = History({})
    history.append(0, dict.fromkeys(sorted(names), 0.0))
    view = history.view()
    return tuple(MissingData(d.id, tuple(missing)) for d in DETECTORS if (missing := d.missing(view)))


def _with_missing_data(
    verdict: str, names: frozenset[str], reach: str = "", ask: str = "", problem: str = ""
) -> RunVerdict:
    missing = without_data(names) if verdict in CALM and names else ()
    return RunVerdict(verdict, reach, missing, ask, problem)
