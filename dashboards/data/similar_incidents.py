"""Past incidents like this one, in the other runs: the same failure or the same cause, and how each ended.

Two small files per run are read, each kept until it changes; of a log, what was found in it so far counts. A folder of
thousands of runs is looked at as far as the newest `MAX_RUNS`, which the page says.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dashboards.data.files import stamp_of
from dashboards.data.run_registry import Runs
from stabilizer.core.records import Action, Finding
from stabilizer.runs.reader import RunError, read_records
from stabilizer.runs.story import Incident, incidents

MAX_RUNS = 300
MAX_BYTES = 4 * 1024 * 1024
MAX_SHOWN = 8


@dataclass(frozen=True)
class Past:
    """An incident of some run, and how it ended."""

    run: str
    incident: Incident
    ended: str
    """The trials and their outcomes in words; empty without any."""


@dataclass(frozen=True)
class Similar:
    """Similar incidents, and how many runs were searched."""

    found: tuple[Past, ...]
    more: int
    looked: int
    runs: int


class Archive:
    """The incidents of all runs, read again only where a file changed. Safe to share between threads."""

    def __init__(self, runs: Runs):
        self._runs = runs
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[tuple[int, ...], tuple[Past, ...]]] = {}

    def similar(self, run: str, incident: Incident) -> Similar:
        """Incidents with the same cause or the same failures as this one, the most alike first, then the newest."""
        paths = self._runs.scan()
        looked = list(paths.items())[:MAX_RUNS]
        with self._lock:
            everything = [past for id, path in looked for past in self._of(id, path)]
            for gone in set(self._known) - set(paths.values()):
                del self._known[gone]
        ids, cause = _ids(incident), _cause(incident)
        ranked = []
        for past in everything:
            if (past.run, past.incident.key) == (run, incident.key):
                continue
            same_cause = cause not in ("", "undetermined") and _cause(past.incident) == cause
            common = len(ids & _ids(past.incident))
            if same_cause or incident.id in _ids(past.incident):
                ranked.append((2 * same_cause + common, past))
        ranked.sort(key=lambda pair: -pair[0])  # stable: of equals the newest run stays first
        shown = tuple(past for _, past in ranked[:MAX_SHOWN])
        return Similar(shown, max(0, len(ranked) - MAX_SHOWN), len(looked), len(paths))

    def _of(self, id: str, path: Path) -> tuple[Past, ...]:
        if (findings := self._runs.logs.findings(path)) is not None:
            return _past(id, findings, ())
        files = (path / "findings.jsonl", path / "actions.jsonl")
        stamp = tuple(part for file in files for part in stamp_of(file))
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            small = stamp[1] <= MAX_BYTES and stamp[3] <= MAX_BYTES
            found: tuple[Past, ...] = ()
            with contextlib.suppress(Exception):  # a damaged run costs only its own entries
                found = _read(id, files) if small else ()
            known = self._known[path] = (stamp, found)
        return known[1]


def _read(id: str, files: Sequence[Path]) -> tuple[Past, ...]:
    try:
        findings = read_records(files[0], Finding).records
        return _past(id, findings, read_records(files[1], Action).records if findings else ())
    except (OSError, RunError):  # its own page shows why
        return ()


def _past(id: str, findings: Sequence[Finding], actions: Sequence[Action]) -> tuple[Past, ...]:
    return tuple(
        Past(id, incident, _ended([a for a in actions if incident.number and a.incident == incident.number]))
        for incident in incidents(findings)
    )


def _ids(incident: Incident) -> set[str]:
    return {finding.id for finding in incident.findings}


def _cause(incident: Incident) -> str:
    return incident.causes[0].id if incident.causes else ""


def _ended(actions: Sequence[Action]) -> str:
    latest = {action.action: action for action in actions}
    told = [f"{action.remedy} {action.entry}" for action in latest.values() if action.entry != "proposed"]
    return ", ".join(told[:4]) or (f"{next(iter(latest.values())).remedy} proposed" if latest else "")
