"""Recall and false alarms of `system/stalled`, from real processes that hang or only look so.

A hang counts as found when a finding or the heartbeats say so, as located when kind, phase and function (or rank) are
right. A quiet loop counts as a false alarm when anything is reported at any time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.hangs.scenes import HANGS, QUIET, Truth
from stabilizer.core.records import Finding
from stabilizer.runs.heartbeats import held_place, read_beats
from stabilizer.runs.reader import read_records
from stabilizer.runs.stalls import from_outside

POLL_S = 0.5
PATIENCE_S = 150.0
"""Longest wait for a finding, or for the end of a quiet loop."""
SETTLED_S = 8.0
"""After a first finding: in runs of two ranks the finding of the other rank follows."""
AT_ONCE = 3
QUICK_HANGS = ("a reward that sleeps", "an engine that was killed", "one of two ranks is elsewhere")
QUICK_QUIET = ("steps that grow", "a machine that sleeps")

Row = dict[str, Any]


def measure(*, quick: bool = False) -> list[Row]:
    """A row per scene, and one of the sums."""
    hangs = [name for name in HANGS if not quick or name in QUICK_HANGS]
    quiet = [name for name in QUIET if not quick or name in QUICK_QUIET]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda name: hang(name, Path(folder)), hangs))
        calm = list(pool.map(lambda name: calmly(name, Path(folder)), quiet))
    return [*found, *calm]


def summary(rows: list[Row]) -> str:
    """The sums, in one sentence."""
    hangs = [row for row in rows if row["hangs"]]
    quiet = [row for row in rows if not row["hangs"]]
    found, located = sum(row["found"] for row in hangs), sum(row["located"] for row in hangs)
    alarms = sum(row["found"] for row in quiet)
    return (
        f"hangs found: {found} of {len(hangs)}; rank, phase, place and kind right: {located} of {len(hangs)};"
        f" false alarms: {alarms} of {len(quiet)} quiet loops"
    )


def hang(name: str, folder: Path) -> Row:
    """Run a loop that hangs until it is found."""
    truth = HANGS[name][1]
    with _running(name, folder) as (place, process):
        began, first, seen = time.monotonic(), None, []
        while time.monotonic() - began < PATIENCE_S:
            seen = _reports(place)
            first = first or (time.monotonic() if seen else None)
            if any(_right(report, truth) for report in seen) or (first and time.monotonic() - first > SETTLED_S):
                break
            time.sleep(POLL_S)
    best = next((report for report in seen if _right(report, truth)), seen[0] if seen else {})
    return {
        "scene": name, "hangs": True, "found": bool(seen), "located": any(_right(report, truth) for report in seen),
        "kind": best.get("kind", ""), "text": best.get("text", ""),
    }  # fmt: skip


def calmly(name: str, folder: Path) -> Row:
    """Run a loop in which nothing hangs to its end."""
    with _running(name, folder) as (place, process):
        began = time.monotonic()
        seen: list[Row] = []
        while process.poll() is None and time.monotonic() - began < PATIENCE_S:
            seen += _recorded(place)
            time.sleep(POLL_S)
        ended = process.poll() == 0
        seen += _recorded(place)
    text = seen[0]["text"] if seen else "" if ended else "the loop did not end"
    return {"scene": name, "hangs": False, "found": bool(seen), "located": ended, "kind": "", "text": text}


class _running(contextlib.AbstractContextManager[tuple[Path, "subprocess.Popen[bytes]"]]):
    """A scene in a process group of its own, which is ended at the end."""

    def __init__(self, name: str, folder: Path):
        self._place = folder / name.replace(" ", "-")
        self._place.mkdir()
        command = [sys.executable, "-m", "bench.hangs.scenes", name, str(self._place)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with open(self._place / "log", "wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                command, env=environment, start_new_session=True, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def __enter__(self) -> tuple[Path, subprocess.Popen[bytes]]:
        return self._place, self._process

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _reports(place: Path) -> list[Row]:
    """What findings and heartbeats say about the run of a scene."""
    runs = list((place / "runs").glob("*")) if (place / "runs").is_dir() else []
    if not runs:
        return []
    seen = from_outside(read_beats(runs[0]), time.time(), lambda beat: held_place(runs[0], beat.rank))
    return [*reversed(_recorded(place)), *([seen] if seen else [])]


def _recorded(place: Path) -> list[Row]:
    runs = list((place / "runs").glob("*")) if (place / "runs").is_dir() else []
    found = read_records(runs[0] / "findings.jsonl", Finding).records if runs else []
    return [{**one.evidence, "text": one.summary} for one in found if one.id == "system/stalled"]


def _right(report: Row, truth: Truth) -> bool:
    told = f"{report.get('text', '')} {report.get('frame', '')}"
    right = report.get("kind") in truth.kinds and truth.words in told
    return right and (not truth.phase or report.get("phase") == truth.phase)
