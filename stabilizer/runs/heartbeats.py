"""Heartbeats: one small file per rank that says what the rank does, since when, and whether that takes too long.

    heartbeats/r<rank>.json          replaced atomically by the rank's own watchdog thread
    heartbeats/r<rank>-stacks-held.txt  the same while native code held the interpreter, written by a signal
    heartbeats/r<rank>-stacks-<n>.txt   stacks of all threads of a rank when it was found stalled

A viewer reads them and writes none. A training process that was killed leaves its last heartbeat: the phase it ended
in.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stabilizer.runs.atomic import replace_json
from stabilizer.runs.processes import boot_id, process, since_start
from stabilizer.runs.reader import read_json

FOLDER = "heartbeats"
FRESH_S = 15.0
"""A heartbeat this old is silent: three times `ALIVE_S`."""
ALIVE_S = 5.0
"""Seconds between two heartbeats of a phase that lasts."""
MAX_HELD = 200_000
"""Characters of a file of stacks that are read, from its end."""
LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python3|<frozen|^<(?!ipython|stdin)|importlib")
"""Files of installed code and of Python itself."""
MOST_RANKS = 4096
"""Heartbeats of one run that are read."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """What one rank wrote about itself. Times are seconds since the epoch."""

    rank: int = 0
    world: int = 1
    pid: int = 0
    began: int = 0
    """When its process began (`Process.began`)."""
    host: str = ""
    boot: str = ""
    phase: str = "other"
    pending: str = ""
    """The oldest piece of work that has begun and not ended, in the words of the trainer."""
    since: float = 0.0
    """When the phase began."""
    for_s: float = 0.0
    """Seconds in the phase, without the time in which the machine or the process slept."""
    usual_s: float | None = None
    """Seconds that this phase usually takes; None before it was ever finished."""
    limit_s: float = 0.0
    """Seconds after which the phase counts as stalled."""
    step: int = 0
    """The step in progress, or the last one where the loop only says when a step ended."""
    t: float = 0.0
    clock: float = 0.0
    """`since_start` when this was written."""
    over: bool = False
    """The process ended in good order."""
    stall: Mapping[str, Any] = field(default_factory=dict)
    """What was found when the phase took too long; empty otherwise."""

    def age(self, now: float) -> float:
        """Seconds since it was written; sleep of the machine is left out where the reader can know it."""
        return since_start() - self.clock if self.boot and self.boot == boot_id() else now - self.t

    @property
    def here(self) -> bool:
        """Whether this machine runs its process, so that the process can be asked for."""
        return self.host == socket.gethostname() and (not self.boot or self.boot == boot_id())

    @property
    def state(self) -> str:
        """The state of its process (`Process.state`): `gone` when there is none, empty when it can't be known."""
        if not self.here:
            return "gone" if self.boot and self.host == socket.gethostname() else ""
        found = process(self.pid)
        if found is None:
            return "gone" if Path("/proc/self").exists() else ""
        return "gone" if self.began and found.began != self.began else found.state


def write_beat(run: Path, beat: Beat) -> None:
    """Replace the heartbeat of a rank. OSError when the disk refuses."""
    now = time.time()
    row = asdict(beat) | {"pid": os.getpid(), "host": socket.gethostname(), "t": now, "clock": since_start()}
    replace_json(run / FOLDER / f"r{beat.rank}.json", row, sync=False)


def clear_beats(run: Path) -> None:
    """Remove the heartbeats of an earlier process; the stacks that it left stay."""
    for file in (run / FOLDER).glob("r*.json"):
        file.unlink(missing_ok=True)


def read_beats(run: Path) -> list[Beat]:
    """The heartbeats of all ranks, in order; none where there are none."""
    try:
        names = [entry.name for entry in os.scandir(run / FOLDER)]
    except OSError:
        return []
    ranks = sorted(
        int(name[1:-5]) for name in names if name[0] == "r" and name.endswith(".json") and name[1:-5].isdigit()
    )
    found = [_beat(read_json(run / FOLDER / f"r{rank}.json")) for rank in ranks[:MOST_RANKS]]
    return [beat for beat in found if beat is not None]


def held_place(run: Path, rank: int) -> str:
    """Where native code held the interpreter of a rank, as `file:line function`; empty where that was not written."""
    try:
        text = (run / FOLDER / f"r{rank}-stacks-held.txt").read_text(encoding="utf-8", errors="replace")[-MAX_HELD:]
    except OSError:
        return ""
    main = re.split(r"^(?:Current thread|Thread) ", text, flags=re.MULTILINE)[-1]
    frames = re.findall(r'^  File "([^"\n]+)", line (\d+) in (.+)$', main, flags=re.MULTILINE)
    users = [frame for frame in frames if not LIBRARY.search(frame[0])] or frames
    return "{}:{} {}".format(*users[0]) if users else ""


def _beat(row: Mapping[str, Any]) -> Beat | None:
    """A heartbeat from its file; None where it can't be one."""
    fields: dict[str, Any] = {}
    for name, default in Beat.__dataclass_fields__.items():
        value = row.get(name)
        kinds = {"usual_s": (int, float, type(None)), "stall": (dict,)}.get(name) or (type(default.default),)
        kinds = (int, float) if kinds == (float,) else kinds
        if name in row and isinstance(value, kinds):
            fields[name] = value
    return Beat(**fields) if "t" in fields and "pid" in fields else None
