"""Write a loaded run as a run directory: its rows, events and completions, and the findings of `diagnose`.

Findings are written as a live watch makes them and then in their final state, with remedies in the trainer's keys. So a
page of the import shows the same as a page, or `diagnose`, of the original log. A row has the time in its log, or none
if the log has none. The files' times give the start of the run and its last sign of life.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stabilizer.analysis.analyse import analyse
from stabilizer.runs.history import History
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.writer import RunWriter

UNKNOWN = 0.0
"""Time of a row or an event without a known time."""


def write_run(run: LoadedRun, path: Path) -> Path:
    """Write `run` to `path`. FileExistsError if there is a run already, OSError if writing fails."""
    found = analyse(run)
    about, source = run.history.about, run.source
    planned = about.get("steps")
    times = {number: _times(history) for number, history in run.histories.items()}
    known = [t for row in times.values() for t in row.values()] or _written(source.files)
    writer = RunWriter.create(
        path,
        config=about.get("config") or {},
        task=source.trainer,
        trainer=source.trainer,
        steps=planned if isinstance(planned, int) else None,
        clock=str(about.get("clock", "optimizer_step")),
        metrics=about.get("metrics") or {},
        created=min(known, default=None),
        imported={
            "format": source.format,
            "files": list(source.files),
            "steps": source.steps,
            "skipped_lines": source.skipped_lines,
            "notes": list(source.notes),
        },
    )
    writer.event(0, "note", f"imported from {', '.join(source.files)}")
    step = _write_rows(run, writer, times)
    writer.finding(*found.records)
    writer.status("failed" if found.verdict == "crashed" else "finished", step, force=True, t=max(known, default=None))
    writer.summary(verdict=found.verdict, worst=found.worst, force=True)
    writer.close()
    if problems := writer.problems():
        raise OSError(f"{path}: not everything could be written: {problems[0]}")
    return path


def _write_rows(run: LoadedRun, writer: RunWriter, times: Mapping[int, Mapping[int, float]]) -> int:
    """Write rows, declared events and completions in the order in which they were logged; returns the last step."""
    attempt, step = run.ticks[0] if run.ticks else (0, 0)
    rows = {number: _rows(history) for number, history in run.histories.items()}
    told = 0
    newest = {step: attempt for attempt, step in run.ticks}
    texts = set(run.texts.steps)
    for now, step in run.ticks:
        history = run.histories[now]
        if now != attempt:
            attempt, told = now, len([event for event in history.events if event.step < step])
            writer.begin_attempt(step, "resume", history=history.fork(step, now))
        for event in history.events[told:]:
            if event.step > step:
                break
            writer.record(replace(event, attempt=writer.attempt))
            told += 1
        writer.metrics(step, rows[now][step], times[now].get(step, UNKNOWN))
        if step in texts and newest[step] == now:  # a dump holds the text of the newest attempt
            writer.samples(step, run.texts.read(step))
    return step


def _rows(history: History) -> dict[int, dict[str, float]]:
    """Every step's numbers, collected column by column."""
    rows: dict[int, dict[str, float]] = {}
    view = history.view()
    for name in view.names():
        series = view.series(name)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            rows.setdefault(step, {})[name] = value
    return rows


def _times(history: History) -> dict[int, float]:
    """When each step was written, for the steps with a time."""
    known = history.view().times()
    return dict(zip(known.steps.tolist(), known.values.tolist(), strict=True))


def _written(files: tuple[str, ...]) -> list[float]:
    """When the files of a log were last written, for the files with a readable time."""
    return [os.stat(file).st_mtime for file in files if os.path.exists(file)]
