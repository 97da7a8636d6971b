"""Writing a loaded run as a run directory: rows and events as they were read, incidents as a live watch finds them.

Completions that the log keeps come with it, at most a few hundred a step. When the rows were written is not known of
most logs, so their times are those of the import; the directory says so.
"""

from __future__ import annotations

from pathlib import Path

from stabilizer.runs.directory import RunWriter
from stabilizer.runs.history import History
from stabilizer.runs.loaded import LoadedRun
from stabilizer.watch import Watch


def write_run(run: LoadedRun, path: Path) -> Path:
    """Write `run` to `path`. FileExistsError when there is a run already, OSError when it can't be written."""
    about = run.history.about
    planned = about.get("steps")
    writer = RunWriter.create(
        path,
        config=about.get("config") or {},
        task=run.source.trainer,
        trainer=run.source.trainer,
        steps=planned if isinstance(planned, int) else None,
        clock=str(about.get("clock", "optimizer_step")),
        metrics=about.get("metrics") or {},
    )
    watch = Watch()
    attempt, step = run.ticks[0] if run.ticks else (0, 0)
    rows = {number: _rows(history) for number, history in run.histories.items()}
    told = 0
    newest = {step: attempt for attempt, step in run.ticks}
    texts = set(run.texts.steps)
    writer.event(0, "note", f"imported from {', '.join(run.source.files)}; times are those of the import")
    for now, step in run.ticks:
        history = run.histories[now]
        if now != attempt:
            attempt, told = now, len([event for event in history.events if event.step < step])
            writer.begin_attempt(step, "resume", history=history.fork(step, now))
        for event in history.events[told:]:
            if event.step > step:
                break
            writer.event(event.step, event.kind, event.text, **event.data)
            told += 1
        writer.metrics(step, rows[now][step])
        if step in texts and newest[step] == now:  # a dump holds what the newest attempt wrote
            writer.samples(step, run.texts.read(step))
        for finding in watch.tick(history.view(step)):
            writer.finding(finding)
    for finding in watch.end(run.history.view()):
        writer.finding(finding)
    writer.finding(*watch.active())  # their numbers have moved on since they were last written
    verdict, worst = watch.verdict(run.history.view())
    failed = verdict == "crashed"
    writer.status("failed" if failed else "finished", step, force=True)
    writer.summary(verdict=verdict, worst=worst, force=True)
    writer.close()
    if problems := writer.problems():
        raise OSError(f"{path}: not everything could be written: {problems[0]}")
    return path


def _rows(history: History) -> dict[int, dict[str, float]]:
    """Every step's numbers, collected column by column."""
    rows: dict[int, dict[str, float]] = {}
    view = history.view()
    for name in view.names():
        series = view.series(name)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            rows.setdefault(step, {})[name] = value
    return rows
