"""Turns rows of numbers into a run; the last step of every reader of a foreign log.

Rows of one step are merged and the last value wins. A step that goes back is a restart: it opens a new attempt that
continues what came before that step, with a `resume` event so that detectors take a new baseline.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from stabilizer.core.metrics import metric
from stabilizer.core.records import Event
from stabilizer.core.text import plain
from stabilizer.runs.history import History
from stabilizer.runs.loaded import LoadedRun, NoMetrics, Source
from stabilizer.runs.reader import RunError

Row = tuple[int, dict[str, float]]
"""A step and what was logged at it."""

LARGEST_STEP = 2**53
MAX_NAMES = 50_000
"""Most different names of one log; a log with more of them writes values into its names."""
LONGEST_FAILURE = 160
"""Characters of a failure that explains a restart."""
KEPT = 20
"""Failures of one log that are kept as events, beside the last one. A reward that always fails would fill the page."""


def step_number(value: Any) -> int | None:
    """A step as a whole number; None when the value is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < LARGEST_STEP:
        return None
    return int(value) if value == int(value) else None


def number(value: Any) -> float | None:
    """A logged value as a float; numbers written as text count, anything else gives None."""
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and len(value) < 64:
        try:
            return float(value)
        except ValueError:
            return None
    return None


def definition(ours: str, source: str, **differs: str) -> dict[str, str]:
    """What `about["metrics"]` says of a metric: our definition, except where the trainer's differs."""
    known = metric(ours)
    return {
        "unit": known.unit, "estimator": known.estimator, "aggregation": known.aggregation, **differs, "source": source,
    }  # fmt: skip


def check_names(count: int, where: object) -> None:
    """RunError when a log has more names than any log of metrics."""
    if count > MAX_NAMES:
        raise RunError(f"{where}: more than {MAX_NAMES:,} different names; is each name a metric, and not a value?")


def check_mapping(mapping: Mapping[str, str], names: Iterable[str], where: object) -> None:
    """RunError when `--map` asks for a name this log does not have."""
    have = sorted(names)
    for ours, theirs in mapping.items():
        if theirs not in have:
            near = [plain(name) for name in difflib.get_close_matches(theirs, have, 3, 0.3) or have[:8]]
            pair = f"{plain(ours)}={plain(theirs)}"
            raise RunError(f"--map {pair}: {plain(where)} has no '{plain(theirs)}'; it has {', '.join(near)}")


def assemble(
    name: str,
    *,
    format: str,
    trainer: str,
    files: Iterable[Any],
    rows: Iterable[tuple[int, Mapping[str, float]] | Event],
    about: Mapping[str, Any],
    skipped: int = 0,
    notes: Iterable[str] = (),
) -> LoadedRun:
    """The run made of rows (step, values) in the order they were logged. RunError when there is no number in them.

    An `Event` among the rows is declared at the step reached so far. Without any row, `NoMetrics` holds the events.
    """
    attempts: list[dict[str, Any]] = [{"attempt": 0, "from_step": 0, "parent": None, "reason": "start"}]
    said = {"run": name, "trainer": trainer, **about, "attempts": attempts}
    current = History(said)
    histories = {0: current}
    ticks: list[tuple[int, int]] = []
    paths = tuple(str(file) for file in files)
    told, left_out = 0, None
    names: set[str] = set()
    for row in rows:
        if isinstance(row, Event):
            row = replace(row, step=max(current.step, 0), attempt=current.attempt, data={**row.data, "file": paths[0]})
            told, left_out = told + 1, row if told >= KEPT else None
            current.events += [] if left_out else [row]
            continue
        step, values = row
        if not values:
            continue
        if step < current.step:
            attempt = current.attempt + 1
            attempts.append(
                {"attempt": attempt, "from_step": step, "parent": current.attempt, "reason": "step went back"}
            )
            text = f"the log goes back from step {current.step} to {step}: a restart{_after(current)}"
            current = histories[attempt] = current.fork(step, attempt)
            current.events.append(Event(step=step, kind="resume", text=text, attempt=attempt))
        current.append(step, values)
        names.update(values)
        check_names(len(names), paths[0])
        if not ticks or ticks[-1] != (current.attempt, step):
            ticks.append((current.attempt, step))
    current.events += [left_out] if left_out and left_out.attempt == current.attempt else []
    if not ticks:
        raise _no_metrics(name, trainer, paths, current)
    source = Source(format, trainer, paths, len(set(ticks)), skipped, tuple(notes))
    return LoadedRun(name, source, histories, ticks)


def _after(stopped: History) -> str:
    """The newest failure after the last row of an attempt that was restarted; empty without one."""
    failures = [event for event in stopped.events if "failure" in event.data and event.step == stopped.step]
    return f" after {failures[-1].text[:LONGEST_FAILURE]}" if failures else ""


def _no_metrics(name: str, trainer: str, paths: tuple[str, ...], history: History) -> RunError:
    where = f"{', '.join(paths)}: no metrics in it"
    if not history.events:
        return RunError(f"{where}; was the trainer stopped before its first log?")
    history.step = 0
    source = Source("console", trainer, paths, 0, notes=("no step of training in it",))
    return NoMetrics(f"{where}; it ended with {history.events[-1].text}", LoadedRun(name, source, {0: history}, []))
