"""`stabilizer runs`: list runs with their state and verdict.

Only small JSON files and findings are read, no metrics, so that long runs list as quickly as short ones.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from stabilizer.commands.shared import add_runs_argument, runs_folder
from stabilizer.core.text import age_words, plain, short
from stabilizer.output.screen import console
from stabilizer.runs.listing import RunLine, list_runs, run_line

COLOURS = {
    "critical": "bold magenta",
    "crashed": "bold magenta",
    "failed": "bold magenta",
    "unreadable": "bold magenta",
    "warn": "yellow",
    "stalled": "yellow",
    "info": "cyan",
    "healthy": "green",
    "running": "green",
}
COLUMNS = ("run", "state", "step", "verdict", "reward", "accuracy", "changed", "age")
NUMBERS = frozenset({"step", "reward", "accuracy", "changed", "age"})
"""Columns that are aligned to the right."""
HIDDEN = frozenset({"numbers", "settings", "recipe", "source", "measured", "reach", "note"})
"""Fields of a list line that only the dashboard uses."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    add_runs_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list, newest run first."""
    folder = runs_folder(args)
    now = time.time()
    lines = [run_line(path, path.name, now) for path in list_runs(folder)]
    lines.sort(key=lambda line: line.created or 0.0, reverse=True)
    if args.json:
        rows = [_row(line) for line in lines]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    _print(lines, folder, now)
    return 0


def _row(line: RunLine) -> dict[str, Any]:
    """A run as JSON."""
    row = {**asdict(line), "path": str(line.path)}
    return {key: value for key, value in row.items() if key not in HIDDEN}


def _print(lines: list[RunLine], folder: Path, now: float) -> None:
    out = console(widest=1000, piped=160)  # a name that is cut or folded can't be pasted
    if not lines:
        out.print(Text(f"No runs in {plain(folder)} yet. `stabilizer demo` creates one in about two minutes."))
        return
    table = Table(box=None, pad_edge=False, header_style="dim", collapse_padding=True)
    for title in COLUMNS:
        side: Literal["left", "right"] = "right" if title in NUMBERS else "left"
        table.add_column(title, justify=side, overflow="ellipsis", no_wrap=title == "run")
    for line in lines:
        table.add_row(*_cells(line, now))
    out.print(table)
    if any(line.interventions for line in lines):
        out.print(Text("changed: interventions by remedies or users; such a run is no baseline", "dim"))


def _cells(line: RunLine, now: float) -> tuple[Text | str, ...]:
    """A run as the cells of `COLUMNS`; what is unknown is empty."""
    steps = "" if line.step is None else f"{line.step:,}" + (f"/{line.steps:,}" if line.steps else "")
    return (
        Text(plain(line.id)),
        Text(plain(line.state), style=COLOURS.get(line.state, "")),
        steps,
        Text(plain(line.verdict or line.problem or "not checked"), style=COLOURS.get(line.verdict, "")),
        "" if line.reward is None else short(line.reward),
        "" if line.accuracy is None else short(line.accuracy),
        f"{line.interventions}×" if line.interventions else "",
        "" if line.heartbeat is None else age_words(now - line.heartbeat),
    )
