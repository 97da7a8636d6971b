"""`stabilizer runs`: list runs, their state and verdict, from their three small JSON files alone.

No metrics are opened, so a folder of a thousand long runs lists as quickly as one of short ones. What a file lacks,
or holds in a wrong type, is left blank; a run whose `run.json` can't be read is listed as such.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stabilizer.runs.reader import list_runs, read_json, run_state

SMALL_FILES = ("run.json", "status.json", "summary.json")
MAX_SMALL = 16 * 1024 * 1024

COLOURS = {
    "critical": "bold magenta", "crashed": "bold magenta", "failed": "bold magenta", "unreadable": "bold magenta",
    "warn": "yellow", "stalled": "yellow", "info": "cyan", "healthy": "green", "running": "green",
}  # fmt: skip


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
    problem: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to look."""
    parser.add_argument("dir", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (runs/)")


def run(args: argparse.Namespace) -> int:
    """Print the list, newest run first."""
    if not args.dir.is_dir():
        raise ValueError(f"{args.dir}: no such folder; give the folder of the runs (`stabilizer demo` makes one)")
    now = time.time()
    lines = [run_line(path, path.name, now) for path in list_runs(args.dir)]
    lines.sort(key=lambda line: line.created or 0.0, reverse=True)
    if args.json:
        rows = [{**asdict(line), "path": str(line.path)} for line in lines]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    _print(lines, args.dir, now)
    return 0


def run_line(path: Path, id: str, now: float) -> RunLine:
    """A run as its small files tell it."""
    about, status, summary = (small_json(path / name) for name in SMALL_FILES)
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
    )


def small_json(path: Path) -> dict[str, Any]:
    """A small JSON file of a run: {} when it is missing, unreadable, no plain file, or not small."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_SMALL:
            return {}
    except OSError:
        return {}
    return read_json(path)


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


def _print(lines: list[RunLine], folder: Path, now: float) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from stabilizer.figures.words import age_words, short

    console = Console()
    if not lines:
        console.print(Text(f"No runs in {folder} yet. `stabilizer demo` makes one in about two minutes."))
        return
    table = Table(box=None, pad_edge=False, header_style="dim", collapse_padding=True)
    for title, side in (("run", "left"), ("state", "left"), ("step", "right"), ("verdict", "left"), ("reward", "right"),
                        ("accuracy", "right"), ("age", "right")):  # fmt: skip
        table.add_column(title, justify=side, overflow="fold" if title == "run" else "ellipsis")
    for line in lines:
        steps = "" if line.step is None else f"{line.step:,}" + (f"/{line.steps:,}" if line.steps else "")
        table.add_row(
            Text(_visible(line.id)),
            Text(_visible(line.state), style=COLOURS.get(line.state, "")),
            steps,
            Text(_visible(line.verdict or line.problem), style=COLOURS.get(line.verdict, "")),
            "" if line.reward is None else short(line.reward),
            "" if line.accuracy is None else short(line.accuracy),
            "" if line.heartbeat is None else age_words(now - line.heartbeat),
        )
    console.print(table)


def _visible(text: str) -> str:
    """Text without control characters: a run's name must not steer the terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)
