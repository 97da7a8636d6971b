"""One training run with everything around it: records, watch, remedies, checkpoints, signals.

The trainer knows none of this: it makes a step and hands out numbers. After every step, at the step boundary, the
session writes them, shows them to the watch, lets the policy act through the trainer's controls, and takes a
checkpoint when one is due. Whatever goes wrong in here is reported and never stops training.

Where steps are quick, and nothing acts on what the watch says of one, rows wait for each other: what no update depended
on is then measured, written and shown to the watch for some rows at a time, each by itself and in order, so that the
records and what is found are the same, and only the moment moves at which that is. A training step leaves nothing of
all this in the processor's caches, so that the first row after it costs several times what the next one does. Nothing
waits when a checkpoint is saved, or somebody asks a tick for its numbers, or the run ends, however it ends; a process
that is killed loses rows of `WRITTEN_S` at most that nobody was told of, and goes on from before them.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import platform
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers

from stabilizer.analysis.watching import new_watch
from stabilizer.control.arbiter import Arbiter, Mode
from stabilizer.control.fork import Fork, paired
from stabilizer.control.probe import Probe, probe
from stabilizer.core.failures import kind_of
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action, Finding, RunState
from stabilizer.live.desk import Desk
from stabilizer.runs.directory import HIDDEN, RunWriter, hidden_keys
from stabilizer.runs.history import History
from stabilizer.runs.listing import run_state, writer_lives
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.training.checkpoint import remove, scan
from stabilizer.training.checks import starting_knobs
from stabilizer.training.config import config_dict, config_from_dict
from stabilizer.training.inputs import anchored, changes, digests
from stabilizer.training.loop import StepResult, Trainer
from stabilizer.training.settings import TrainConfig

RESTATED = 20
"""Steps after which a finding that stands is written down again."""
TOGETHER = 64
"""Rows that may be written and shown to the watch at once, where nothing acts on what it says of each."""
LATE_S = 10.0
"""Seconds that a row may wait for the watch, if the next step takes as long as this one: after slow ones none waits."""
UNCHANGED = (700, 2000)
"""Objects made more than freed after which Python looks for cycles by itself, of its versions until 3.12 and since."""
SELDOM = 10_000
"""The same while a run trains."""
WRITTEN_S = 2.0
"""Seconds that it may wait to be written, likewise. Who looks on sees a row so much later, who asks for something is
heard so much later, and a process that is killed loses the rows of so long."""


@dataclass
class Row:
    """A step's numbers. What no update depended on is measured when it is first asked for, at the latest when the row
    is written."""

    result: StepResult
    monitor_s: float
    """Seconds that logging and detectors took after the step before."""
    t: float
    """When the step was made."""
    since: float
    """Since when it waits, by the clock that nobody sets."""
    trouble: str = ""
    """Why some numbers are missing, once they were asked for."""

    @property
    def step(self) -> int:
        """The step."""
        return self.result.step

    @cached_property
    def metrics(self) -> dict[str, float]:
        """All of it; as much as there is where measuring failed, for that never ends a run."""
        try:
            measured = self.result.metrics
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
            measured = self.result.known
        return {**measured, "time/monitor_s": self.monitor_s}


@dataclass(frozen=True)
class Tick:
    """What the session tells whoever looks on, once a step."""

    step: int
    steps: int
    row: Row
    findings: list[Finding]
    """Those that opened, changed or closed at this step, and at those before it that had waited for this one."""
    actions: list[Action]
    """Journal entries written after this step."""
    open_incidents: int
    record: Callable[[], None]
    """Writes the row, and those before it, if they wait for that."""
    troubles: Sequence[str] = ()
    """What failed at this step and did not end training, and was not told of before."""

    @property
    def known(self) -> dict[str, float]:
        """The numbers that the step itself had to compute; to read them costs nothing."""
        return self.row.result.known

    @property
    def metrics(self) -> dict[str, float]:
        """All numbers of the step, which are on record before anyone is told them: what was reported is never lost.

        While the row waits, to ask for them costs what waiting was to save.
        """
        self.record()
        return self.row.metrics


class Session:
    """A run directory, its trainer, and the watch over both. Make one with `start` or `resume`, then iterate `run`."""

    def __init__(
        self, trainer: Trainer, writer: RunWriter, mode: Mode, reader: RunReader | None = None, *, fork_steps: int = 0
    ):
        self.trainer = trainer
        self.writer = writer
        self.watch = new_watch()
        self.history = History(writer.about)
        self.stop_reason: str | None = None
        self.ended_by = ""
        """The fix that ended the run, if one did."""
        self.monitor_s = 0.0
        """Seconds that logging, detectors and the metrics left to them took after the newest step."""
        self.parting: list[Finding] = []
        """What changed with rows that still waited when the run ended: no tick tells of it."""
        self.parting_actions: list[Action] = []
        """Journal entries that were written then."""
        self._unsaid: list[Finding] = []
        """What was found before the first step: the first tick that tells of anything tells of it."""
        self._patient = False
        self._unwritten: deque[Row] = deque()
        """Rows that are not on record."""
        self._waiting: deque[Row] = deque()
        """Rows that the watch has not been shown."""
        self._door = -math.inf
        """When it was last looked up whether people wait."""
        self.heard: Callable[[str], None] = lambda signal: None
        """Told at once, within a signal handler, that the run is asked to end."""
        self._paused = False
        self._ending = False
        self._reasons: set[str] = set()
        """Why rewards or environments failed, as far as that is on record."""
        self._troubles: list[str] = []
        """What the present tick tells of them."""
        self.unsaved = ""
        """Why the newest state that was to be saved is not on disk; empty while it is."""
        self._told: dict[tuple[int, str], int] = {}
        """When each finding, by incident and id, was last written."""
        self._actions: list[Action] = []
        earlier: list[Action] = []
        if reader is not None:
            earlier = reader.actions
            self._retrace(reader)
        self.desk = Desk(self, earlier)
        trials = [entry for entry in earlier if not entry.action.startswith("h")]  # what hands did is the desk's own
        self.arbiter = Arbiter(mode, trainer.controls, self.watch, self, trials, fork_steps=fork_steps)
        if reader is not None:
            self.desk.recover(starting_knobs(trainer.config))

    @classmethod
    def start(cls, config: TrainConfig, path: Path, mode: Mode = "suggest", *, fork_steps: int = 0) -> Session:
        """Begin a new run in `path`. With `fork_steps` a fix is first tried on a copy for so many steps."""
        inputs = digests(config)  # before they are read: an edit meanwhile is then told of, rather than missed
        trainer = Trainer(config, checkpoints=path / "checkpoints")
        writer = RunWriter.create(
            path, config=config_dict(anchored(config)), task=config.task, steps=config.steps, versions=_versions(),
            inputs=inputs,
        )  # fmt: skip
        session = cls(trainer, writer, mode, fork_steps=fork_steps)
        for note in trainer.notes:
            writer.event(0, "note", note)
        for key in hidden_keys(writer.about["config"]):
            writer.event(0, "note", f"{key} looks like a secret and is not stored: the run can't be resumed without it")
        metrics = trainer.validate()
        trainer.note_validation(metrics)
        session._note_troubles(0, metrics)
        writer.metrics(0, metrics)  # before there is a state to go on from, as ever: nobody would make it again
        session.save_checkpoint()
        if session.unsaved:
            session._close("failed")
            raise RunError(
                f"{path / 'checkpoints'}: the first state could not be saved ({session.unsaved}), and without one"
                f" nothing could be resumed, gone back to or exported: make room, or choose another place for the run"
            )
        session.history.append(0, metrics)
        found = session.watch.tick(session.history.view())  # as a replay does: detectors take turns by rows
        session._unsaid = [replace(finding, t=time.time()) for finding in found]
        session._tell(session._unsaid, 0, wait=True)
        return session

    @classmethod
    def resume(cls, path: Path, mode: Mode = "suggest", *, fork_steps: int = 0) -> Session:
        """Go on with a run that was stopped, preempted or killed, from its newest verified checkpoint."""
        reader = RunReader(path)
        _refuse_a_second_writer(reader)
        writer = RunWriter.reopen(path)
        try:
            return cls._resumed(reader, writer, mode, fork_steps)
        except BaseException:
            writer.close()
            raise

    @classmethod
    def _resumed(cls, reader: RunReader, writer: RunWriter, mode: Mode, fork_steps: int) -> Session:
        path = writer.path
        reader.refresh()  # what another process wrote until it let go of the run
        attempt = max(reader.histories) + 1
        try:
            config = config_from_dict(reader.about["config"])
        except (KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"{path / 'run.json'}: no usable configuration in it ({error}); start the run anew"
            ) from None
        if hidden := hidden_keys(reader.about["config"]):
            raise ValueError(
                f"{path / 'run.json'}: {hidden[0]} looked like a secret and was not stored; put its value in place"
                f" of {HIDDEN!r} there to go on, and take secrets from the environment next time"
            )
        _forget_unfinished_returns(reader)
        trainer = Trainer(config, checkpoints=path / "checkpoints", attempt=attempt)
        checkpoint = trainer.resume()
        if checkpoint is None:
            raise ValueError(f"{path / 'checkpoints'}: no checkpoint that can be verified; start the run anew")
        if trainer.finished and reader.status.get("state") == "finished":
            raise ValueError(f"{path}: {trainer.finished}; there is nothing to go on with; {_onward(path)}")
        # A checkpoint newer than every attempt was saved just before its attempt could be declared: it goes on from
        # the newest one declared.
        parent = min(checkpoint.attempt, writer.attempt)
        history = reader.histories[parent].fork(checkpoint.step + 1, attempt)
        writer.begin_attempt(checkpoint.step + 1, "resume", parent=parent, history=history)
        writer.event(checkpoint.step + 1, "resume", f"resumed from step {checkpoint.step}")
        reader.refresh()
        session = cls(trainer, writer, mode, reader, fork_steps=fork_steps)
        if trainer.finished:  # it died after its last step: what was under way is closed now, and the run with it
            session._close("finished")
            raise ValueError(
                f"{path}: {trainer.finished}; there is nothing to go on with, and its records are closed;"
                f" {_onward(path)}"
            )
        inputs = reader.about.get("inputs")
        for change in changes(inputs) if isinstance(inputs, dict) else ():
            session._trouble(checkpoint.step + 1, change)
        return session

    def run(self, *, patient: bool = False) -> Iterator[Tick]:
        """Train to the end, one tick a step. The run's state on disk is right however this ends.

        Who is `patient` does nothing that depends on the step at which a row is written or a finding told, so that
        quick steps may be looked at some at a time (see `TOGETHER`). Where a fix may be made, every step is looked at
        by itself all the same, so that training does not depend on how quick the machine is.
        """
        self._patient = patient and self.arbiter.mode in ("off", "suggest")
        self._status("running")
        with self._signals(), _cycles_seldom_sought():
            state: RunState = "failed"
            try:
                while not self.trainer.finished and not self.stop_reason and not self.ended_by:
                    self._wait_while_paused()
                    if self.stop_reason:  # asked to end while it paused
                        break
                    result = self.trainer.train_step()
                    began = time.perf_counter()
                    tick = self._observe(Row(result, self.monitor_s, time.time(), time.monotonic()))
                    self.monitor_s = time.perf_counter() - began
                    self._save_if_due(result.step)
                    self._troubles = []  # the tick has them
                    yield tick
                ended: RunState = "stopped" if self.ended_by else "finished"
                state = {"SIGTERM": "preempted", "SIGINT": "stopped"}.get(self.stop_reason or "", ended)
                if state == ended and self.trainer.step < self.trainer.config.steps and not self.stop_reason:
                    why = self.trainer.finished or self.ended_by
                    self.writer.event(self.trainer.step, "note", f"ended early: {why}")
            except (GeneratorExit, KeyboardInterrupt):  # whoever looks on has had enough
                state = "stopped"
                raise
            except Exception as error:
                self._note_failure(error)
                raise
            finally:
                self._end(state)

    def _end(self, state: RunState) -> None:
        """Save what there is and close the records, however the run ended; being asked to end again changes nothing."""
        self._ending = True
        sound = state != "failed" and self.trainer.whole  # after a step that broke off, the states on disk are right
        try:
            self._part(heeding=sound)
            if sound:
                self.save_checkpoint()
        finally:
            self._close(state)

    def _part(self, *, heeding: bool) -> None:
        """Write and look at what still waits, for whoever looks on to be told at the end."""
        self._actions = self.parting_actions
        self.parting += self.catch_up(heeding=heeding)

    def _note_failure(self, error: Exception) -> None:
        """What stopped training goes on record as an event, and as the finding that ends the run."""
        self._part(heeding=False)  # a state that a step left half-way is not to be saved; on resuming they are heard
        message = f"{type(error).__name__}: {error}"
        lines = "".join(traceback.format_exception(error))[-4000:]
        failure = {"failure": kind_of(message), "message": message, "traceback": lines}
        self.declare(self.trainer.step, "note", f"training failed: {error}", **failure)
        for finding in self.watch.end(self.history.view()):
            self.writer.finding(replace(finding, t=time.time()))

    # --- after a step -----------------------------------------------------------------------------------------------

    def _observe(self, row: Row) -> Tick:
        step = row.step
        self._unwritten.append(row)
        self._waiting.append(row)
        self.writer.samples(step, row.result.samples)
        self._note_troubles(step, row.result.known)
        self._actions = []
        changed: list[Finding] = []
        if not self._may_wait(row.result.known) or self._asked():
            changed = self.catch_up()
        elif _late(self._unwritten[0].since, row.result.known, WRITTEN_S):
            self._write_down()
            self._status("running")
        incidents = {f.incident for f in self.watch.active() if f.severity != "info"}
        return Tick(
            step,
            self.trainer.config.steps,
            row,
            changed,
            self._actions,
            len(incidents),
            self._write_down,
            self._troubles,
        )

    def _note_troubles(self, step: int, known: Mapping[str, float]) -> None:
        """Put on record, and tell, why a reward or the environment failed, each reason once; and of a validation what
        it could not grade."""
        task, outages = self.trainer.task, self.trainer.collector.outages
        for what, reasons in (("a reward", task.failures), ("the environment", outages)):
            for reason in [reason for reason in reasons if reason not in self._reasons]:
                self._reasons.add(reason)
                self._trouble(step, f"{what} failed: {reason}")
        if failed := self.trainer.ungraded:
            so = (
                "accuracy/val is that of the others" if "accuracy/val" in known else "too few are left for accuracy/val"
            )
            self._trouble(step, f"{failed} held-out problems got no reward, so {so}")

    def _trouble(self, step: int, text: str) -> None:
        """What failed without ending training goes on record, and is told."""
        self.writer.event(step, "note", text)
        self._troubles.append(text)

    def _write_down(self) -> None:
        """Put on record what waits for it."""
        while self._unwritten:
            row = self._unwritten[0]
            metrics = row.metrics
            self._unwritten.popleft()  # only now: an interrupt while it is measured loses no row
            self.writer.metrics(row.step, metrics, row.t)
            if row.trouble:
                self.writer.event(row.step, "note", f"monitor failed: {row.trouble}")

    def _may_wait(self, known: Mapping[str, float]) -> bool:
        """Whether the newest row may be looked at with the next one: nobody acts on it, another step follows at once,
        and nothing that the updates computed is no number."""
        if not self._patient or len(self._waiting) >= TOGETHER:
            return False
        trainer = self.trainer
        if trainer.finished or trainer.checkpoint_due or self.stop_reason or self.ended_by:
            return False
        return not _late(self._waiting[0].since, known, LATE_S) and math.isfinite(sum(known.values()))

    def _asked(self) -> bool:
        """Whether people may be waiting for an answer, as far as a look every `WRITTEN_S` seconds tells."""
        now = time.monotonic()
        if now - self._door < WRITTEN_S:
            return False
        self._door = now
        return self.desk.waited_for

    def catch_up(self, *, heeding: bool = True) -> list[Finding]:
        """Write the rows that wait and look at them, in order, heeding what people ask for or not; the findings that
        changed."""
        self._write_down()
        if not self._waiting:
            return []
        changed, self._unsaid = self._unsaid, []
        for row in self._waiting:
            if row.step > self.history.step:  # else an interrupt came between this and the look
                self.history.append(row.step, row.metrics)
        while self._waiting:
            row = self._waiting.popleft()
            changed += self._look(row.step, heeding=heeding and not self._waiting)
        if self._patient and (changed or self._actions):
            self.writer.sync_soon()
        self._status("running")
        if self.writer.summary_due:
            verdict, ever = self.watch.verdict(self.history.view())
            self.writer.summary(verdict=verdict, worst=ever)
        return changed

    def _look(self, step: int, *, heeding: bool) -> list[Finding]:
        """Show one row to the watch, and let the policy answer; people are heeded where the run is, at the newest."""
        changed: list[Finding] = []
        try:
            view = self.history.view(step)
            changed = [replace(finding, t=time.time()) for finding in self.watch.tick(view)]
            self._tell(changed, step, wait=not self._patient)
            self._tell_anew(step, RESTATED)
            if heeding:
                self._heed()
            self.arbiter.tick(view, self.desk.answers() if heeding else [])
            if heeding:
                self.desk.settle()
                self.desk.return_if_asked()
        except Exception as error:  # the monitor never harms training; its own failure is on record
            self._note_monitor_failure(step, error)
        return changed

    def _wait_while_paused(self) -> None:
        if self._paused:
            self._write_down()  # who paused may take any time
        while self._paused and not self.stop_reason:
            self._status("paused")
            self._heed()
            try:
                self.desk.return_if_asked()
            except Exception as error:  # as after a step: whatever somebody asks for never ends the run
                self._note_monitor_failure(self.trainer.step, error)
            time.sleep(0.2)

    def _heed(self) -> None:
        """Take in what people ask for; whatever they left in the folder, remedies are looked after all the same."""
        try:
            self.desk.look()
        except Exception as error:
            self._note_monitor_failure(self.trainer.step, error)

    def _note_monitor_failure(self, step: int, error: Exception) -> None:
        self.writer.event(step, "note", f"monitor failed: {type(error).__name__}: {error}")

    def _status(self, state: RunState) -> None:
        self.writer.status(state, self.trainer.step, remedy=self.arbiter.mode)

    def _save_if_due(self, step: int) -> None:
        if self.trainer.step == step and self.trainer.checkpoint_due:
            self.save_checkpoint()

    def save_checkpoint(self) -> None:
        """Save the present state; when that fails it is on record, and training goes on.

        Every row up to it is written first: a run goes on from a state, and nobody would make those before it again.
        """
        self._write_down()
        try:
            self.trainer.save_checkpoint()
        except OSError as error:
            told, self.unsaved = self.unsaved, str(error)
            text = f"checkpoint could not be saved: {error}"
            if told:  # as the one before
                self.writer.event(self.trainer.step, "note", text)
            else:
                self._trouble(self.trainer.step, text)
        else:
            self.unsaved = ""

    def _tell_anew(self, step: int, after: int) -> None:
        """Write down what stands, where it was last written so many steps ago: its numbers have moved on since."""
        told = self._told
        old = [f for f in self.watch.active() if abs(step - told.get((f.incident, f.id), step)) >= after]
        self._tell([replace(finding, t=time.time()) for finding in old], step, wait=False)

    def _tell(self, findings: Sequence[Finding], step: int, *, wait: bool) -> None:
        """Write findings down, and when that was; `wait` until the disk has them."""
        if findings:
            self.writer.finding(*findings, sync=wait)
        for finding in findings:
            self._told[finding.incident, finding.id] = step

    def _close(self, state: RunState) -> None:
        self._tell_anew(self.trainer.step, 1)
        verdict, ever = self.watch.verdict(self.history.view())
        self._status(state)
        self.writer.summary(verdict=verdict, worst=ever, force=True)
        self.writer.close()

    def hold(self, paused: bool) -> None:
        """Make no further step, or go on."""
        self._paused = paused

    # --- what the policy asks for (see `policy.Host`) ----------------------------------------------------------------

    def journal(self, action: Action) -> Action:
        """Write an entry of the journal, with the step after which it holds where that is not the one it speaks of."""
        if action.step != self.trainer.step:  # a return to a checkpoint; what an earlier life left to be closed
            action = replace(action, data={**action.data, "after_step": self.trainer.step})
        record = self.writer.action(action, sync=not self._patient or action.entry != "proposed")
        self._actions.append(record)
        self.desk.note(record)
        return record

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event; detectors see it from that step on."""
        self.history.events.append(self.writer.event(step, kind, text, **data))

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return to a checkpoint: the trainer goes back, a new attempt begins, the old branch stays readable."""
        self.trainer.controls.restore(checkpoint, vary_data=vary_data)
        self.trainer.attempt = self.writer.attempt + 1
        self.save_checkpoint()  # before the attempt is declared: a crash in between must not resume the old branch
        history = self.history.fork(checkpoint.step + 1, self.trainer.attempt)
        self.writer.begin_attempt(checkpoint.step + 1, "rollback", history=history)
        self.history = history
        self.declare(checkpoint.step + 1, "rollback", text, **data)

    def pause(self, text: str) -> None:
        """Wait after this step until a person says `resume`."""
        self.hold(True)
        self.declare(self.trainer.step, "note", f"paused: {text}")

    def stop(self, text: str) -> None:
        """End the run after this step; its state is saved as at any end."""
        self.ended_by = text

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Run copies of the run side by side; the run itself stands where it stood."""
        return paired(self.trainer, changes, steps)

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """See what the weights of a checkpoint would get now; the run itself stands where it stood."""
        return probe(self.trainer, checkpoint)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _retrace(self, reader: RunReader) -> None:
        """Show the watch everything it saw before, so that it holds what it held when the run stopped.

        What was found in the last rows, and not written down before it died, is written now.
        """
        newest = max(reader.histories)
        told = {_as_told(finding) for finding in reader.findings}
        late = len(reader.ticks) - TOGETHER
        for number, (attempt, step) in enumerate(reader.ticks):
            changed = self.watch.tick(reader.histories[attempt].view(step))
            if number >= late:
                missing = [replace(f, t=time.time()) for f in changed if _as_told(f) not in told]
                self._tell(missing, step, wait=True)
        self.history = reader.histories[newest]
        self._told = {(f.incident, f.id): f.last_step for f in reader.findings} | self._told

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the run after the present step, with a checkpoint; a second Ctrl-C ends it at once."""

        def stop(number: int, frame: Any) -> None:
            if self.stop_reason and number == signal.SIGINT:
                raise KeyboardInterrupt
            if not self._ending:
                self.stop_reason = signal.Signals(number).name
                self.heard(self.stop_reason)

        try:
            before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # not the main thread: its owner handles signals
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _late(since: float, known: Mapping[str, float], limit_s: float) -> bool:
    """Whether what waits since then would have waited too long after one more step like this."""
    return time.monotonic() - since + known.get("time/step_s", limit_s) >= limit_s


def _onward(path: Path) -> str:
    """How the weights of a run that is over are trained on."""
    return f"to train on from its weights, `stabilizer export {path} -o FOLDER`, and a new run with --set model=FOLDER"


def _as_told(finding: Finding) -> tuple[Any, ...]:
    """By what a line of `findings.jsonl` is known again."""
    return finding.attempt, finding.incident, finding.id, finding.state, finding.severity, finding.last_step


def _refuse_a_second_writer(reader: RunReader) -> None:
    """One run has one writer: a live one must be stopped before another goes on in its place."""
    status = reader.status
    if run_state(status, time.time()) not in ("running", "paused", "created") or not status.get("t"):
        return
    if writer_lives(status) is False or status.get("pid") == os.getpid():  # it was killed and could not say so
        return
    where = f"process {status.get('pid')} on {status.get('host')}"
    raise ValueError(f"{reader.path}: {where} still trains this run; stop it first (SIGTERM saves and ends it)")


@contextlib.contextmanager
def _cycles_seldom_sought() -> Iterator[None]:
    """A while in which Python looks for reference cycles a tenth as often.

    By itself it does so several times a step, and now and then among the million objects of the libraries, which takes
    half a second. Steps leave some sixty small objects in cycles, and no tensor. Who has chosen a rhythm of their own,
    before or meanwhile, keeps it.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] not in UNCHANGED:
        yield
        return
    ours = (SELDOM, *before[1:])
    gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*before)


def _forget_unfinished_returns(reader: RunReader) -> None:
    """Take away the states of a return to a checkpoint that death cut off, so that the run goes on from before it.

    The journal is about to say that nothing came of it, and weights must not say otherwise. A return is unfinished when
    no step was made after it, and either its attempt was never declared or the journal does not know of it yet.
    """
    begun = bool(reader.actions) and reader.actions[-1].entry == "approved"
    declared = {entry["attempt"]: entry.get("reason") for entry in reader.about["attempts"]}
    rows = {attempt for attempt, _ in reader.ticks}
    for state in scan(reader.path / "checkpoints"):
        undeclared = state.attempt not in declared
        returned = declared.get(state.attempt) == "rollback" and begun and state.attempt == max(declared)
        if state.attempt not in rows and (undeclared or returned):
            remove(state)


def _versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version()}
