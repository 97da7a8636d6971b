"""One training run with everything around it: records, watch, remedies, checkpoints, signals.

The trainer knows none of this: it makes a step and hands out numbers. After every step the session lets the monitor
write and judge them, lets remedies and users act through the trainer's controls, and saves a checkpoint when one is
due.
"""

from __future__ import annotations

import contextlib
import platform
import signal
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import torch
import transformers

from stabilizer.control.engine import Mode, RemedyEngine
from stabilizer.core.records import Finding, RunState
from stabilizer.live.host import RunHost
from stabilizer.live.monitor import Monitor
from stabilizer.live.rank_watch import announce, stepping
from stabilizer.live.requests import Requests
from stabilizer.live.resuming import RunComplete, how_to_train_on, refuse_a_second_writer, resumed_trainer
from stabilizer.live.tick import Tick
from stabilizer.live.watchdog import watched
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.runs.secrets import hidden_keys
from stabilizer.runs.syncer import CLOSE_S
from stabilizer.runs.writer import RunWriter
from stabilizer.training.config import config_dict
from stabilizer.training.inputs import anchored, changes, digests
from stabilizer.training.knobs import starting_knobs
from stabilizer.training.loop import StepResult, Trainer
from stabilizer.training.ranks import ALONE, Ranks
from stabilizer.training.settings import TrainConfig

PAUSE_POLL_S = 0.2
"""Seconds between looks for requests while the run is paused."""


class Session:
    """A run directory, its trainer, and the monitor of both. Make one with `start` or `resume`, then iterate `run`."""

    def __init__(
        self, trainer: Trainer, writer: RunWriter, mode: Mode, reader: RunReader | None = None, *, fork_steps: int = 0
    ):
        self.trainer = trainer
        self.writer = writer
        self.monitor = Monitor(writer)
        if reader is not None:
            self.monitor.retrace(reader)
        earlier = reader.actions if reader else []
        self.host = RunHost(trainer, self.monitor, earlier)
        self.requests = Requests(self.host, writer.path, trainer.controls)
        self.arbiter = RemedyEngine(
            mode, trainer.controls, self.monitor.watch, self.host, earlier, fork_steps=fork_steps
        )
        if reader is not None:
            self.requests.recover(starting_knobs(trainer.config))
        self.stop_reason: str | None = None
        """The signal that asked the run to end."""
        self.on_signal: Callable[[str], None] = lambda signal: None
        """Called within the signal handler, as soon as the run is asked to end."""
        self._found_at_start: list[Finding] = []
        self._unrecorded: StepResult | None = None
        """A step that was made and whose row is not written yet."""
        self._ending = False
        self.heart, self.watchdog = watched(writer.path, self.monitor, world=trainer.ranks.size)
        if trainer.ranks.size > 1:
            announce(writer.path)
        self.host.heart = self.heart
        self.heart.step = trainer.step
        trainer.watched_by(stepping(self.heart, trainer))

    @classmethod
    def start(
        cls, config: TrainConfig, path: Path, mode: Mode = "suggest", *, fork_steps: int = 0, ranks: Ranks = ALONE
    ) -> Session:
        """Begin a new run in `path`. With `fork_steps` a fix is first tried on a copy for so many steps."""
        inputs = digests(config)  # before they are read, so that an edit in between is noticed
        path = path.absolute()  # the process may change its working directory
        trainer = Trainer(config, checkpoints=path / "checkpoints", ranks=ranks)
        writer = RunWriter.create(
            path,
            config=config_dict(anchored(config)),
            task=config.task,
            steps=config.steps,
            versions=_versions(),
            inputs=inputs,
        )
        session = cls(trainer, writer, mode, fork_steps=fork_steps)
        with session.monitor.guarded(0):
            for note in trainer.notes:
                writer.event(0, "note", note)
            for key in hidden_keys(writer.about["config"]):
                words = f"{key} looks like a secret and is not stored: add its value to run.json to resume"
                writer.event(0, "note", words)
        with session.heart.phase("validation"):
            metrics = trainer.validate()
        trainer.note_validation(metrics)
        session.monitor.note_failed_rewards(trainer, 0, metrics)
        session.monitor.write(0, metrics)  # before the first checkpoint: a resumed run does not validate again
        session.host.save_checkpoint(patience_s=CLOSE_S)  # there is no training yet that a slow disk would delay
        if session.host.unsaved:
            session._close("failed")
            raise RunError(
                f"{path / 'checkpoints'}: the first checkpoint could not be saved ({session.host.unsaved}), and without"
                " one the run can't be resumed, rolled back or exported: free disk space, or choose another folder"
            )
        session._found_at_start = session.monitor.look(0)
        return session

    @classmethod
    def resume(cls, path: Path, mode: Mode = "suggest", *, fork_steps: int = 0, ranks: Ranks = ALONE) -> Session:
        """Go on with a run that was stopped, preempted or killed, from its newest verified checkpoint."""
        reader = RunReader(path, spills=True)
        refuse_a_second_writer(reader)
        writer = RunWriter.reopen(path)
        try:
            trainer = resumed_trainer(reader, writer, ranks)
            session = cls(trainer, writer, mode, reader, fork_steps=fork_steps)
            if trainer.finished:  # it was killed after its last step: close what was under way, and the run
                session._close("finished")
                raise RunComplete(
                    f"{path}: {trainer.finished}; the run is complete, and its records are closed now;"
                    f" {how_to_train_on(path)}"
                )
        except BaseException:
            writer.close()
            raise
        for damaged in trainer.passed_over:
            session.monitor.trouble(
                trainer.step + 1, f"a newer checkpoint was passed over: {damaged}; resumed from step {trainer.step}"
            )
        inputs = reader.about.get("inputs")
        for change in changes(inputs) if isinstance(inputs, dict) else ():
            session.monitor.trouble(trainer.step + 1, change)
        return session

    def run(self) -> Generator[Tick, None, None]:
        """Train to the end, one tick a step. The run's state on disk is right however this ends."""
        self._status("running")
        with _handling_signals(self._stop):
            state: RunState = "failed"
            try:
                while not self.trainer.finished and not self.stop_reason and not self.host.ended_by:
                    self._wait_while_paused()
                    if self.stop_reason:  # asked to end while it paused
                        break
                    yield self._step()
                state = self._end_state()
            except (GeneratorExit, KeyboardInterrupt):  # the caller ends the run
                state = "stopped"
                raise
            except Exception as error:
                self._record_step()
                self.monitor.note_crash(self.trainer.step, error)
                raise
            finally:
                self._end(state)

    def _step(self) -> Tick:
        """Make one step and everything that follows it."""
        self._unrecorded = result = self.trainer.train_step()
        self.heart.beat(result.step)
        began, step, journaled = time.perf_counter(), result.step, len(self.host.entries)
        metrics = self._record_step()
        with self.monitor.guarded(step):
            self.writer.samples(step, result.samples)
        self.monitor.note_failed_rewards(self.trainer, step, metrics)
        changed = self._found_at_start + self.monitor.look(step, self._act)
        self._found_at_start = []
        self._status("running")
        self.monitor.summarise()
        self.monitor.seconds = time.perf_counter() - began
        if self.trainer.step == step and self.trainer.checkpoint_due and not self._snapshot_made(step):
            self.host.save_checkpoint()
        return Tick(
            step=step,
            steps=self.trainer.config.steps,
            metrics=metrics,
            findings=changed,
            actions=self.host.entries[journaled:],
            open_incidents=self.monitor.open_incidents(),
            troubles=self.monitor.take_troubles(),
        )

    def _snapshot_made(self, step: int) -> bool:
        """Whether the state of this step is on disk as the running fix found it: it must stay so to be returned to."""
        trial = self.arbiter.trial
        return trial is not None and trial.snapshot is not None and trial.snapshot.step == step

    def _record_step(self) -> dict[str, float]:
        """Write the row of the newest step, unless it is written; an interrupt in the middle leaves it for the end."""
        if self._unrecorded is None:
            return {}
        metrics = self.monitor.write_result(self._unrecorded)
        self._unrecorded = None
        return metrics

    def _act(self, view: RunView) -> None:
        """Let requests and remedies act at a step's end, requests to return to a checkpoint last.

        Nothing acts while the disk does not answer: what changes weights must be in the journal first.
        """
        if self.writer.disk.behind:
            return
        self._take_requests()
        if self.monitor.watching:  # remedies must not decide about weights by what a failed watch says
            self.arbiter.tick(view, self.requests.answers())
        self.requests.settle(approvals_wait=self.arbiter.mode == "approve")
        self.requests.return_if_asked()

    def _take_requests(self) -> None:
        """Take in requests; when that fails, remedies act all the same."""
        trial = self.arbiter.trial
        try:
            self.requests.look(on_trial=trial.action if trial else "")
        except Exception as error:
            self.monitor.note_failure(self.trainer.step, error)

    def _wait_while_paused(self) -> None:
        if not self.host.paused:
            return
        with self.heart.phase("paused"):
            self._pause()

    def _pause(self) -> None:
        while self.host.paused and not self.stop_reason:
            self._status("paused")
            self._take_requests()
            try:
                self.requests.return_if_asked()
            except Exception as error:  # a request never ends the run
                self.monitor.note_failure(self.trainer.step, error)
            time.sleep(PAUSE_POLL_S)

    def _stop(self, number: int) -> None:
        """The signal handler: end after the present step; a second Ctrl-C ends at once."""
        if self.stop_reason and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self._ending:
            self.stop_reason = signal.Signals(number).name
            self.on_signal(self.stop_reason)

    def _end_state(self) -> RunState:
        """How the run ended, with the reason on record when it ended before its last step."""
        if self.stop_reason == "SIGTERM":
            return "preempted"
        if self.stop_reason == "SIGINT":
            return "stopped"
        if self.trainer.step < self.trainer.config.steps and not self.stop_reason:
            why = self.trainer.finished or self.host.ended_by
            self.writer.event(self.trainer.step, "note", f"ended early: {why}")
        return "stopped" if self.host.ended_by else "finished"

    def _end(self, state: RunState) -> None:
        """Save what there is and close the records; a further request to end changes nothing."""
        self._ending = True
        try:
            self._record_step()
            if state != "failed" and self.trainer.whole:  # after a broken step the saved checkpoints are right
                self.host.save_checkpoint()
        finally:
            self._close(state)

    def _close(self, state: RunState) -> None:
        self.watchdog.close(over=True)
        self.monitor.close(state, self.trainer.step, self.arbiter.mode)

    def _status(self, state: RunState) -> None:
        with self.monitor.guarded(self.trainer.step):
            self.writer.status(state, self.trainer.step, remedy=self.arbiter.mode)
            if displaced := self.writer.take_displaced():
                self.monitor.trouble(self.trainer.step, displaced)


@contextlib.contextmanager
def _handling_signals(stop: Callable[[int], None]) -> Iterator[None]:
    """Call `stop` with the number of a SIGTERM or SIGINT that arrives meanwhile."""
    try:
        before = {
            number: signal.signal(number, lambda number, frame: stop(number))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
    except ValueError:  # not the main thread: its owner handles signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version()}
