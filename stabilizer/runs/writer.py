"""The one process that writes a run directory: the training process, through `RunWriter`.

A viewer never writes here, except for requests (`requests.py`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from stabilizer.core.metrics import metric
from stabilizer.core.records import Action, Event, Finding, Metrics, RunState, Sample, encode, encode_metrics
from stabilizer.runs.append import AppendFile, LateFiles
from stabilizer.runs.atomic import SmallFiles, replace_json
from stabilizer.runs.chain import JournalEnd
from stabilizer.runs.disk import Disk
from stabilizer.runs.heartbeats import clear_beats
from stabilizer.runs.history import History
from stabilizer.runs.identity import RunFacts, claim, description, newest_attempt
from stabilizer.runs.processes import process
from stabilizer.runs.reader import read_json
from stabilizer.runs.summary import Summary
from stabilizer.runs.syncer import Syncer

MAX_TEXT = 64 * 1024
"""Characters of a prompt or completion that are kept (head and tail)."""

HEARTBEAT_S = 1.0
"""Seconds between two heartbeats of an unchanged state."""
JOURNAL_S = 5.0
"""Longest wait for the disk where weights are about to change, in seconds: as long as for a detector."""
ROOM_FOR_SAMPLES = 100
"""Steps whose completions may wait for the disk in memory; each may hold some MB."""
LAST_TRIES, BETWEEN_TRIES_S = 5, 0.2
"""Tries to write the last status and summary where the disk refuses them, and seconds between two: 1 s in all."""


class RunWriter:
    """Writes a run directory. After `create` or `reopen` no method raises an OSError, and none waits for a disk that
    does not answer: all work is done by one thread, in order (`disk.py`).

    What could not be written waits and is tried again with every later record; `problems` reports it.
    """

    def __init__(self, path: Path, about: dict[str, Any], lock: int, *, attempt: int):
        self.path = path = path.absolute()  # the process may change its working directory
        self.about = about
        self.attempt = attempt
        self._release = weakref.finalize(self, os.close, lock)
        self._n = 0
        self._metrics = AppendFile(_metrics_path(path, attempt))
        self._events = AppendFile(path / "events.jsonl")
        self._findings = AppendFile(path / "findings.jsonl", sync=True)
        self._actions = AppendFile(path / "actions.jsonl", sync=True)
        self._actions.flush()  # a last line that only lacks its newline is an entry of the chain
        self._journal = JournalEnd(path / "actions.jsonl")
        self._late = LateFiles()
        self._syncer = Syncer()
        self.disk = Disk()
        weakref.finalize(self, self.disk.end)
        self._small = SmallFiles(path, self._syncer)
        self._summary = Summary()
        self._remedy: str | None = None
        self._status: tuple[Any, ...] = ()
        self._wanted: tuple[Any, ...] = ()
        """The newest status, written or not."""
        self._status_t = 0.0
        self._place = _identity(path)
        self.displaced = self._displaced = ""
        """What became of the folder, if it was moved or deleted while the run was training."""

    @classmethod
    def create(cls, path: Path, **facts: Unpack[RunFacts]) -> RunWriter:
        """Start a new run directory. FileExistsError when there is a run already, OSError when it can't be made."""
        if (path / "run.json").exists():
            raise FileExistsError(f"{path}: there is a run here already; choose another name or --resume it")
        about = description(path, **facts)
        replace_json(path / "run.json", about)
        return cls(path, about, claim(path), attempt=0)._usable()

    @classmethod
    def reopen(cls, path: Path) -> RunWriter:
        """Continue a run of an earlier process; call `begin_attempt` before writing metrics."""
        lock = claim(path)
        about = read_json(path / "run.json")
        if not isinstance(about.get("metrics"), dict):
            about["metrics"] = {}  # each metric is described again with its next row
        try:
            attempt = newest_attempt(path, about)
        except ValueError:
            os.close(lock)
            raise
        with contextlib.suppress(OSError):  # a stall of an earlier process is none of this one
            clear_beats(path)
        return cls(path, about, lock, attempt=attempt)._usable()

    # --- what the run says ------------------------------------------------------------------------------------------

    def metrics(self, step: int, values: Mapping[str, float], t: float | None = None) -> bool:
        """One record of numbers. True when it is in the file."""
        new = [name for name in values if name not in self.about["metrics"]]
        self._describe(new)
        now = time.time() if t is None else t
        line = encode_metrics(Metrics(step=step, values=values, t=now, n=self._n))
        self._n += 1
        self._summary.add(step, values)
        return bool(self.disk.do(partial(self._write_row, line, described=bool(new))))

    def _write_row(self, line: bytes, *, described: bool) -> bool:
        self._catch_up()
        if described:
            self._small.replace("run.json", self.about)
        return self._metrics.append(line)

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        """The completions of a step, in a file of their own that is never overwritten."""
        if samples:
            self.disk.do(partial(self._write_samples, step, samples), room=ROOM_FOR_SAMPLES)

    def _write_samples(self, step: int, samples: Sequence[Sample]) -> None:
        file = AppendFile(self.path / "samples" / f"{step:06d}-r0.jsonl")
        for sample in samples:
            file.append(encode(_shortened(sample)))
        self._late.retire(file)

    def event(self, step: int, kind: str, text: str, **data: Any) -> Event:
        """Declare something that was not measured."""
        return self.record(Event(step=step, kind=kind, text=text, t=time.time(), attempt=self.attempt, data=data))

    def record(self, event: Event) -> Event:
        """Write an event as it is, with the time it has."""
        self.disk.do(partial(self._events.append, encode(event)))
        return event

    def finding(self, *findings: Finding, sync: bool = True) -> None:
        """Findings that opened, changed or closed; without `sync` where only `last_step` changed."""
        lines = [encode(finding) for finding in findings]
        self.disk.do(partial(self._findings.append, *lines, sync=sync), room=None)

    def action(self, action: Action, *, sync: bool = True) -> Action:
        """Add an entry to the journal; returns the record that was written, with its place in the chain.

        An entry that changes nothing in the run needs no `sync`. While the disk does not answer, `disk.behind` says so.
        """
        entry = self._journal.add(action, self.attempt)
        patience_s = {"patience_s": JOURNAL_S} if sync else {}
        self.disk.do(partial(self._actions.append, encode(entry), sync=sync), room=None, **patience_s)
        return entry

    def begin_attempt(
        self, from_step: int, reason: str, *, parent: int | None = None, history: History | None = None
    ) -> int:
        """A rollback or resume: later metrics belong to a new attempt whose steps count from `from_step`.

        `parent` is the attempt it branches off (that of the checkpoint; the present one when not given). `history` is
        the lineage it starts with, from which the summary is computed again.
        """
        attempt = self.attempt + 1
        parent = self.attempt if parent is None else parent
        self.about["attempts"].append({"attempt": attempt, "from_step": from_step, "parent": parent, "reason": reason})
        self.attempt = attempt
        self.disk.do(partial(self._change_file, attempt), patience_s=JOURNAL_S, room=None)
        self._n = 0
        if history is not None:
            self._summary = Summary(history)
        return attempt

    def _change_file(self, attempt: int) -> None:
        """Have the rows from here on written to the file of a new attempt."""
        self._small.replace("run.json", self.about)
        before, self._metrics = self._metrics, AppendFile(_metrics_path(self.path, attempt))
        self._late.retire(before)

    def status(
        self, state: RunState, step: int, *, remedy: str | None = None, force: bool = False, t: float | None = None
    ) -> None:
        """The heartbeat, at most one a second unless the state changed.

        `remedy` is the mode of the remedies, kept once given. `t` is when the run was last seen; now when not given.
        """
        now = time.time() if t is None else t
        if remedy is not None:
            self._remedy = remedy
        made = len(self._journal.applied)
        status = (state, self.attempt, self._remedy, made)
        changed = force or status != self._status
        if not changed and abs(now - self._status_t) < HEARTBEAT_S:  # a clock may be set back
            return
        if self.disk.behind and status == self._wanted:  # it waits to be written already
            return
        self._wanted = status
        row: dict[str, Any] = {"state": state, "step": step, "steps": self.about.get("steps"), "t": now}
        row |= {"pid": os.getpid(), "host": socket.gethostname(), "attempt": self.attempt}
        row |= {"began": own.began} if (own := process(os.getpid())) is not None else {}
        row |= {"remedy": self._remedy} if self._remedy is not None else {}
        row |= {"interventions": made} if made else {}  # lists of runs open no journal
        if not changed:
            self._status_t = now
        if self.disk.do(partial(self._write_status, row, step, soon=not changed), room=None):
            self._status, self._status_t = status, now

    def _write_status(self, row: dict[str, Any], step: int, *, soon: bool) -> bool:
        self._catch_up()
        self._stay_in_place(step)
        if soon:
            self._small.replace_soon("status.json", row)
            return False
        return self._small.replace("status.json", row)

    @property
    def summary_due(self) -> bool:
        """Whether the last summary is old enough to be written again."""
        return self._summary.due

    def summary(self, *, verdict: str, worst: str | None, force: bool = False) -> None:
        """Write `summary.json` when it is due."""
        if not force and not self.summary_due:
            return
        row = self._summary.row(verdict, worst)
        self.disk.do(partial(self._write_summary, row, soon=not force))

    def _write_summary(self, row: dict[str, Any], *, soon: bool) -> None:
        self._catch_up()
        (self._small.replace_soon if soon else self._small.replace)("summary.json", row)

    def take_displaced(self) -> str:
        """What is to be known about the folder if it was moved or deleted since the last call; else empty."""
        said, self._displaced = self._displaced, ""
        return said

    def _stay_in_place(self, step: int) -> None:
        """Go on in a new folder of the same name when the run's folder was moved or deleted.

        Open files would follow a moved folder, and states and status would not: one run in two halves.
        """
        try:
            place = _identity(self.path)
        except OSError:  # it can't be looked at now
            return
        if place == self._place:
            return
        for file in (self._metrics, self._events, self._findings, self._actions):
            file.close()
        self._small.replace("run.json", self.about)
        for file in (self._metrics, self._events, self._findings, self._actions):
            file.flush()
        with contextlib.suppress(OSError, ValueError):
            self._place, lock = _identity(self.path), claim(self.path)
            self._release()
            self._release = weakref.finalize(self, os.close, lock)
        self.displaced = (
            f"{self.path} was moved or deleted while the run was training: records from step {step} on are in a new"
            " folder of that name, earlier ones and older checkpoints are where it went"
        )
        self._displaced = self.displaced

    def problems(self) -> list[str]:
        """What could not be written, in words, for the terminal; empty when all is well."""
        found = [f"{file.path}: {file.error}" for file in self._files() if file.error]
        found += [f"{self.path / name}: {error}" for name, error in list(self._small.refused.items())]
        found += [f"{self.path}: {what}: {error}" for what, error in list(self._syncer.failed.items())]
        found += [f"{self.path}: {self.disk.failed}"] if self.disk.failed else []
        found += [f"{self.path}: {self.disk.waiting:,} records wait for the disk"] if self.disk.behind else []
        found += [self.displaced] if self.displaced else []
        lost = self.disk.lost + self._late.lost + sum(file.lost for file in self._files())
        return [*found, f"{self.path}: {lost:,} lines were lost while nothing could be written"] if lost else found

    def close(self) -> None:
        """Close all files and unlock the run, but do not wait for a disk that never answers."""
        self.disk.do(self._close, patience_s=0, room=None)
        if self.disk.close():
            self._release()

    def _close(self) -> None:
        """The last tries: without its last status a run would seem to go on for ever."""
        self._catch_up()
        for _ in range(LAST_TRIES):
            if not self._small.refused:
                break
            time.sleep(BETWEEN_TRIES_S)
            self._small.retry()
        self._syncer.close()
        for file in self._files():
            file.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _files(self) -> tuple[AppendFile, ...]:
        return (self._metrics, self._events, self._findings, self._actions, *self._late.files)

    def _usable(self) -> RunWriter:
        """This writer; OSError when a file of it can't be opened now, before there is any training to protect."""
        if error := next((file.error for file in self._files() if file.error), None):
            self.close()
            raise error
        return self

    def _catch_up(self) -> None:
        """Try again what was refused before: `run.json`, for without it a new attempt is invisible, and old files."""
        if "run.json" in self._small.refused:
            self._small.replace("run.json", self.about)
        self._late.retry()

    def _describe(self, names: list[str]) -> None:
        for name in names:
            known = metric(name)
            self.about["metrics"][name] = {
                "unit": known.unit,
                "estimator": known.estimator,
                "aggregation": known.aggregation,
                "source": name,
            }


def _metrics_path(run: Path, attempt: int) -> Path:
    return run / "metrics" / f"r0-a{attempt}.jsonl"


def _identity(path: Path) -> tuple[int, int] | None:
    """Which folder has this name; None when none has."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _shortened(sample: Sample) -> Sample:
    """A sample that fits a line; tokens are kept only where they still make up the completion."""
    sample = replace(sample, prompt=_capped(sample.prompt), expected=_capped(sample.expected))
    completion = _capped(sample.completion)
    if completion != sample.completion:
        return replace(sample, completion=completion, tokens=(), logps=())
    return sample


def _capped(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2]} [… {len(text) - MAX_TEXT} characters left out …] {text[-MAX_TEXT // 2 :]}"
