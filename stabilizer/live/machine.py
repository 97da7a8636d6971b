"""The machine a run trains on: processor, memory, disk, network and GPU, sampled seldom and never at a cost that shows.

Everything is optional: what this machine does not tell is left out, and no failure reaches the training loop.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EVERY_S = 15.0
"""Seconds between two samples; a sample takes about 0.2 ms, a GPU's use a few ms more."""
GB = 1e9
MB = 1e6
CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
"""The memory limit of a container; a number of bytes, or "max"."""


class Machine:
    """Samples for one run. The first one comes `EVERY_S` after the start, because use is a rate."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        self._folder = folder
        self._clock = clock
        self._last = clock()
        self._processor = _processor()
        self._own = _own_seconds()
        self._network = _network()
        self._gpu_use: Callable[[], Any] | None = None
        self._gpu_tried = False

    def sample(self) -> dict[str, float]:
        """The metrics of now; empty until a sample is due."""
        now = self._clock()
        if now - self._last < EVERY_S:
            return {}
        seconds, self._last = now - self._last, now
        found: dict[str, float] = {}
        for part in (self._use, self._traffic):
            found.update(_tried(lambda part=part: part(seconds)))  # type: ignore[misc]
        for measure in (_memory, self._disk, self._gpu):
            found.update(_tried(measure))
        return found

    def _use(self, seconds: float) -> Iterator[tuple[str, float]]:
        before, self._processor = self._processor, _processor()
        if before and self._processor:
            busy, total = (now - then for now, then in zip(self._processor, before, strict=True))
            if total > 0:
                yield "system/cpu_frac", min(1.0, max(0.0, busy / total))
        own, self._own = self._own, _own_seconds()
        yield "system/process_cores", max(0.0, (self._own - own) / seconds)

    def _traffic(self, seconds: float) -> Iterator[tuple[str, float]]:
        before, self._network = self._network, _network()
        if before is not None and self._network is not None:
            yield "system/network_mb_s", max(0.0, (self._network - before) / seconds / MB)

    def _disk(self) -> Iterator[tuple[str, float]]:
        yield "system/disk_free_gb", shutil.disk_usage(self._folder).free / GB

    def _gpu(self) -> Iterator[tuple[str, float]]:
        torch = sys.modules.get("torch")  # whoever has not loaded it uses no GPU through it
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return
        free, total = torch.cuda.mem_get_info()
        yield "system/gpu_memory_gb", (total - free) / GB
        yield "system/gpu_memory_frac", (total - free) / total
        if not self._gpu_tried:
            self._gpu_tried = True
            torch.cuda.utilization()  # fails where the driver's library is missing, and is not asked again
            self._gpu_use = torch.cuda.utilization
        if self._gpu_use is not None:
            yield "system/gpu_frac", float(self._gpu_use()) / 100


def _tried(measure: Callable[[], Iterator[tuple[str, float]]]) -> dict[str, float]:
    """What a measurement yields before it fails, if it does."""
    found: dict[str, float] = {}
    try:
        for name, value in measure():
            found[name] = float(value)
    except Exception:  # a machine without one of these files, a driver that went away
        return found
    return found


def _memory() -> Iterator[tuple[str, float]]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield "system/process_memory_gb", pages * os.sysconf("SC_PAGE_SIZE") / GB
    sizes = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(sizes[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
    yield "system/memory_frac", 1 - free / total
    if (limit := CGROUP_MEMORY.read_text().strip()).isdecimal() and int(limit) < total:
        used = int((CGROUP_MEMORY.parent / "memory.current").read_text())
        yield "system/container_memory_frac", used / int(limit)


def _own_seconds() -> float:
    """Processor time of this process and the children it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _processor() -> tuple[float, float] | None:
    """Busy time and all time of all cores since the machine started."""
    try:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    idle = sum(fields[3:5])
    return float(sum(fields) - idle), float(sum(fields))


def _network() -> float | None:
    """Bytes received and sent over all interfaces but the loopback."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
        rows = [line.partition(":") for line in lines]
        return float(sum(int(r.split()[0]) + int(r.split()[8]) for name, _, r in rows if name.strip() != "lo"))
    except (OSError, ValueError, IndexError):
        return None
