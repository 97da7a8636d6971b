"""Joins a log and the dump of completions beside it: the log's numbers, and what only the dump holds.

The log has priority: its numbers are the trainer's own, over all processes and updates. The dump adds group statistics
that the log does not hold, and the texts. A dump is overwritten when training resumes, so it belongs to the newest
attempt. A dump of another trainer, or of steps beyond the log, belongs to another training.
"""

from __future__ import annotations

from dataclasses import replace

from stabilizer.runs.loaded import LoadedRun, Texts
from stabilizer.trainers.all import find


def writer(run: LoadedRun) -> str:
    """The trainer whose code wrote the files of a run: that of another one, where it runs inside."""
    known = find(run.source.trainer)
    return known.dumps_as if known and known.dumps_as else run.source.trainer


def belongs(dump: LoadedRun, run: LoadedRun) -> bool:
    """Whether the dump is of the same training as the log."""
    steps = [step for _, step in run.ticks]
    return writer(run) == dump.source.trainer and bool(steps) and dump.texts.steps[0] <= max(steps)


def joined(run: LoadedRun, dump: LoadedRun, where: str) -> LoadedRun:
    """The log with what only the dump holds; `where` names the dump in the notes."""
    newest, told = run.history, dump.history.view()
    new = [name for name in told.names() if name not in newest.names()]
    for name in new:
        series = told.series(name)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            newest.append(step, {name: value})
    metrics = {name: definition for name, definition in dump.history.about["metrics"].items() if name in new}
    for history in run.histories.values():
        history.about = {**history.about, "metrics": {**history.about.get("metrics", {}), **metrics}}
    steps = {step for attempt, step in run.ticks if attempt == newest.attempt}
    steps |= {step for _, step in dump.ticks if step >= max(newest.forks, default=0)}
    ticks = [tick for tick in run.ticks if tick[0] != newest.attempt] + [
        (newest.attempt, step) for step in sorted(steps)
    ]
    both = {**dict.fromkeys(dump.texts.steps, dump.texts), **dict.fromkeys(run.texts.steps, run.texts)}
    source = replace(
        run.source,
        files=(*run.source.files, *dump.source.files),
        steps=len(set(ticks)),
        skipped_lines=run.source.skipped_lines + dump.source.skipped_lines,
        notes=(
            *run.source.notes,
            f"completions of {len(dump.texts.steps):,} steps, and what only they tell, from {where} "
            f"({dump.source.format})",
            *dump.source.notes,
        ),
    )
    texts = Texts(tuple(sorted(both)), lambda step: both[step].read(step) if step in both else [])
    return replace(run, source=source, ticks=ticks, texts=texts)
