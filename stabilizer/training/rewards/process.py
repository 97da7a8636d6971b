"""The trainer's end of a worker process: start it, call it with a deadline, end it, start it again."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import IO, Any

from stabilizer.core.text import spoken
from stabilizer.training.rewards import worker
from stabilizer.training.rewards.worker import LENGTH

SLOW_IMPORT_S = 5.0
"""Seconds of importing after which a message tells the user why training waits."""
MOST_BYTES = 1 << 32
"""Larger than any answer: such a length means that something else was written."""
LOG_BYTES = 1 << 20
"""Output of a function above this size is deleted between calls."""


class CallFailed(Exception):
    """A call that returned no scores, and why."""

    lost = False
    """Whether the process was lost: it hung or died."""
    no_list = False
    """Whether the function returned values, but not one per sample."""


class ProcessLost(CallFailed):
    """The process ended or had to be ended."""

    lost = True


class RewardProcess:
    """One function in a separate process. It is kept between calls, and replaced when it dies or hangs."""

    def __init__(self, load: dict[str, Any], import_timeout_s: float):
        self._load = load | {"path": list(sys.path)}
        self._import_timeout_s = import_timeout_s
        self._told = False
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile("ab+")
        self._end: Callable[[], object] = lambda: None
        self._calls = 0
        self.extra: dict[str, list[float | None]] = {}
        """Further numbers of the samples of the last call, by name."""

    def start(self) -> dict[str, Any]:
        """Load the function unless that is done; returns the parameters it needs. CallFailed if it can't be loaded."""
        if self._process is None:
            # A separate session: Ctrl-C at the terminal is meant for the trainer, which then ends this process.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", worker.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
                bufsize=0,
            )
            for pipe in _pipes(self._process):
                os.set_blocking(pipe.fileno(), False)
            self._end = weakref.finalize(self, _end, self._process)
            slow = threading.Timer(SLOW_IMPORT_S, self._tell_slow_import)
            slow.daemon = True
            slow.start()
            try:
                self._about: dict[str, Any] = self._exchange(self._load, self._import_timeout_s, self._what)["about"]
            except CallFailed:
                self.close()
                raise
            finally:
                slow.cancel()
        return self._about

    @property
    def _what(self) -> str:
        """The operation that training waits for while the function loads."""
        return f"the import of {self._load['file'] or self._load['function']}"

    def _tell_slow_import(self) -> None:
        """Print once what training waits for: until then the terminal shows nothing."""
        if not self._told:
            self._told = True
            limit = f"at most {spoken(self._import_timeout_s)} (reward.import_timeout_s)"
            print(f"waiting for {self._what}, {limit}", file=sys.stderr, flush=True)

    def score(self, lists: dict[str, list[Any]], timeout_s: float) -> list[tuple[float | None, str]]:
        """(value, reason for no value) of each sample; CallFailed if there are no values at all."""
        self.extra = {}
        answer = self.ask({"lists": lists}, timeout_s)
        self.extra = answer["extra"]
        return [(value, why) for value, why in answer["scores"]]

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to a request; CallFailed if there is none."""
        self.start()
        # CPU seconds of all threads together, far above the deadline: ends the process when no trainer waits any more.
        cpu_s = (timeout_s + 10) * (os.cpu_count() or 1)
        return self._exchange(request | {"cpu_s": cpu_s}, timeout_s)

    def kill(self) -> None:
        """End the process while another thread may wait for it: that thread sees it die, and closes its pipes."""
        if self._process is not None:
            _kill(self._process)

    def close(self) -> None:
        """End the process and everything it started."""
        self._end()
        self._process = None

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start() comes first"
        return self._process

    def _exchange(self, request: dict[str, Any], timeout_s: float, importing: str = "") -> dict[str, Any]:
        deadline = monotonic() + timeout_s
        self._calls += 1
        try:
            body = pickle.dumps(request | {"id": self._calls})
        except RecursionError:
            raise CallFailed("a column of the sample is nested too deeply to be passed on") from None
        try:
            self._log_start = self._trimmed_log()
            self._send(LENGTH.pack(len(body)) + body, deadline)
            size = LENGTH.unpack(self._receive(LENGTH.size, deadline))[0]
            if size > MOST_BYTES:
                raise ValueError
            answer: dict[str, Any] = json.loads(self._receive(size, deadline))
            if answer["id"] != self._calls:
                raise ValueError
        except TimeoutError:
            self.close()
            raise ProcessLost(_too_late(timeout_s, importing)) from None
        except (EOFError, BrokenPipeError):
            why = self._last_words()
            self.close()
            raise ProcessLost(why) from None
        except (ValueError, TypeError, KeyError):  # the function, or a copy of its process, wrote there
            self.close()
            raise ProcessLost(
                "the process sent something other than its answer: does it fork, or write into open files?"
            ) from None
        except BaseException:  # interrupted half-way: the next answer would belong to this call
            self.close()
            raise
        if "error" in answer:
            failed = CallFailed(answer["error"])
            failed.no_list = answer["no_list"]
            raise failed
        return answer

    def _send(self, data: bytes, deadline: float) -> None:
        file, left = _pipes(self._running)[0].fileno(), memoryview(data)
        while left:
            _wait(file, select.POLLOUT, deadline)
            left = left[os.write(file, left[: 1 << 16]) :]

    def _receive(self, count: int, deadline: float) -> bytes:
        file, data = _pipes(self._running)[1].fileno(), bytearray()
        while len(data) < count:
            _wait(file, select.POLLIN, deadline)
            part = os.read(file, min(count - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _trimmed_log(self) -> int:
        size = os.fstat(self._log.fileno()).st_size
        if size > LOG_BYTES:
            self._log.truncate(0)
            return 0
        return size

    def _last_words(self) -> str:
        """How the process ended, and the last line it printed."""
        try:
            code = self._running.wait(1)
        except subprocess.TimeoutExpired:
            return "the process closed its connection"
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        size = os.fstat(self._log.fileno()).st_size
        said = os.pread(self._log.fileno(), 4096, max(self._log_start, size - 4096)).decode(errors="replace")
        last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
        return f"the process ended ({how}){': ' if last else ''}{last[:200]}"


def _too_late(timeout_s: float, importing: str) -> str:
    if not importing:
        return f"no answer within {spoken(timeout_s)}"
    return (
        f"{importing} did not end within {spoken(timeout_s)}; look at what the file does when it is imported, or raise"
        " reward.import_timeout_s"
    )


def _wait(file: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(file, event)
    if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
        raise TimeoutError


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """The pipes for its input and its output."""
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything it started, in sessions of their own too. Stopped first, it can't start more."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            process.send_signal(signal.SIGSTOP)
            worker.end_descendants(process.pid)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill(process)
    for pipe in _pipes(process):
        pipe.close()
    process.wait()
