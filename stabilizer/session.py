"""One training run with everything around it: records, watch, remedies, checkpoints, signals.

The trainer knows none of this: it makes a step and hands out numbers. After every step, at the step boundary, the
session writes them, shows them to the watch, lets the policy act through the trainer's controls, and takes a
checkpoint when one is due. Whatever goes wrong in here is reported and never stops training.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers

from stabilizer.failures import kind_of
from stabilizer.records import Action, Finding, RunState, Sample
from stabilizer.remedies.controls import Checkpoint, in_words, parse_order, parse_turn
from stabilizer.remedies.fork import Fork, paired
from stabilizer.remedies.policy import Arbiter, Mode
from stabilizer.runs.directory import HIDDEN, RunWriter, hidden_keys
from stabilizer.runs.history import History
from stabilizer.runs.listing import run_state, writer_lives
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.runs.requests import Request, take
from stabilizer.trainer.config import config_dict, config_from_dict
from stabilizer.trainer.loop import Trainer
from stabilizer.trainer.settings import TrainConfig
from stabilizer.watch import Watch


@dataclass(frozen=True)
class Tick:
    """What the session tells whoever looks on, once a step."""

    step: int
    steps: int
    metrics: dict[str, float]
    findings: list[Finding]
    """Those that opened, changed or closed at this step."""
    actions: list[Action]
    """Journal entries written at this step."""
    open_incidents: int


class Session:
    """A run directory, its trainer, and the watch over both. Make one with `start` or `resume`, then iterate `run`."""

    def __init__(
        self, trainer: Trainer, writer: RunWriter, mode: Mode, reader: RunReader | None = None, *, fork_steps: int = 0
    ):
        self.trainer = trainer
        self.writer = writer
        self.watch = Watch()
        self.history = History(writer.about)
        self.stop_reason: str | None = None
        self.ended_by = ""
        """The fix that ended the run, if one did."""
        self._paused = False
        self._reasons: set[str] = set()
        """Why rewards or environments failed, as far as that is on record."""
        self._asked: list[Request] = []
        self._wanted: tuple[Checkpoint, str] | None = None  # a state somebody wants back, and who
        self._actions: list[Action] = []
        earlier = []
        if reader is not None:
            earlier = reader.actions
            self._retrace(reader)
        self.arbiter = Arbiter(mode, trainer.controls, self.watch, self, earlier, fork_steps=fork_steps)

    @classmethod
    def start(cls, config: TrainConfig, path: Path, mode: Mode = "suggest", *, fork_steps: int = 0) -> Session:
        """Begin a new run in `path`. With `fork_steps` a fix is first tried on a copy for so many steps."""
        trainer = Trainer(config, checkpoints=path / "checkpoints")
        writer = RunWriter.create(
            path, config=config_dict(config), task=config.task, steps=config.steps, versions=_versions()
        )
        session = cls(trainer, writer, mode, fork_steps=fork_steps)
        for note in trainer.task.notes:
            writer.event(0, "note", note)
        for key in hidden_keys(writer.about["config"]):
            writer.event(0, "note", f"{key} looks like a secret and is not stored: the run can't be resumed without it")
        session._save_checkpoint()
        session._record(0, trainer.validate())
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
        trainer = Trainer(config, checkpoints=path / "checkpoints", attempt=attempt)
        checkpoint = trainer.resume()
        if checkpoint is None:
            raise ValueError(f"{path / 'checkpoints'}: no checkpoint that can be verified; start the run anew")
        if trainer.finished:
            raise ValueError(f"{path}: {trainer.finished}; there is nothing to go on with")
        # A checkpoint newer than every attempt was saved just before its attempt could be declared: it goes on from
        # the newest one declared.
        parent = min(checkpoint.attempt, writer.attempt)
        history = reader.histories[parent].fork(checkpoint.step + 1, attempt)
        writer.begin_attempt(checkpoint.step + 1, "resume", parent=parent, history=history)
        writer.event(checkpoint.step + 1, "resume", f"resumed from step {checkpoint.step}")
        reader.refresh()
        return cls(trainer, writer, mode, reader, fork_steps=fork_steps)

    def run(self) -> Iterator[Tick]:
        """Train to the end, one tick a step. The run's state on disk is right however this ends."""
        state: RunState = "failed"
        self._status("running")
        monitor_s = 0.0
        try:
            with self._signals():
                while not self.trainer.finished and not self.stop_reason and not self.ended_by:
                    self._wait_while_paused()
                    if self.stop_reason:  # asked to end while it paused
                        break
                    result = self.trainer.train_step()
                    began = time.perf_counter()
                    metrics = {**result.metrics, "time/monitor_s": monitor_s}
                    tick = self._observe(result.step, metrics, result.samples)
                    monitor_s = time.perf_counter() - began
                    self._save_if_due(result.step)
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
            if state != "failed":
                self._save_checkpoint()
            self._close(state)

    def _note_failure(self, error: Exception) -> None:
        """What stopped training goes on record as an event, and as the finding that ends the run."""
        message = f"{type(error).__name__}: {error}"
        lines = "".join(traceback.format_exception(error))[-4000:]
        failure = {"failure": kind_of(message), "message": message, "traceback": lines}
        self.declare(self.trainer.step, "note", f"training failed: {error}", **failure)
        for finding in self.watch.end(self.history.view()):
            self.writer.finding(replace(finding, t=time.time()))

    # --- after a step -----------------------------------------------------------------------------------------------

    def _observe(self, step: int, metrics: dict[str, float], samples: list[Sample]) -> Tick:
        self._record(step, metrics)
        self.writer.samples(step, samples)
        for reason in self.trainer.task.failures.keys() - self._reasons:
            self._reasons.add(reason)
            self.writer.event(step, "note", f"a reward failed: {reason}")
        for reason in self.trainer.collector.outages.keys() - self._reasons:
            self._reasons.add(reason)
            self.writer.event(step, "note", f"the environment failed: {reason}")
        self._actions = []
        changed: list[Finding] = []
        try:
            view = self.history.view()
            changed = [replace(finding, t=time.time()) for finding in self.watch.tick(view)]
            for finding in changed:
                self.writer.finding(finding)
            self._take_requests()
            asked, self._asked = self._asked, []
            self.arbiter.tick(view, asked)
            self._return_if_asked()
        except Exception as error:  # the monitor never harms training; its own failure is on record
            self.writer.event(step, "note", f"monitor failed: {type(error).__name__}: {error}")
        self._status("running")
        if self.writer.summary_due:
            verdict, ever = self.watch.verdict(self.history.view())
            self.writer.summary(verdict=verdict, worst=ever)
        incidents = {f.incident for f in self.watch.active() if f.severity != "info"}
        return Tick(step, self.trainer.config.steps, metrics, changed, self._actions, len(incidents))

    def _record(self, step: int, metrics: dict[str, float]) -> None:
        self.writer.metrics(step, metrics)
        self.history.append(step, metrics)

    def _take_requests(self) -> None:
        """Pausing and turning by hand are the session's own business; the rest waits for the next step boundary."""
        for request in take(self.writer.path):
            if request.kind in ("set", "do"):
                self._turn_by_hand(request)
            elif request.kind in ("pause", "resume"):
                self._paused = request.kind == "pause"
                self.writer.event(self.trainer.step, "note", f"{request.kind} asked for by {request.by}")
            else:
                self._asked.append(request)

    def _turn_by_hand(self, request: Request) -> None:
        """Turn a knob as somebody asked; declared, so that detectors judge what follows by what follows."""
        controls, step = self.trainer.controls, self.trainer.step + 1
        try:
            if request.kind == "do" and request.action.startswith("restore"):
                self._wanted = (self._state_before(request.action), request.by)
                return
            if request.kind == "do":
                controls.obey(request.action)
                kind = "checkpoint" if request.action == "snapshot" else "intervention"  # a copy disturbs nothing
                self.declare(step, kind, f"{request.action}, asked for by {request.by}", by=request.by)
            else:
                name, value = parse_turn(request.action)
                before, after = controls.set(name, value)
                words = f"{name} {in_words(name, before)} → {in_words(name, after)}, set by {request.by}"
                kind = "intervention" if after != before else "note"
                self.declare(step, kind, words, by=request.by, change={name: [before, after]})
            self._save_checkpoint()  # so that the knobs of a run that is killed now are what its events say
        except (ValueError, OSError) as error:
            self.writer.event(
                self.trainer.step, "note", f"{request.kind} {request.action!r} refused: {error}", by=request.by
            )

    def _state_before(self, order: str) -> Checkpoint:
        """The state a person wants back; ValueError when there is none, or when it would cut into a trial."""
        if trial := self.arbiter.trial:
            raise ValueError(f"{trial.action} is on trial; revert it first (fix RUN revert {trial.action})")
        _, wanted = parse_order(order)
        states = [state for state in self.trainer.checkpoints() if state.step < self.trainer.step]
        found = [state for state in states if wanted in (None, state.step)]
        if not found:
            there = ", ".join(str(state.step) for state in states) or "none yet"
            raise ValueError(
                f"no checkpoint {'to return to' if wanted is None else f'of step {wanted}'}; there are: {there}"
            )
        return found[-1]

    def _return_if_asked(self) -> None:
        """Go back after everything else of the step is done: the view the others judged by is of the old branch."""
        if self._wanted is None:
            return
        (checkpoint, by), self._wanted = self._wanted, None
        try:
            self.roll_back(checkpoint, f"returned to step {checkpoint.step}, asked for by {by}", by=by)
        except OSError as error:
            self.writer.event(self.trainer.step, "note", f"restore of {checkpoint.path.name} failed: {error}", by=by)

    def _wait_while_paused(self) -> None:
        while self._paused and not self.stop_reason:
            self._status("paused")
            self._take_requests()
            self._return_if_asked()
            time.sleep(0.2)

    def _status(self, state: RunState) -> None:
        self.writer.status(state, self.trainer.step, remedy=self.arbiter.mode)

    def _save_if_due(self, step: int) -> None:
        if self.trainer.step == step and self.trainer.checkpoint_due:
            self._save_checkpoint()

    def _save_checkpoint(self) -> None:
        try:
            self.trainer.save_checkpoint()
        except OSError as error:
            self.writer.event(self.trainer.step, "note", f"checkpoint could not be saved: {error}")

    def _close(self, state: RunState) -> None:
        verdict, ever = self.watch.verdict(self.history.view())
        self._status(state)
        self.writer.summary(verdict=verdict, worst=ever, force=True)
        self.writer.close()

    # --- what the policy asks for (see `policy.Host`) ----------------------------------------------------------------

    def journal(self, action: Action) -> Action:
        """Write an entry of the journal."""
        record = self.writer.action(action)
        self._actions.append(record)
        return record

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event; detectors see it from that step on."""
        self.history.events.append(self.writer.event(step, kind, text, **data))

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return to a checkpoint: the trainer goes back, a new attempt begins, the old branch stays readable."""
        self.trainer.controls.restore(checkpoint, vary_data=vary_data)
        self.trainer.attempt = self.writer.attempt + 1
        self._save_checkpoint()  # before the attempt is declared: a crash in between must not resume the old branch
        history = self.history.fork(checkpoint.step + 1, self.trainer.attempt)
        self.writer.begin_attempt(checkpoint.step + 1, "rollback", history=history)
        self.history = history
        self.declare(checkpoint.step + 1, "rollback", text, **data)

    def pause(self, text: str) -> None:
        """Wait after this step until a person says `resume`."""
        self._paused = True
        self.declare(self.trainer.step, "note", f"paused: {text}")

    def stop(self, text: str) -> None:
        """End the run after this step; its state is saved as at any end."""
        self.ended_by = text

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Run copies of the run side by side; the run itself stands where it stood."""
        return paired(self.trainer, changes, steps)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _retrace(self, reader: RunReader) -> None:
        """Show the watch everything it saw before, so that it holds what it held when the run stopped."""
        newest = max(reader.histories)
        for attempt, step in reader.ticks:
            self.watch.tick(reader.histories[attempt].view(step))
        self.history = reader.histories[newest]

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the run after the present step, with a checkpoint; a second Ctrl-C ends it at once."""

        def stop(number: int, frame: Any) -> None:
            if self.stop_reason and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.stop_reason = signal.Signals(number).name

        try:
            before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # not the main thread: its owner handles signals
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _refuse_a_second_writer(reader: RunReader) -> None:
    """One run has one writer: a live one must be stopped before another goes on in its place."""
    status = reader.status
    if run_state(status, time.time()) not in ("running", "paused", "created") or not status.get("t"):
        return
    if writer_lives(status) is False or status.get("pid") == os.getpid():  # it was killed and could not say so
        return
    where = f"process {status.get('pid')} on {status.get('host')}"
    raise ValueError(f"{reader.path}: {where} still trains this run; stop it first (SIGTERM saves and ends it)")


def _versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version()}
