"""Commands in a process of their own, with limits of time and memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import NamedTuple

_CODE = """
import sys
from stabilizer.cli import main
code = main(sys.argv[1:])
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak", peak, file=sys.stderr)
sys.exit(code)
"""
"""The peak is that of the command's own memory: `ru_maxrss` counts the process it was forked from too."""
ADDRESS_SPACE = 6 * 2**30
"""Bytes. It keeps a failing test from filling the machine; libraries reserve far more than they use."""


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str
    peak: int
    """Bytes of memory it had at most."""


def stabilizer(*words: object, cpu_s: int = 20) -> Done:
    """Run one command. An error where it takes more time than it may."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))

    done = subprocess.run(
        [sys.executable, "-c", _CODE, *map(str, words)], capture_output=True, text=True, timeout=10 * cpu_s,
        preexec_fn=limit, env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    err, _, peak = done.stderr.rpartition("peak ")
    assert peak.strip().isdigit(), f"killed or crashed ({done.returncode}): {done.stderr[-400:]}"
    return Done(done.returncode, done.stdout, err, int(peak) * 1024)
