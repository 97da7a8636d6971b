"""Monitor any training loop: `run = init(...)`, then `run.log(metrics, step)` once a step.

    run = stabilizer.init("my-run", config={"lr": 1e-6})
    run.knob("lr", get=lambda: group["lr"], set=lambda value: group.update(lr=value))
    for step in range(1, 1001):
        ...
        if run.log({"reward": 0.4, "kl": 0.01, "grad_norm": 0.5}, step).stop:
            break
    run.finish()

A row is queued and returns at once; a thread writes it and asks the detectors. Rows of the last milliseconds are lost
if the process is killed. Knobs are changed inside `log`, in the caller's thread. Nothing raises into the loop: failures
are written into the run.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Self

from stabilizer.control.engine import MODES, Mode, RemedyEngine
from stabilizer.core.knobs import KNOBS, Checkpoint
from stabilizer.core.metrics import VOCABULARY
from stabilizer.core.records import Finding, RunState, Sample
from stabilizer.formats.rows import definition, number
from stabilizer.guests.boundary import Boundary
from stabilizer.guests.clock import LoopClock
from stabilizer.guests.earlier import changed, record
from stabilizer.guests.host import GuestHost, Pay
from stabilizer.guests.knobs import LoopControls, LoopKnob, Rates, our_name, scale_of
from stabilizer.guests.states import Keeper, LoopStates
from stabilizer.live.announced import RestartPlan, restarts_left, write_plan
from stabilizer.live.mirror import end, mirrors
from stabilizer.live.monitor import Monitor
from stabilizer.live.rank_watch import announce
from stabilizer.live.requests import Requests
from stabilizer.live.watchdog import watched
from stabilizer.output.sinks import chosen
from stabilizer.trainers.naming import Naming
from stabilizer.trainers.other.guesses import guessed

WATCHING = ("off", "suggest")
"""What remedies may do in a loop whose states nobody can restore: automatic fixes need a way back."""
ACTING = ("approve", "auto-safe", "auto-full")
RESTED = 5
"""Steps without a change after which another change of a knob is a new one: a schedule moves at every step."""
PATIENCE_S = 2.0
"""Longest wait of a step for its judgement, where fixes may be applied: a decision then holds from the next step on.
After that the training goes on and does not wait again before the judgement is there."""
WAITING = 10_000
"""Rows that may wait for the thread. Further ones are dropped and counted: a disk that hangs costs no memory."""
IDLE_S = 1.0
"""Seconds between heartbeats and looks for requests while no row arrives."""
LONGEST_SETTING = 500
"""Characters of a setting that is kept as text."""
NUMBER = re.compile(r"\d[\d,.]*")
"""A trouble whose numbers alone changed is not said again."""
CLOSING_S = 30.0
"""Longest wait at the end for rows that are still queued."""


class Decision(NamedTuple):
    """What the loop should know after a row; from the rows that the thread has judged so far."""

    stop: bool = False
    """Somebody asked the run to stop."""
    paused: bool = False
    """Somebody asked the run to wait: `run.wait()` returns when it may go on."""
    changes: Mapping[str, tuple[float, float]] = {}  # noqa: RUF012 (never changed)
    """Knobs that were changed in this call: name -> (before, after)."""
    incidents: int = 0
    """Open incidents of at least a warning."""
    findings: Sequence[Finding] = ()
    """Open findings, the gravest incident first."""


class _Row(NamedTuple):
    step: int
    metrics: Mapping[str, float]
    samples: Sequence[Sample]
    knobs: Mapping[str, float]
    """The knobs with which the step was made."""
    branch: int
    """Counts returns to a checkpoint: rows from before one are dropped."""
    judged: threading.Event


class GuestRun:
    """A run directory that a foreign loop writes, with detectors, proposals and requests."""

    def __init__(
        self, name: str = "run", *, runs: str | Path = "runs", config: Mapping[str, Any] | None = None,
        remedy: str = "suggest", steps: int | None = None, trainer: str = "own loop",
        names: Mapping[str, str] | None = None, versions: Mapping[str, str] | None = None,
        naming: Naming | None = None, sinks: Iterable[str] | None = None, world: int = 1,
        keeper: Keeper | None = None, pay: Pay | None = None, checkpoint_every: int | None = None,
    ):  # fmt: skip
        mode = check_mode(remedy, can_return=keeper is not None)
        for asked in sinks or ():
            chosen(asked)  # ValueError or ImportError before a run is made
        try:
            Path(runs).mkdir(parents=True, exist_ok=True)
            writer, earlier = record(
                Path(runs), name, config=_plain(dict(config or {})), task=name, trainer=trainer, steps=steps,
                versions=versions, clock=naming.clock if naming else "optimizer_step", metrics={},
            )  # fmt: skip
        except OSError as error:
            raise ValueError(f"runs = {str(runs)!r}: no folder can be made there ({error}); name another") from None
        entries = earlier.actions if earlier else ()
        self.path = writer.path
        self._noted = {event.text for event in earlier.events} if earlier else set()
        """Notes of earlier attempts, which are not repeated."""
        self._monitor = Monitor(writer)
        self._config_before: Mapping[str, Any] | None = None
        """The settings of the attempt that this one goes on with; None when there is none, and after the first row."""
        if earlier is not None:
            self._config_before = earlier.about.get("config", {})
            self._monitor.retrace(earlier)
            self._monitor.history.about = writer.about
        self._clock = LoopClock(earlier.events if earlier else ())
        self._boundary = Boundary(self._status)
        self._states: LoopStates | None = None
        if keeper is not None:
            folder = self.path / "checkpoints"
            self._states = LoopStates(folder, keeper, self._boundary, every=checkpoint_every, restored=self._restored)
            self._states.attempt = writer.attempt + (1 if earlier else 0)
        self._controls = LoopControls(self.path, self._states)
        self._host = GuestHost(
            self._monitor, self._controls, self._boundary, self._clock, self._states, pay, entries
        )  # fmt: skip
        self._host.last_step = max(self._monitor.history.step, 0)
        self._requests = Requests(self._host, self.path, self._controls)
        self._engine = RemedyEngine(mode, self._controls, self._monitor.watch, self._host, entries)
        self._acts = mode in ACTING
        self._given = dict(names or {})
        self._naming = naming
        named = writer.about["metrics"] if earlier else {}
        self._names: dict[str, str] = {
            theirs: ours for ours, metric in named.items() if (theirs := metric.get("source", ours)) != ours
        }
        self._knobs: dict[str, LoopKnob] = {}
        self._planned: dict[str, float] = {}
        """Arguments that a restart is to change."""
        self._rows: queue.Queue[_Row | Callable[[], object] | None] = queue.Queue(WAITING)
        """Rows, other writes, and None at the end: the thread alone writes while it lives."""
        self._dropped = 0
        self._branch = 0
        self._newest: _Row | None = None
        self._findings: tuple[Finding, ...] = ()
        self._troubled: set[str] = set()
        self._closed = False
        writer.status("running", self._host.step, remedy=self._engine.mode)
        self._thread = threading.Thread(target=self._work, name="stabilizer", daemon=True)
        self._thread.start()
        self.heart, self._watchdog = watched(self.path, self._monitor, complain=self.complain, world=world)
        if world > 1:
            announce(self.path)
        self._mirrors = mirrors(self.path, sinks, self._report)
        atexit.register(self._at_exit)

    # --- the loop's side --------------------------------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any], step: int | None = None, *, samples: Sequence[Sample] = ()) -> Decision:
        """Log a row and apply what was asked of the run; numbers that are no numbers are left out."""
        caught_up = self._newest is None or self._newest.judged.is_set()
        try:
            self._clock.loop = _counted(self._clock.loop, step)
            self.heart.beat(self._step)
            self._follow()
            numbers = dict(_numbers(metrics))
            if not self._closed:
                knobs = self._controls.values()
                row = _Row(self._step, numbers, samples, knobs, self._branch, threading.Event())
                self._rows.put_nowait(row)
                self._newest = row
        except queue.Full:
            self._dropped += 1
        except Exception as error:  # a row of odd things
            self.complain("log", error)
        self._between_steps(wait=self._acts and caught_up)
        changes = self._apply()
        return Decision(
            stop=bool(self._host.ended_by), paused=self._host.paused, changes=changes,
            incidents=len({f.incident for f in self._findings if f.severity != "info"}), findings=self._findings,
        )  # fmt: skip

    def phase(self, name: str, pending: str = "") -> AbstractContextManager[None]:
        """A phase of the loop, as a context: data, rollout, reward, sync, update, validation, save or other.

        A phase that takes far longer than it has before is reported as a hang, with the line where it waits. `pending`
        says what is in progress, such as the name of a reward function. A loop without phases is watched from row to
        row.
        """
        return self.heart.phase(name, pending)

    def begin(self, step: int = 0) -> None:
        """The training begins after a step: save the state that it starts from, where fixes may be applied."""
        self._clock.begin(step)
        if self._states is not None:
            self._states.go_on(self._step)
        self._between_steps(wait=False)

    def watch_only(self, why: str) -> None:
        """Offer no knobs and apply nothing from now on."""
        self._knobs.clear()
        self._controls.clear()
        self._engine.context.mode = "suggest" if self._acts else self._engine.mode
        self._acts = False
        self.event(f"watching only: {why}")

    @property
    def knobs(self) -> Mapping[str, LoopKnob]:
        """The knobs of the running loop, for an adapter that shares them with other processes."""
        return {name: knob for name, knob in self._knobs.items() if not knob.argument}

    @property
    def skipping(self) -> bool:
        """Whether the next update is to be discarded."""
        return self._controls.skipping

    def take_skip(self) -> bool:
        """Whether the update that is about to be made is to be discarded; the answer clears the request."""
        return self._controls.take_skip()

    @property
    def _step(self) -> int:
        """The run's step after which the loop is."""
        return self._clock.step

    def _between_steps(self, *, wait: bool) -> None:
        """Save a checkpoint that is due, and do what the run's thread asks for until it has judged the newest row."""
        states, newest = self._states, self._newest
        if self._closed:
            return
        try:
            if states is not None:
                states.step = self._step
                if self._acts:
                    with self.heart.phase("save"):
                        states.save_if_due()
        except Exception as error:
            self.complain("checkpoint", error)
        try:
            if wait and newest is not None:
                self._boundary.serve_until(newest.judged.is_set, PATIENCE_S)
            else:
                self._boundary.serve()
        except Exception as error:
            self.complain("boundary", error)

    def _restored(self, checkpoint: Checkpoint) -> None:
        """The loop has the state of a checkpoint: its steps count from there, and rows that wait are of another
        branch."""
        self._clock.went_back_to(checkpoint.step)
        self._branch += 1

    def _follow(self) -> None:
        """Take over what others changed in the loop: it shows in the rows, and is judged, like any setting."""
        for name, knob in self._knobs.items():
            if knob.follows and self._controls.get(name) == knob.applied:
                with contextlib.suppress(Exception):  # the loop's own object is in the middle of something
                    if (now := knob.moved()) is not None:
                        if self._states is not None and self._step - knob.moved_at > RESTED:
                            self._states.setting_changed()
                        knob.applied, knob.moved_at = now, self._step
                        self._controls.adopt(name, now)

    def knob(
        self, name: str, get: Callable[[], float], set: Callable[[float], None], low: float | None = None,
        high: float | None = None, check: Callable[[float], None] = lambda value: None, *, follow: bool = False,
    ) -> None:  # fmt: skip
        """Make a knob changeable by `stabilizer fix RUN set name=value` and by proposals.

        `lr` is changed by a factor between 1/64 and 4 of its value now. `low` and `high` narrow the bounds; `check` may
        refuse a value with a ValueError. With `follow`, a `get` that differs from what was set means that somebody else
        changed the loop, and the run takes that over; not for a rate that a schedule changes.
        """
        try:
            ours, value = our_name(name), float(get())
            base = scale_of(ours, value)
            if not base:
                raise ValueError(f"{name} is 0 now, as during warm-up: hand over a getter of the peak rate")
            start = value / base
            bounds = (KNOBS[ours].low * base if low is None else low, KNOBS[ours].high * base if high is None else high)
            if not bounds[0] <= value <= bounds[1]:
                raise ValueError(f"{name} = {value:g}: outside {bounds[0]:g} to {bounds[1]:g}")

            def within(asked: float) -> None:
                if not bounds[0] <= asked <= bounds[1]:
                    raise ValueError(f"{name} = {asked:g}: outside {bounds[0]:g} to {bounds[1]:g}")
                set(asked)

            self._controls.add(ours, start, lambda asked: check(asked * base))
            self._knobs[ours] = LoopKnob(ours, get, within, base, start, follow)
        except Exception as error:
            self.complain(f"knob {name}", error)

    def restart_knob(
        self, name: str, get: Callable[[], float], argument: str, saved: Callable[[], str],
        check: Callable[[float], None] = lambda value: None,
    ) -> None:  # fmt: skip
        """Make an argument of the trainer changeable by a restart, which `stabilizer supervise` carries out.

        A change ends the run; the trainer saves its state, in the place that `saved` names, and the next attempt has
        `argument` in its command and in `stabilizer.changed_arguments()`. Without restarts left there is no such knob.
        """
        try:
            ours = our_name(name)
        except ValueError as error:
            self.complain(f"knob {name}", error)
            return
        self._controls.arguments[ours] = argument
        if not restarts_left():
            return

        def plan(value: float) -> None:
            self._planned[argument] = int(value) if KNOBS[ours].whole else value
            planned = RestartPlan(self._step, self._planned, saved())
            write_plan(self.path, planned)
            self._host.stop(f"a restart with {planned.words}")
            self.event(f"restart planned: {planned.words}, from {planned.checkpoint}")

        self.knob(name, get, plan, check=check)
        if knob := self._knobs.get(ours):
            knob.argument = argument
            self._controls.restarts |= {ours}

    def rates(self, optimizer: Any, schedule: Any = None) -> None:
        """Make the learning rates of a torch optimizer changeable, together with its schedule."""
        try:
            rates = Rates([optimizer], [schedule])
            self.knob("lr", rates.get, rates.set)
        except Exception as error:
            self.complain("rates", error)

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return self._closed

    def wait(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Return when nobody wants the run to pause any more; `meanwhile` is called every moment until then."""
        with self.heart.phase("paused"):
            while self._host.paused and not self._closed:
                self._boundary.serve()
                meanwhile()
                time.sleep(IDLE_S / 5)

    def event(self, text: str, kind: str = "note") -> None:
        """Declare an event, such as another stage of the data (`data-stage`) or a changed schedule (`schedule`)."""
        step = self._step
        if kind == "note" and text in self._noted:
            return
        self._write(lambda: self._monitor.declare(step, kind, text))

    def finish(self, state: RunState = "finished") -> None:
        """Write what is queued, judge the end and close the run. Called at exit if the loop does not."""
        if self._closed:
            return
        self._closed = True
        self._boundary.close()
        self._watchdog.close()
        if state == "finished" and self._host.ended_by:
            state = "stopped"
        try:
            self._rows.put(None, timeout=CLOSING_S)
            self._thread.join(CLOSING_S)
            if self._dropped:
                self._host.note(f"{self._dropped:,} rows were not kept: nothing could be written for a while")
            self._monitor.close(state, self._step, self._engine.mode)
            if refused := self._refused():
                self._print(f"stabilizer: records of the run are missing: {'; '.join(refused)}")
            end(self._mirrors)
        except Exception as error:
            self.complain("finish", error)

    def crashed(self, error: BaseException) -> None:
        """Put an exception of the loop on record and close the run as failed."""
        if not self._closed and isinstance(error, Exception):
            step, failed = self._step, error
            self._write(lambda: self._monitor.note_crash(step, failed))
        self.finish("failed" if isinstance(error, Exception) else "stopped")

    def _at_exit(self) -> None:
        """Close a run that nobody closed. An exception that ends the program is on record as that of the loop."""
        error = getattr(sys, "last_value", None)
        if error is None or hasattr(sys, "ps1"):  # at a prompt it is any earlier one
            self.finish()
        else:
            self.crashed(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.finish()
        else:
            self.crashed(error)

    def _apply(self) -> dict[str, tuple[float, float]]:
        """Give the loop the knobs that were changed since the last call, in its own thread."""
        changed: dict[str, tuple[float, float]] = {}
        for name, knob in self._knobs.items():
            wanted, before = self._controls.get(name), knob.applied
            if wanted == before:
                continue
            try:
                knob.apply(wanted)
                changed[name] = (before, wanted)
            except Exception as error:
                self._controls.set(name, before)
                self.complain(f"knob {name}", error)
        return changed

    # --- the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            try:
                row = self._rows.get(timeout=IDLE_S)
            except queue.Empty:
                self._idle()
                continue
            if row is None:
                return
            try:
                if isinstance(row, _Row):
                    self._take(row)
                else:
                    row()
            except Exception as error:
                self.complain("monitor", error)
            if isinstance(row, _Row):
                row.judged.set()
            self._tell_troubles()

    def _tell_troubles(self) -> None:
        """Say on stderr, once each, what became of the records: a disk that refuses them, a folder that was moved."""
        writer = self._monitor.writer
        refused = [f"{text}; rows wait in memory until it can be written" for text in self._refused()]
        for text in (*self._monitor.take_troubles(), *filter(None, [writer.displaced]), *refused):
            if (kind := NUMBER.sub("#", text)) not in self._troubled:
                self._troubled.add(kind)
                self._print(f"stabilizer: {text}")

    def _take(self, row: _Row) -> None:
        if row.branch != self._branch:
            return
        if self._config_before is not None:
            self._go_on(row.step, self._config_before)
        self._host.last_step = row.step
        metrics = {self._ours(name, row): value for name, value in row.metrics.items()}
        self._monitor.write(row.step, metrics | dict(row.knobs))
        if row.samples:
            self._monitor.writer.samples(row.step, row.samples)
        self._monitor.look(row.step, self._act)
        self._findings = tuple(self._monitor.watch.active())
        self._status()
        self._monitor.summarise()

    def _go_on(self, step: int, config_before: Mapping[str, Any]) -> None:
        """The first row of another attempt: the run goes on from there, with the knobs that its journal has."""
        self._config_before = None
        self._monitor.begin_attempt(step, "resume")
        words = changed(config_before, self._monitor.writer.about["config"])
        more = f"; changed: {words}" if words else ""
        self._host.declare(
            step, "resume", f"another attempt goes on with step {step}{more}", returns=self._clock.returns
        )
        self._host.last_step = step - 1
        begun_with = {name: self._controls.base(name) for name, knob in self._knobs.items() if knob.follows}
        self._requests.recover(begun_with)

    def _idle(self) -> None:
        try:
            self._requests.look()
            self._requests.return_if_asked()
            self._status()
        except Exception as error:
            self.complain("requests", error)

    def _status(self) -> None:
        """The heartbeat of the run; the writer limits it to one a second."""
        self._monitor.writer.status("paused" if self._host.paused else "running", self._host.step)

    def _act(self, view: Any) -> None:
        trial = self._engine.trial
        self._requests.look(on_trial=trial.action if trial else "")
        if self._monitor.watching:  # remedies must not decide about weights by what a failed watch says
            self._engine.tick(view, self._requests.answers())
        self._requests.settle(approvals_wait=self._engine.mode == "approve")
        self._requests.return_if_asked()

    def _ours(self, name: str, row: _Row) -> str:
        """Our name of a metric; a guess is made once, when the name first appears, and written into the run."""
        if name not in self._names and self._naming is not None:
            self._name(self._naming, row)
        elif name not in self._names:
            new = [key for key in row.metrics if key not in self._names]
            taken = {ours: theirs for theirs, ours in self._names.items() if ours in VOCABULARY}
            given = {ours: theirs for theirs, ours in self._given.items() if theirs in new}
            found, notes = guessed([(row.step, dict(row.metrics))], new, {**taken, **given})
            self._names.update({key: self._given.get(key, found[key]) for key in new})
            known = self._monitor.writer.about.setdefault("metrics", {})
            known.update({self._names[key]: definition(self._names[key], key) for key in new})
            for note in notes:
                self._host.note(
                    note.replace("correct it with --map OURS=THEIRS", "correct it with names={theirs: ours}")
                )
        return self._names[name]

    def _name(self, naming: Naming, row: _Row) -> None:
        """Name new metrics as the trainer's logs are read; a name that is taken stays with what has it."""
        found, taken = naming.ours(row.metrics, {}), set(self._names.values())
        known = self._monitor.writer.about.setdefault("metrics", {})
        for key in set(found) - set(self._names):
            ours = f"{naming.prefix}/{key}" if found[key] in taken else found[key]
            self._names[key] = ours
            known[ours] = naming.definition(ours, key)

    def complain(self, what: str, error: Exception) -> None:
        """Say a failure of ours once, on stderr and in the run."""
        self._report(f"stabilizer: {what}: {type(error).__name__}: {error}")

    def _refused(self) -> list[str]:
        """What the disk does not take."""
        writer = self._monitor.writer
        return [text for text in writer.problems() if text != writer.displaced]

    def _report(self, text: str) -> None:
        if text in self._troubled:
            return
        self._troubled.add(text)
        self._print(text)
        self._write(lambda: self._host.note(text))

    @staticmethod
    def _print(text: str) -> None:
        with contextlib.suppress(Exception):  # stderr may be closed
            print(text, file=sys.stderr, flush=True)

    def _write(self, write: Callable[[], object]) -> None:
        """Write something else than a row: in the thread, or here when it is over."""
        with contextlib.suppress(Exception):  # the note is about a failure already
            if self._thread.is_alive() and threading.current_thread() is not self._thread:
                self._rows.put_nowait(write)
            else:
                write()


def check_mode(remedy: str, *, can_return: bool) -> Mode:
    """The mode of remedies; ValueError for one that there is not."""
    for mode in MODES:
        if mode == remedy and (can_return or mode in WATCHING):
            return mode
    if remedy in MODES:
        raise ValueError(
            f"remedy = {remedy!r}: inside another loop it is one of {', '.join(WATCHING)}; automatic fixes need a way"
            " back: a TRL trainer (attach) or stabilizer's own (stabilizer train --remedy auto-safe) has one"
        )
    raise ValueError(f"remedy = {remedy!r}: it is one of {', '.join(MODES if can_return else WATCHING)}")


def _counted(before: int, step: Any) -> int:
    """The step of a row: the given one, or the next where it is no number."""
    try:
        return before + 1 if step is None else int(step)
    except (TypeError, ValueError, OverflowError):
        return before + 1


def _numbers(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Names and values of what is a number; whatever else is logged costs only itself."""
    for key, value in metrics.items():
        try:
            found = _number(value)
            if found is not None:
                yield str(key), found
        except Exception:  # noqa: S112 (a value of somebody's own class)
            continue


def _number(value: Any) -> float | None:
    """A value as a number: also of a tensor or an array of one element. None for anything else."""
    if not isinstance(value, (bool, int, float)):
        value = value.item()
    return number(value) if isinstance(value, (bool, int, float)) else None


def _plain(value: Any) -> Any:
    """Settings as JSON holds them: what is no plain value becomes text."""
    if isinstance(value, (str, bool, int, float, type(None))):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return str(value)[:LONGEST_SETTING]


def init(name: str = "run", **options: Any) -> GuestRun:
    """Begin to monitor a loop; see `GuestRun` for the options."""
    run = GuestRun(name, **options)
    with contextlib.suppress(Exception):  # stderr may be closed
        print(f"stabilizer: recorded in {run.path}; stabilizer dashboard {run.path.parent}", file=sys.stderr)
    return run
