"""Many runs at once, from their three small JSON files alone: no metric file is opened for a list.

What a file lacks, or holds in a wrong type, is left blank; a run whose `run.json` can't be read is listed as such.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabilizer.runs.reader import read_json

SMALL_FILES = ("run.json", "status.json", "summary.json")


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
    """Changes made while it trained, by remedies and by hand: a run with any is no plain run of its configuration."""
    problem: str = ""


def list_runs(root: Path) -> list[Path]:
    """Run directories at or below `root` (two levels), newest name first."""
    if (root / "run.json").is_file():
        return [root]
    found = {path.parent for pattern in ("*/run.json", "*/*/run.json") for path in root.glob(pattern)}
    return sorted(found, key=lambda path: path.name, reverse=True)


def run_state(status: dict[str, Any], now: float, patience: float = 60.0) -> str:
    """The state a reader should show: `running` or `paused` without a heartbeat for `patience` seconds: `stalled`."""
    state = str(status.get("state", "created"))
    heartbeat = status.get("t")
    if state in ("running", "paused", "created") and isinstance(heartbeat, (int, float)) and now - heartbeat > patience:
        return "stalled"
    return state


def writer_lives(status: dict[str, Any]) -> bool | None:
    """Whether the process that wrote this status still exists; None when that can't be seen from this machine."""
    pid = status.get("pid")
    if status.get("host") != socket.gethostname() or not isinstance(pid, int):
        return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def run_line(path: Path, id: str, now: float) -> RunLine:
    """A run as its small files tell it."""
    about, status, summary = (read_json(path / name) for name in SMALL_FILES)
    if not about:
        return RunLine(id, path, "unreadable", problem=f"{path / 'run.json'} is not a readable JSON object")
    metrics = summary.get("metrics")
    metrics = metrics if isinstance(metrics, dict) else {}
    return RunLine(
        id=id,
        path=path,
        state=state_of(status, now),
        step=whole_number(status.get("step")),
        steps=whole_number(about.get("steps")),
        verdict=word(summary.get("verdict")),
        worst=word(summary.get("worst")),
        reward=_last(metrics, "reward/mean"),
        accuracy=_last(metrics, "accuracy/val", "accuracy/train"),
        task=word(about.get("task")),
        heartbeat=heartbeat_of(status),
        created=number(about.get("created")),
        interventions=whole_number(status.get("interventions")) or 0,
    )


def state_of(status: Mapping[str, Any], now: float) -> str:
    """The state of a run as a reader should show it, whatever its status file holds."""
    return word(run_state({**status, "t": heartbeat_of(status)}, now))


def heartbeat_of(status: Mapping[str, Any]) -> float | None:
    """When the run last gave a sign of life, None when it never did."""
    return number(status.get("t"))


def word(value: Any) -> str:
    """A short text, blank when it is none."""
    return value[:200] if isinstance(value, str) else ""


def whole_number(value: Any) -> int | None:
    """A count, None when it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: Any) -> float | None:
    """A number, None when it is none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _last(metrics: Mapping[str, Any], *names: str) -> float | None:
    rows = [metrics[name] for name in names if isinstance(metrics.get(name), dict)]
    return next((value for row in rows if (value := number(row.get("last"))) is not None), None)
