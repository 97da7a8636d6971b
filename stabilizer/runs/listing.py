"""Lists of runs, from their small JSON files and their findings; no file of metrics is opened.

A field that is missing or has a wrong type is left blank. A run whose `run.json` can't be read is listed as unreadable.
"""

from __future__ import annotations

import hashlib
import math
import os
import socket
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from stabilizer.core.metrics import is_rl
from stabilizer.core.records import SEVERITIES, Finding, worst
from stabilizer.runs.processes import process
from stabilizer.runs.reader import Read, RunError, read_json, read_records
from stabilizer.runs.trend import POINTS

SMALL_FILES = ("run.json", "status.json", "summary.json")
FINDINGS = "findings.jsonl"
MAX_FINDINGS = 8 << 20
"""Bytes of findings that are read for a list. A run with more gets the verdict of its summary."""
VERDICTS = frozenset({"healthy", "too-short", "not-rl", "crashed", *SEVERITIES})
"""Verdicts that a summary may hold. Any other word means that no detector has run."""
KEY_NUMBERS = {
    "reward": ("reward/mean",),
    "accuracy": ("accuracy/val", "accuracy/train"),
    "kl": ("policy/kl_ref", "policy/kl_old"),
    "grad_norm": ("optim/grad_norm",),
    "step_s": ("time/step_s",),
}
"""Numbers shown in a list: for each, the first of these metrics that the run has."""
NOT_RECIPE = frozenset(
    {"seed", "data_seed", "random_seed", "output_dir", "run_name", "logging_dir", "name", "experiment_name", "runs"}
)
"""Settings in which runs of one recipe may differ."""
MAX_SETTINGS = 400
MAX_DEPTH = 8
MAX_PROBLEM = 400
"""Characters of the reason why a run can't be listed."""


@dataclass(frozen=True)
class Reading:
    """The last value of a metric (NaN where it was not finite), its step, and the trend up to it."""

    metric: str
    last: float
    step: int | None = None
    trend: tuple[float | None, ...] = ()


class Extremes(NamedTuple):
    """The last, lowest and highest value of a metric; None where there is no such number."""

    last: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class RunLine:
    """One run in a list."""

    id: str
    path: Path
    state: str
    step: int | None = None
    steps: int | None = None
    verdict: str = ""
    worst: str = ""
    reward: float | None = None
    accuracy: float | None = None
    task: str = ""
    heartbeat: float | None = None
    created: float | None = None
    interventions: int = 0
    """Changes made while it trained, by remedies or manually. A run with any does not show its configuration alone."""
    problem: str = ""
    trainer: str = ""
    numbers: Mapping[str, Reading] = field(default_factory=dict)
    """Those of `KEY_NUMBERS` that the run has."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The configuration as dotted keys, at most `MAX_SETTINGS` of them."""
    recipe: str = ""
    """Equal for runs whose settings differ only in `NOT_RECIPE`, such as the seed."""
    gone: bool = False
    """Whether its process is known to be gone although its state says otherwise."""
    source: str = ""
    """The format of a foreign log; empty for a run directory."""
    measured: frozenset[str] = frozenset()
    """Names of the metrics it has."""
    extremes: Mapping[str, Extremes] = field(default_factory=dict)
    """Last, lowest and highest value by metric."""
    reach: int | None = None
    """The step at which the detectors stopped before the end; None where they saw all rows."""
    note: str = ""
    """A remark shown beside the verdict."""
    label: str = ""
    """The name that viewers gave it."""
    tags: tuple[str, ...] = ()
    archived: bool = False
    """Whether viewers put it away."""

    @property
    def name(self) -> str:
        """The name to show."""
        return self.label or self.id

    @property
    def left_s(self) -> float | None:
        """Seconds to the last planned step at the present pace; None when unknown."""
        pace = self.numbers.get("step_s")
        if pace is None or self.state != "running" or self.steps is None or self.step is None:
            return None
        seconds = statistics.median([value for value in pace.trend[-8:] if value is not None] or [pace.last])
        return max(0, self.steps - self.step) * seconds if 0 <= seconds < math.inf else None


def list_runs(root: Path) -> list[Path]:
    """Run directories at or below `root` (two levels), newest name first. A folder inside a run is part of that run."""
    if (root / "run.json").is_file():
        return [root]
    found: list[Path] = []
    for folder in _folders(root):
        if os.path.isfile(os.path.join(folder, "run.json")):
            found.append(Path(folder))
        else:
            found += [Path(inner) for inner in _folders(folder) if os.path.isfile(os.path.join(inner, "run.json"))]
    return sorted(found, key=lambda path: path.name, reverse=True)


def _folders(path: str | Path) -> list[str]:
    """Folders in a folder; none where it can't be listed."""
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if _is_folder(entry)]
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a link to itself
        return False


def run_state(status: dict[str, Any], now: float, patience: float = 60.0) -> str:
    """The state to show: a run without a heartbeat for `patience` seconds that is not over is `stalled`."""
    state = str(status.get("state", "created"))
    heartbeat = status.get("t")
    if state not in ("running", "paused", "created") or not isinstance(heartbeat, (int, float)):
        return state
    return "stalled" if abs(now - heartbeat) > patience else state  # ahead of now, where a clock was set back


def writer_lives(status: dict[str, Any]) -> bool | None:
    """Whether the process that wrote this status still exists; None when this machine can't see it."""
    pid = status.get("pid")
    if status.get("host") != socket.gethostname() or not isinstance(pid, int):
        return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    found = process(pid)
    if found is None:
        return True
    return (
        found.state != "Z" and status.get("began", found.began) == found.began
    )  # a number is given again after a while


def run_line(path: Path, id: str, now: float) -> RunLine:
    """A run as its small files describe it."""
    return as_of(*read_line(path, id), now)


def read_line(path: Path, id: str) -> tuple[RunLine, dict[str, Any]]:
    """A run as its small files describe it, without what depends on the time, and its status (see `as_of`)."""
    try:
        return _read_line(path, id)
    except Exception as error:  # one bad run must not hide the others
        return _unreadable(path, id, f"{path} can't be listed: {type(error).__name__}: {error}"[:MAX_PROBLEM])


def _unreadable(path: Path, id: str, problem: str) -> tuple[RunLine, dict[str, Any]]:
    return RunLine(id, path, "unreadable", problem=problem), {"state": "unreadable"}


def _read_line(path: Path, id: str) -> tuple[RunLine, dict[str, Any]]:
    about, status, summary = (read_json(path / name) for name in SMALL_FILES)
    if not about:
        return _unreadable(path, id, f"{path / 'run.json'} is not a readable JSON object")
    metrics = summary.get("metrics")
    metrics = metrics if isinstance(metrics, dict) else {}
    names = measured(about, summary)
    found = _findings(path / FINDINGS)
    task, trainer, config = word(about.get("task")), word(about.get("trainer")), settings(about.get("config"))
    line = RunLine(
        id=id,
        path=path,
        state=word(status.get("state", "created")),
        step=whole_number(status.get("step")),
        steps=whole_number(about.get("steps")),
        verdict=verdict_of(word(summary.get("verdict")), found.records, names, lost=found.skipped > 0),
        worst=word(summary.get("worst")),
        reward=_last(metrics, "reward/mean"),
        accuracy=_last(metrics, "accuracy/val", "accuracy/train"),
        task=task,
        heartbeat=heartbeat_of(status),
        created=number(about.get("created")),
        interventions=whole_number(status.get("interventions")) or 0,
        trainer=trainer,
        numbers=_numbers(metrics, summary.get("trends")),
        settings=config,
        recipe=recipe(task, trainer, config),
        measured=names,
        extremes={name: _extremes(row) for name, row in metrics.items() if isinstance(row, Mapping)},
    )
    return line, status


def verdict_of(stated: str, findings: Iterable[Finding], names: frozenset[str], *, lost: bool = False) -> str:
    """The verdict on a run by its own records; empty where no detector has run.

    `stated` is the verdict of its summary. Findings are written as soon as they change and the summary a few seconds
    later, so unresolved findings decide. If some findings are `lost`, the graver of the two does.
    """
    if stated == "crashed":
        return stated
    newest = {(finding.incident, finding.id): finding for finding in findings}
    unresolved = worst(finding.severity for finding in newest.values() if finding.state != "resolved")
    if names and not is_rl(names) and unresolved in (None, "info"):
        return "not-rl"
    if lost and stated in SEVERITIES:
        return worst(filter(None, (stated, unresolved))) or stated
    if unresolved is None and stated in SEVERITIES and newest:
        return "healthy"
    return unresolved or (stated if stated in VERDICTS else "")


def measured(about: Mapping[str, Any], summary: Mapping[str, Any]) -> frozenset[str]:
    """The metrics of a run: those in its summary or, while there is none, those in `run.json`."""
    described = summary.get("metrics"), about.get("metrics")
    known = (names for names in described if isinstance(names, Mapping) and names)
    return frozenset(map(str, next(known, ())))


def _extremes(row: Mapping[str, Any]) -> Extremes:
    return Extremes(*(number(row.get(key)) for key in ("last", "min", "max")))


def _findings(file: Path) -> Read:
    """The recorded findings; none where the file can't be read or is very long."""
    try:
        return read_records(file, Finding) if file.stat().st_size <= MAX_FINDINGS else Read()
    except (OSError, RunError):
        return Read()


def as_of(line: RunLine, status: Mapping[str, Any], now: float) -> RunLine:
    """The line with what depends on the time: a run without a heartbeat, or without its process, is stalled."""
    if status.get("state", "created") not in ("running", "paused", "created"):
        return line
    gone = writer_lives(dict(status)) is False
    state = "stalled" if gone else state_of(status, now)
    return line if (state, gone) == (line.state, line.gone) else replace(line, state=state, gone=gone)


def settings(config: Any) -> dict[str, Any]:
    """A configuration as dotted keys and plain values, bounded in number and depth."""
    found: dict[str, Any] = {}
    pending: list[tuple[str, Any, int]] = [("", config, 0)]
    while pending and len(found) < MAX_SETTINGS:
        name, value, depth = pending.pop()
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            inner = [(f"{name}.{key}" if name else str(key), item, depth + 1) for key, item in value.items()]
            pending += reversed(inner[:MAX_SETTINGS])
        elif name:
            plain = value is None or isinstance(value, (bool, int, float, str))
            found[name[:200]] = value[:200] if isinstance(value, str) else value if plain else str(value)[:200]
    return found


def state_of(status: Mapping[str, Any], now: float) -> str:
    """The state of a run to show, whatever its status file holds."""
    return word(run_state({**status, "t": heartbeat_of(status)}, now))


def heartbeat_of(status: Mapping[str, Any]) -> float | None:
    """Time of the last heartbeat; None when there was none."""
    return number(status.get("t"))


def word(value: Any) -> str:
    """A short text; blank when the value is no text."""
    return value[:200] if isinstance(value, str) else ""


def whole_number(value: Any) -> int | None:
    """A whole number; None when the value is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: Any) -> float | None:
    """A number; None when the value is none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def recipe(task: str, trainer: str, config: Mapping[str, Any]) -> str:
    """An id that is equal for runs that differ only in seed and name; empty when no settings are known."""
    shared = sorted((key, repr(value)) for key, value in config.items() if key.rpartition(".")[2] not in NOT_RECIPE)
    return hashlib.sha256(repr((task, trainer, shared)).encode("utf-8", "replace")).hexdigest()[:10] if shared else ""


def _numbers(metrics: Mapping[str, Any], trends: Any) -> dict[str, Reading]:
    found = {}
    for key, names in KEY_NUMBERS.items():
        name = next((name for name in names if isinstance(metrics.get(name), dict) and "last" in metrics[name]), None)
        if name is None:
            continue
        row, last = metrics[name], metrics[name]["last"]
        value = float("nan") if last is None else number(last)
        if value is not None:
            trend = _trend(trends.get(name)) if isinstance(trends, dict) else ()
            found[key] = Reading(name, value, whole_number(row.get("step")), trend)
    return found


def _trend(points: Any) -> tuple[float | None, ...]:
    if not isinstance(points, Sequence) or isinstance(points, str):
        return ()
    return tuple(number(point) for point in points[: POINTS + 1])


def _last(metrics: Mapping[str, Any], *names: str) -> float | None:
    rows = [metrics[name] for name in names if isinstance(metrics.get(name), dict)]
    return next((value for row in rows if (value := number(row.get("last"))) is not None), None)
