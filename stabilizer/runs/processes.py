"""What Linux says about processes: state, CPU time, children, and the system call a thread waits in.

Other systems have no `/proc`: every question is answered with nothing there, and callers say less.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

_TICKS = float(os.sysconf("SC_CLK_TCK")) if hasattr(os, "sysconf") else 100.0
MOST_CHILDREN = 512
"""Descendants of one process that are looked at."""
GPU_WAIT_S = 5.0
"""Longest wait for nvidia-smi, in seconds: it hangs with a driver that hangs."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Process(NamedTuple):
    """One process at one moment."""

    pid: int
    name: str
    state: str
    """R runs, S sleeps, D waits for a disk, T is stopped, Z is dead and not yet collected by its parent."""
    cpu_s: float
    """CPU time it used so far."""
    queued_s: float
    """Time its first thread waited for a CPU: on a crowded machine a process that computes gets little of it."""
    began: int
    """When it began, in ticks since the machine's start: tells a process from a later one of the same number."""

    @property
    def wanted_s(self) -> float:
        """CPU time it used or waited for."""
        return self.cpu_s + self.queued_s


def process(pid: int) -> Process | None:
    """A process; None when it is gone or this system can't tell."""
    return _read(f"/proc/{pid}/stat", pid)


def thread(native_id: int) -> Process | None:
    """A thread of this process, as `process` shows one."""
    return _read(f"/proc/self/task/{native_id}/stat", native_id)


def _read(path: str, pid: int) -> Process | None:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    if len(fields) < 20:
        return None
    used = (int(fields[11]) + int(fields[12])) / _TICKS
    return Process(pid, head.partition("(")[2], fields[0], used, _queued(path), int(fields[19]))


def _queued(path: str) -> float:
    """Seconds in the queue of the processors; 0 where the kernel does not count them."""
    try:
        return int(Path(path.replace("/stat", "/schedstat")).read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def descendants(pid: int) -> list[Process]:
    """Children of a process, and theirs."""
    found: list[Process] = []
    waiting = [pid]
    while waiting and len(found) < MOST_CHILDREN:
        for child in _children(waiting.pop()):
            if (known := process(child)) is not None:
                found.append(known)
                waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split())
        except (OSError, ValueError):
            continue
    return found


_CALLS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 23: "select", 35: "nanosleep", 42: "connect", 43: "accept", 45: "recvfrom",
        47: "recvmsg", 44: "sendto", 61: "wait4", 74: "fsync", 75: "fdatasync", 202: "futex", 230: "nanosleep",
        232: "epoll_wait", 247: "waitid", 257: "open", 270: "select", 271: "poll", 281: "epoll_wait", 288: "accept",
        73: "flock", 2: "open",
    },
    "aarch64": {
        63: "read", 64: "write", 73: "poll", 72: "select", 101: "nanosleep", 203: "connect", 202: "accept",
        207: "recvfrom", 212: "recvmsg", 206: "sendto", 260: "wait4", 82: "fsync", 83: "fdatasync", 98: "futex",
        115: "nanosleep", 22: "epoll_wait", 95: "waitid", 56: "open", 242: "accept", 32: "flock",
    },
}  # fmt: skip
"""Numbers of the system calls that a thread can wait in, by machine (Linux: unistd_64.h, unistd.h)."""


def system_call(native_id: int) -> str:
    """The system call that a thread of this process waits in; empty while it computes or where this can't be known."""
    try:
        number = Path(f"/proc/self/task/{native_id}/syscall").read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return ""
    return _CALLS.get(platform.machine(), {}).get(int(number), "") if number.isdigit() else ""


def boot_id() -> str:
    """The id of this start of the machine; empty where it has none. Monotonic clocks of one start can be compared."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def gpu_use() -> str:
    """How busy the GPUs are, as nvidia-smi prints it (`97 %, 3 %`); empty without it or without an answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=GPU_WAIT_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    shares = [line.strip() for line in answer.stdout.splitlines() if line.strip().isdigit()]
    return ", ".join(f"{share} %" for share in shares[:16])


def since_start() -> float:
    """Seconds of this machine's clock that stands still while the machine sleeps."""
    return time.monotonic()
