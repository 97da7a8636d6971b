"""What a supervised process and its supervisor tell each other: the run directory, and why there was a restart."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

SUPERVISED = "STABILIZER_SUPERVISED"
"""The file to which a supervised process adds the folder of its run."""
ATTEMPT = "STABILIZER_ATTEMPT"
"""The number of this attempt of a supervised command, from 1: a script can resume when it is above 1."""
WHY = "STABILIZER_RESTARTED"
"""Why the attempt before ended; empty for the first one."""


def announce_to_supervisor(run: Path, note: Callable[[str], object]) -> None:
    """Name the run to the supervisor, if there is one, and put a restart on record."""
    file = os.environ.get(SUPERVISED)
    if not file:
        return
    with contextlib.suppress(OSError), open(file, "a", encoding="utf-8") as known:
        known.write(f"{run.resolve()}\n")
    if why := os.environ.get(WHY):
        note(f"restarted by `stabilizer supervise`, attempt {os.environ.get(ATTEMPT, '')}: {why}")
