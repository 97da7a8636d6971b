"""The monitoring side of a live run: a row is written, the watch looks at it, then remedies act, in this order.

Whatever fails in here is put on record and never stops training.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stabilizer.analysis.watching import new_watch
from stabilizer.core.failures import kind_of
from stabilizer.core.records import Event, Finding, RunState
from stabilizer.core.text import spoken
from stabilizer.formats.console import Failures, Line
from stabilizer.live.bounded import BoundedThread
from stabilizer.live.machine import Machine
from stabilizer.runs.history import History, RunView
from stabilizer.runs.reader import RunReader
from stabilizer.runs.writer import RunWriter

if TYPE_CHECKING:
    from stabilizer.training.loop import StepResult, Trainer  # imports torch

STALLED = "system/stalled"
LOCKED_S = 1.0
"""Longest wait of the watchdog for a monitor that is at work, in seconds."""
SILENT_S = 2.0
"""Seconds without an answer from the disk that are news: on a crowded machine it takes up to 0.8 s."""
LONGEST_FAILURE = 500
"""Characters of a failure that are kept."""
MOST_FAILURES = 100
"""Different failures of the monitor that are put on record."""
RESTATED = 20
"""Steps after which an open finding is written again, with its present numbers."""


class Monitor:
    """Writes the rows of a run, shows them to the watch and keeps its findings on record."""

    def __init__(self, writer: RunWriter):
        self.writer = writer
        self._thread = BoundedThread()
        self.watch = new_watch(outcomes=self._thread.results)
        self.watching = True
        """Whether the watch saw the newest row. While it did not, remedies must not act on what it says."""
        self.machine = Machine(writer.path)
        self.history = History(writer.about, spills=True)
        self.seconds = 0.0
        """Time that measuring, logging and detectors took after the newest step."""
        self._written: dict[tuple[int, str], int] = {}
        """Step at which each finding, by incident and id, was last written."""
        self._reasons: set[str] = set()
        """Reasons of failed rewards and environments that are on record."""
        self._troubles: list[str] = []
        self._lock = threading.RLock()
        """Held while rows and events are judged: the watchdog reports from its own thread."""
        self._failures: set[str] = set()
        self._disk_since = 0.0
        """When the disk stopped answering, on the monotonic clock; 0 while it answers."""

    # --- rows -------------------------------------------------------------------------------------------------------

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Put a row on record, now and then with metrics of the machine."""
        if not self.writer.disk.behind:  # asking how much space is free may hang as well
            metrics = {**metrics, **self.machine.sample()}
        with self.guarded(step), self._lock:
            self.writer.metrics(step, metrics)
        with self.guarded(step), self._lock:
            self.history.append(step, metrics)

    def write_result(self, result: StepResult) -> dict[str, float]:
        """Put a step on record: all its metrics, or those training computed itself where measuring the rest failed."""
        if result.failure is not None:
            self.note_failure(result.step, result.failure)
        metrics = {**result.metrics, "time/monitor_s": self.seconds}  # the time is that of the step before
        self.write(result.step, metrics)
        return metrics

    def look(self, step: int, act: Callable[[RunView], None] = lambda view: None) -> list[Finding]:
        """Show a written row to the watch, then let `act` respond; returns the findings that changed."""
        changed: list[Finding] = []
        view = self.history.view(step)
        self.watching = False
        with self.guarded(step), self._lock:
            changed = [_timed(finding) for finding in (*self._disk_news(step), *self.watch.tick(view))]
            self.watching = True
            self._record(changed, step)
            self.restate(step, RESTATED)
        with self.guarded(step):
            act(view)
        return changed

    def _disk_news(self, step: int) -> list[Finding]:
        """Put on record that the disk stopped answering, or that it answers again."""
        disk = self.writer.disk
        if disk.silent_s >= SILENT_S and not self._disk_since:
            self._disk_since = time.monotonic() - disk.silent_s
            text = (
                f"the disk of {self.writer.path} does not answer: training goes on, records wait in memory, and nothing"
                " is saved, asked or remedied until it does"
            )
            self._troubles.append(text)
            stall = {
                "kind": "slow-disk",
                "what": "the disk does not answer",
                "text": text,
                "waiting": disk.waiting,
                "seconds": disk.silent_s,
            }
            self.declare(step, "note", text, stall=stall)
            return self.watch.ask(STALLED, self.history.view(step))
        if self._disk_since and not disk.behind:
            spent, self._disk_since = time.monotonic() - self._disk_since, 0.0
            lost = f"{disk.lost:,} records were dropped" if disk.lost else "no record was lost"
            self.trouble(step, f"the disk of {self.writer.path} answers again after {spoken(spent)}: {lost}")
        return []

    def open_incidents(self) -> int:
        """How many incidents have an open finding of at least a warning."""
        return len({finding.incident for finding in self.watch.active() if finding.severity != "info"})

    def restate(self, step: int, after: int) -> None:
        """Write open findings again that were last written at least `after` steps ago."""
        written = self._written
        old = [f for f in self.watch.active() if abs(step - written.get((f.incident, f.id), step)) >= after]
        self._record([_timed(finding) for finding in old], step, sync=False)

    def retrace(self, reader: RunReader) -> None:
        """Bring the watch to where it was when the run stopped, by showing it every row again.

        A run that was killed may have written its last row and not the findings of it: those are written now.
        """
        newest = max(reader.histories)
        recorded = {_identity(finding) for finding in reader.findings}
        last = len(reader.ticks) - 1
        for number, (attempt, step) in enumerate(reader.ticks):
            changed: list[Finding] = []
            with self.guarded(step):
                changed = self.watch.tick(reader.histories[attempt].view(step))
            if number == last:
                self._record([_timed(finding) for finding in changed if _identity(finding) not in recorded], step)
        self.history = reader.histories[newest]
        self._written = {(f.incident, f.id): f.last_step for f in reader.findings} | self._written

    def begin_attempt(self, from_step: int, reason: str, *, parent: int | None = None) -> None:
        """Continue in a new attempt, whose history is the present one before `from_step`."""
        history = self.history.fork(from_step, self.writer.attempt + 1)
        self.writer.begin_attempt(from_step, reason, parent=parent, history=history)
        self.history = history

    # --- events -----------------------------------------------------------------------------------------------------

    def declare(self, step: int, kind: str, text: str, **data: Any) -> Event:
        """Write an event that detectors see from that step on."""
        with self._lock:
            event = self.writer.event(step, kind, text, **data)
            self.history.events.append(event)
        return event

    def note_failure(self, step: int, error: Exception) -> None:
        """Put on record that monitoring itself failed: each failure once, however many rows it lasts."""
        text = f"monitor failed: {type(error).__name__}: {error}"[:LONGEST_FAILURE]
        if text not in self._failures and len(self._failures) < MOST_FAILURES:
            self._failures.add(text)
            with contextlib.suppress(Exception):  # the record itself may be what fails
                self.trouble(step, text)

    @contextlib.contextmanager
    def guarded(self, step: int) -> Iterator[None]:
        """Put a failure inside on record, and go on."""
        try:
            yield
        except Exception as error:
            self.note_failure(step, error)

    def trouble(self, step: int, text: str) -> None:
        """Put on record, and into the next tick, a failure that does not end training."""
        self.writer.event(step, "note", text)
        self._troubles.append(text)

    def take_troubles(self) -> list[str]:
        """The troubles since the last call."""
        troubles, self._troubles = self._troubles, []
        return troubles

    def note_failed_rewards(self, trainer: Trainer, step: int, metrics: Mapping[str, float]) -> None:
        """Report why rewards or the environment failed, each reason once, and held-out problems without a reward."""
        with self.guarded(step):
            self._note_failed_rewards(trainer, step, metrics)

    def _note_failed_rewards(self, trainer: Trainer, step: int, metrics: Mapping[str, float]) -> None:
        failures = trainer.task.failures, trainer.collector.outages, trainer.engine.failures
        for what, reasons in zip(("a reward", "the environment", "a generation server"), failures, strict=True):
            for reason in [reason for reason in tuple(reasons) if reason not in self._reasons]:  # a thread may add more
                self._reasons.add(reason)
                self.trouble(step, f"{what} failed: {reason}")
        if failed := trainer.ungraded:
            rest = "accuracy/val covers only the others"
            if "accuracy/val" not in metrics:
                rest = "too few are left to compute accuracy/val"
            self.trouble(step, f"{failed} held-out problems got no reward, so {rest}")

    def note_stall(self, text: str, evidence: Mapping[str, Any]) -> bool:
        """Put on record that a phase takes far too long, or that it went on. Called by the watchdog's thread.

        False while the monitor is at work, so that it can be tried again.
        """
        if not self._lock.acquire(timeout=LOCKED_S):
            return False
        try:
            step = max(self.history.step, 0)
            if evidence.get("over"):
                self.writer.event(step, "note", text, **evidence)
            else:
                self.declare(step, "note", text, stall=dict(evidence))
                self._record([_timed(found) for found in self.watch.ask(STALLED, self.history.view(step))], step)
        finally:
            self._lock.release()
        return True

    def note_crash(self, step: int, error: Exception) -> None:
        """Put on record what stopped training: as an event, and as the finding that ends the run."""
        message = f"{type(error).__name__}: {error}"
        lines = "".join(traceback.format_exception(error))
        failure = {"failure": kind_of(message), "message": message, "traceback": lines[-4000:]}
        with self.guarded(step):
            failure |= _known(lines)
        with self.guarded(step), self._lock:
            self.declare(step, "note", f"training failed: {error}", **failure)
            self._record([_timed(finding) for finding in self.watch.end(self.history.view())], step)

    # --- the run as a whole -----------------------------------------------------------------------------------------

    def summarise(self) -> None:
        """Refresh the summary that lists show, when it is due."""
        with self.guarded(self.history.step):
            if self.writer.summary_due:
                verdict, ever = self.watch.verdict(self.history.view())
                self.writer.summary(verdict=verdict, worst=ever)

    def close(self, state: RunState, step: int, mode: str) -> None:
        """Write the final verdict and status, and release the files: each of them even if another fails."""
        with self.guarded(step):
            self.restate(step, 1)
        with self.guarded(step):
            verdict, ever = self.watch.verdict(self.history.view())
            self.writer.summary(verdict=verdict, worst=ever, force=True)
        with self.guarded(step):
            self.writer.status(state, step, remedy=mode)
        with self.guarded(step):
            self.writer.close()
        self._thread.close()

    def _record(self, findings: Sequence[Finding], step: int, *, sync: bool = True) -> None:
        """Write findings down; `sync` waits until they are on the disk."""
        if findings:
            self.writer.finding(*findings, sync=sync)
        for finding in findings:
            self._written[finding.incident, finding.id] = step


def _known(lines: str) -> dict[str, Any]:
    """The known trouble that a traceback shows, and the innermost frame of the user's code, as for a log."""
    failures = Failures()
    found = [failures.see(Line(number, text, True)) for number, text in enumerate(lines.splitlines(), 1)]
    event = next(filter(None, (failures.close(), *reversed(found))), None)
    named = ("trouble", "values", "raised", "user_frame")
    return {key: event.data[key] for key in named if key in event.data} if event else {}


def _timed(finding: Finding) -> Finding:
    return replace(finding, t=time.time())


def _identity(finding: Finding) -> tuple[Any, ...]:
    """What makes two lines of `findings.jsonl` the same statement."""
    return finding.attempt, finding.incident, finding.id, finding.state, finding.severity, finding.last_step
