"""Stacks of a process whose interpreter is held by native code, so that no Python thread can look.

A timer of the operating system sends a real-time signal when it was not put off for a while; faulthandler answers it in
C and writes the stacks of all threads. Linux alone; elsewhere nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
from io import TextIOWrapper
from pathlib import Path

AFTER_S = 60
"""Seconds without a look of the watchdog after which stacks are written. A thread that computes in Python lets others
run every 5 ms."""
MOST_BYTES = 1024 * 1024
"""Size of the file at which no further stacks are written."""
AGAIN = 10
"""They are written again after so many times `AFTER_S`."""
_CLOCK_MONOTONIC = 1
_signal_in_use = 0


class _Event(ctypes.Structure):
    """`struct sigevent`: a signal is sent when the timer ends."""

    _fields_ = (
        ("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_char * 48),
    )  # fmt: skip


class _Times(ctypes.Structure):
    """`struct itimerspec`: interval and first end, in seconds and nanoseconds."""

    _fields_ = (
        ("every_s", ctypes.c_long), ("every_ns", ctypes.c_long),
        ("first_s", ctypes.c_long), ("first_ns", ctypes.c_long),
    )  # fmt: skip


class Outcry:
    """Armed by `put_off`, and again by each later call. No method raises."""

    def __init__(self, path: Path):
        self._path, self._after_s = path, float(AFTER_S)
        self._file: TextIOWrapper | None = None
        self._timer: ctypes.c_void_p | None = None
        self._tried = False
        self._number = 0
        self._lock = threading.Lock()

    def put_off(self) -> None:
        """Call this more often than every `after_s` seconds, from any thread."""
        with contextlib.suppress(Exception), self._lock:
            if not self._tried:
                self._tried = True
                self._arm()
            if self._timer is not None and self._libc is not None:
                if self._file is not None and os.fstat(self._file.fileno()).st_size > MOST_BYTES:
                    self._disarm()
                    return
                self._set(self._after_s)

    def close(self) -> None:
        """Disarm. The signal keeps its handler: one that is on its way would end the process otherwise."""
        with contextlib.suppress(Exception), self._lock:
            self._tried = True
            self._disarm()

    _libc: ctypes.CDLL | None = None

    def _arm(self) -> None:
        if not sys.platform.startswith("linux"):
            return
        self._number = _free_signal()
        if not self._number:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 (open as long as the process)
        faulthandler.register(self._number, file=self._file, all_threads=True, chain=False)
        self._libc = ctypes.CDLL(None, use_errno=True)
        event, timer = _Event(None, self._number, 0, b""), ctypes.c_void_p()
        if self._libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0:
            self._timer = timer

    def _set(self, seconds: float) -> None:
        whole = int(seconds)
        times = _Times(AGAIN * max(1, whole), 0, whole, int((seconds - whole) * 1e9))
        if self._libc is not None and self._timer is not None:
            self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None)

    def _disarm(self) -> None:
        if self._timer is not None and self._libc is not None:
            self._libc.timer_delete(self._timer)
            self._timer = None
        if self._file is not None and self._file.tell() == 0 and self._path.stat().st_size == 0:
            self._path.unlink(missing_ok=True)


def _free_signal() -> int:
    """A real-time signal that nobody handles; 0 when there is none. A process uses the same one for all its runs."""
    global _signal_in_use
    if not _signal_in_use:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        taken = sum(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
        ignored = sum(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))
        numbers = range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1)
        free = (number for number in numbers if not (taken | ignored) >> (number - 1) & 1)
        _signal_in_use = next(free, 0)
    return _signal_in_use
