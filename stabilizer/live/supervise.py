"""Run a training command and restart it after a crash, a located hang or a restart plan, within a budget.

The processes of the command say which run directory they write, through a file named by `STABILIZER_SUPERVISED`. A run
is known then, so the step of a failure and the heartbeats are known too. Without one, only crashes are restarted.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stabilizer.core.failures import kind_of
from stabilizer.core.text import plain, spoken
from stabilizer.live.announced import (
    ARGUMENTS,
    ATTEMPT,
    LEFT,
    PLAN,
    SUPERVISED,
    WHY,
    RestartPlan,
    changed_arguments,
    read_plan,
)
from stabilizer.live.resume_command import resuming, with_arguments
from stabilizer.live.watchdog import FOR_OTHERS, SETTING
from stabilizer.runs.heartbeats import FRESH_S, Beat, read_beats
from stabilizer.runs.listing import whole_number
from stabilizer.runs.processes import descendants
from stabilizer.runs.processes import process as alive
from stabilizer.runs.reader import read_json
from stabilizer.troubles.search import in_line

POLL_S = 0.5
"""Seconds between looks at the process and its heartbeats."""
GRACE_S = 20.0
"""Time that a process gets to end after SIGTERM, before it is killed: a hung one, or after a second signal."""
LONGEST_PAUSE_S = 300.0
"""Longest pause before a restart; each pause is twice the one before."""
LASTING = 2.0
"""Without --hang, a stall has to last so many times the limit of its phase. The watchdog looks again then."""
SLOW = ("compiling", "long-computation")
"""Stalls that end by themselves; only --hang ends such a process."""
SILENT_S = 300.0
"""Without --hang, seconds without any heartbeat of a process that exists."""
HUNG = 124
"""The exit code of a run that hung and was not restarted, as that of `timeout`."""
TAIL = 64 * 1024
"""Bytes of standard error that are kept to recognise a failure."""
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
ENDING = ("SIGTERM", "SIGINT", "SIGHUP")
"""Signals after which nothing is restarted."""
HOPELESS = re.compile(r"^(?:SyntaxError|IndentationError|ImportError|ModuleNotFoundError)\b", re.MULTILINE)
"""Exceptions that the same files raise again."""
RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b")
RANK = re.compile(r"^\[rank\d+\]:\s*")
"""What torch puts before the lines of a traceback where several processes share the output."""
KILLED = re.compile(r"Root Cause.*?rank +: (\d+).*?exitcode +: -(\d+) \(pid: (\d+)\)", re.DOTALL)
"""What torchrun says at its end of a process that a signal ended."""
WARNED = re.compile(r"\b\w*Warning: |^warnings\.warn\(|^warn\(|%\|")
"""Lines of Python's warnings and of progress bars, which explain no end."""
USAGE = 2
"""The exit code of a command line that is refused."""
CANNOT_START = 127
"""The exit code of a shell for a command that is not there."""
FINDINGS = 1
"""The exit code of a training of ours that was done and ended with a warning."""
RECORD = "supervisor.jsonl"

Say = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Plan:
    """What the user allows."""

    command: Sequence[str]
    restarts: int = 3
    hang_s: float | None = None
    """Seconds after which a phase counts as hung; 0 never restarts a hang, None leaves it to the watchdog."""
    pause_s: float = 5.0
    """Pause before the first restart."""


class Ending(NamedTuple):
    """How an attempt ended."""

    code: int
    why: str
    """In words; empty when it ended well or was asked to."""
    mark: str
    """What two equal failures have in common."""
    step: int | None
    hopeless: bool = False
    """A restart would fail in the same way."""
    plan: RestartPlan | None = None
    """The process ended for this change of its arguments."""


class Supervisor:
    """Runs the attempts of one command, one after the other."""

    def __init__(self, plan: Plan, say: Say, *, stdout: Any = None):
        self._plan, self._say, self._stdout = plan, say, stdout
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = ""
        """The signal that asked the whole to end."""
        self._asked_at = math.inf
        self._insisted = False
        """Whether a signal came again after the time to end."""
        self._folder = Path(tempfile.mkdtemp(prefix="stabilizer-supervise-"))
        self._tail: deque[bytes] = deque()
        self._changed = changed_arguments()
        """Arguments that restart plans changed so far."""

    def run(self) -> int:
        """Attempt after attempt; returns the exit code of the last one."""
        before = {name: signal.signal(getattr(signal, name), self._forward) for name in FORWARDED}
        try:
            return self._attempts()
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)
            with contextlib.suppress(OSError):
                self._announced().unlink(missing_ok=True)
                self._folder.rmdir()

    def _attempts(self) -> int:
        command, why, attempt = list(self._plan.command), "", 1
        last: Ending | None = None
        while (ending := self._attempt(command, attempt, why)) is not None:
            stop = self._stops(ending, last, attempt)
            pause = 0.0 if ending.plan else min(LONGEST_PAUSE_S, self._plan.pause_s * 2 ** (attempt - 1))
            self._note(attempt, ending, stop or f"attempt {attempt + 1} begins in {spoken(pause)}", restart=not stop)
            if stop or not self._slept(pause):
                return ending.code
            last, why, attempt = ending, ending.why, attempt + 1
            self._changed |= ending.plan.arguments if ending.plan else {}
            command = with_arguments(resuming(self._plan.command, self._run()), self._changed)
        return CANNOT_START

    def _stops(self, ending: Ending, last: Ending | None, attempt: int) -> str:
        """Why there is no further attempt; empty when there is one."""
        if not ending.why:
            return "ended well"
        if self._asked:
            return f"{self._asked} was asked for"
        if ending.hopeless:
            return "not restarted: a configuration or import error fails in the same way again"
        again = last is not None and ending.step is not None and (ending.step, ending.mark) == (last.step, last.mark)
        if again:
            return f"not restarted: the same failure at step {ending.step} twice"
        if attempt > self._plan.restarts:
            return f"not restarted: the budget of {self._plan.restarts} restarts is used up"
        return ""

    # --- one attempt ------------------------------------------------------------------------------------------------

    def _attempt(self, command: Sequence[str], attempt: int, why: str) -> Ending | None:
        """Run the command to its end; None when it can't be started."""
        environment = {**os.environ, SUPERVISED: str(self._announced()), ATTEMPT: str(attempt), WHY: why}
        environment[LEFT] = str(max(0, self._plan.restarts - attempt + 1))
        environment[ARGUMENTS] = json.dumps(self._changed)
        if self._plan.hang_s:
            environment[SETTING] = str(self._plan.hang_s)
        try:
            process = subprocess.Popen(  # noqa: S603 (the user's own command)
                command, env=environment, stdout=self._stdout, stderr=subprocess.PIPE, process_group=0
            )  # its own group, so that Ctrl-C reaches it once, through us
        except OSError as error:
            self._say(f"{command[0]} can't be started: {error.strerror}", {"event": "failed"})
            return None
        self._process = process
        self._tail.clear()
        pump = threading.Thread(target=self._copy, args=(process.stderr,), daemon=True)
        pump.start()
        text = f"attempt {attempt} started (pid {process.pid}): {shlex.join(command)}"
        self._say(plain(text), {"event": "started", "attempt": attempt, "pid": process.pid, "command": list(command)})
        if self._asked:
            process.terminate()
        hang = self._watch(process, time.time())
        code = process.wait()
        pump.join(GRACE_S)
        return self._hung(*hang) if hang else self._ending(code if code >= 0 else 128 - code)

    def _watch(self, process: subprocess.Popen[bytes], began: float) -> tuple[Beat, str] | None:
        """Wait for the end of the process; end it when it hangs, and return what hung."""
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
            run = self._run()
            hang = hung(read_beats(run), self._plan.hang_s, began) if run and process.poll() is None else None
            if hang is not None:
                self._say(plain(f"hang: {hang[1]}"), {"event": "hang", **hang[0].stall})
                self._end(process)
                return hang
            if self._insisted:
                self._say(f"{self._asked} again: the command and all it started are ended", {"event": "insisted"})
                self._end(process)
        return None

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """End a process and all that it started, also in sessions of their own, as torchrun starts its workers."""
        started = descendants(process.pid)
        for number, patience in ((signal.SIGCONT, 0.0), (signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for worker in started:
            now = alive(worker.pid)
            if now is not None and now.began == worker.began:  # no later process of the same number
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(worker.pid, signal.SIGKILL)

    def _hung(self, beat: Beat, text: str) -> Ending:
        mark = f"hang {beat.phase} {beat.stall.get('frame', '')}"
        return Ending(HUNG, f"it hung: {text}", mark, beat.step)

    def _ending(self, code: int) -> Ending:
        """How a process ended that was not ended by us."""
        if code == 0:
            return self._planned()
        text = b"".join(self._tail).decode(errors="replace")
        message = _message(text)
        signalled = f" ({_signal(code - 128)})" if code > 128 else ""
        run = self._run()
        status = read_json(run / "status.json") if run else {}
        ours = run is not None and read_json(run / "run.json").get("trainer") == "stabilizer"
        if code == FINDINGS and ours and status.get("state") == "finished":
            return Ending(code, "", "", None)  # the training is done; the code tells of its verdict
        step = whole_number(status.get("step")) if run else None
        hopeless = code == USAGE or kind_of(text) == "config-error" or bool(HOPELESS.search(message))
        why = f"exit code {code}{signalled}" + (f": {message}" if message else "")
        return Ending(code, why, re.sub(r"0x[0-9a-f]+|\d+", "#", f"{code} {message}"), step, hopeless)

    def _planned(self) -> Ending:
        """The end of a process that ended well: it was done, or it left a restart plan, which is taken up once."""
        run = self._run()
        if run is None or (plan := read_plan(run)) is None:
            return Ending(0, "", "", None)
        with contextlib.suppress(OSError):
            (run / PLAN).rename(run / f"taken-{PLAN}")
        return Ending(0, f"it ended for a change of {plan.words}", f"plan {plan.words}", plan.step, plan=plan)

    # --- around it --------------------------------------------------------------------------------------------------

    def _copy(self, source: Any) -> None:
        """Pass standard error on as it comes, and keep its end."""
        kept = 0
        while chunk := source.read1(8192):
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(chunk)
                sys.stderr.buffer.flush()
            self._tail.append(chunk)
            kept += len(chunk)
            while kept > TAIL and len(self._tail) > 1:
                kept -= len(self._tail.popleft())

    def _forward(self, number: int, frame: object) -> None:
        name = signal.Signals(number).name
        if name in ENDING:
            now = time.monotonic()
            self._insisted = now - self._asked_at >= GRACE_S  # a signal that is sent twice at once is one
            self._asked, self._asked_at = name, min(self._asked_at, now)
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _slept(self, seconds: float) -> bool:
        """Wait before a restart; False when a signal asked to end."""
        end = time.monotonic() + seconds
        while not self._asked and time.monotonic() < end:
            time.sleep(min(POLL_S, seconds))
        return not self._asked

    def _announced(self) -> Path:
        return self._folder / "runs"

    def _run(self) -> Path | None:
        """The run directory that the command wrote last, if any."""
        try:
            lines = self._announced().read_text(encoding="utf-8").split("\n")
        except OSError:
            return None
        known = [Path(line) for line in lines if line]
        return known[-1] if known and known[-1].is_dir() else None

    def _note(self, attempt: int, ending: Ending, then: str, *, restart: bool) -> None:
        """Report the end of an attempt, and write it into the run where one is known."""
        how = f"{ending.why}; {then}" if ending.why else then
        data = {"event": "ended", "attempt": attempt, **ending._asdict(), "restart": restart}
        data["plan"] = ending.plan._asdict() if ending.plan else None
        self._say(plain(f"attempt {attempt}: {how}", 2000), data)
        if (run := self._run()) is not None:
            with contextlib.suppress(OSError), open(run / RECORD, "a", encoding="utf-8") as file:
                file.write(json.dumps({"t": time.time(), **data, "then": then}) + "\n")


def hung(beats: Sequence[Beat], hang_s: float | None, began: float) -> tuple[Beat, str] | None:
    """The rank that hangs for long enough to be restarted, with what it does; beats before `began` do not count."""
    if hang_s == 0:
        return None
    now = time.time()
    for beat in beats:
        if beat.over or beat.t < began or beat.phase == "paused":
            continue
        age = beat.age(now)
        patience = hang_s if hang_s else LASTING * beat.limit_s
        patience *= FOR_OTHERS if beat.stall.get("wait") == "collective" else 1.0
        if beat.stall and beat.for_s + age >= patience and (hang_s or beat.stall.get("kind") not in SLOW):
            return beat, str(beat.stall.get("text", ""))
        if age > max(FRESH_S, hang_s or SILENT_S):
            return beat, f"rank {beat.rank} has not answered for {spoken(age)} in phase {beat.phase}"
    return None


def _signal(number: int) -> str:
    """The name of a signal."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _message(text: str) -> str:
    """The process that a signal ended, the last line that names an exception, or the last line.

    What other processes print about it comes last.
    """
    if killed := KILLED.search(text):
        rank, number, pid = killed.groups()
        return f"rank {rank} (pid {pid}) was ended by {_signal(int(number))}"
    lines = [RANK.sub("", line.strip()) for line in text.replace("\r", "\n").splitlines() if line.strip()]
    raised = [line for line in lines if RAISED.match(line)]
    causes = [line for line in raised if not ((found := in_line(line)) and found.trouble.consequence)]
    return plain((causes or raised or [line for line in lines if not WARNED.search(line)] or [""])[-1], 400)
