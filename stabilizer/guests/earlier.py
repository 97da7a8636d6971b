"""A restarted attempt of a supervised loop goes on in the run of the attempt before, as another attempt of it.

The supervisor's file names the runs that earlier attempts began. The newest that has the same folder and name and is
not finished is opened again; its rows from the step at which the loop goes on stay readable as an abandoned branch.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from stabilizer.live.announced import PLAN, SUPERVISED, attempt
from stabilizer.runs.identity import RunFacts, description, new_run_id
from stabilizer.runs.reader import RunReader, read_json
from stabilizer.runs.writer import RunWriter

RENEWED = ("config", "versions", "argv", "steps", "git", "hardware")
"""What an attempt says of itself in place of what the attempt before said."""
NAMED = 5
"""Changed settings that are named."""
_begun: set[Path] = set()
"""Runs that this process began or opened: a second run of the same name is another one."""


def record(runs: Path, name: str, **facts: Unpack[RunFacts]) -> tuple[RunWriter, RunReader | None]:
    """The writer of a run, and what an earlier attempt wrote into it; OSError or ValueError if there can be none."""
    facts["argv"] = ["python", *sys.argv]  # of the user's script, which is no command of ours
    path = _interrupted(runs, name)
    if path is not None:
        with contextlib.suppress(OSError, ValueError):  # another process has it, or it is damaged
            writer = RunWriter.reopen(path)
            earlier = RunReader(path, spills=True)
            about = description(path, **facts)
            writer.about |= {key: about[key] for key in RENEWED if key in about}
            (path / PLAN).unlink(missing_ok=True)  # of an attempt that did not end well
            _begun.add(path)
            return writer, earlier
    path = runs / new_run_id(name)
    writer = RunWriter.create(path, **facts)
    _begun.add(path.resolve())
    return writer, None


def _interrupted(runs: Path, name: str) -> Path | None:
    """The run to go on with, if any."""
    if attempt() < 2:
        return None
    try:
        lines = Path(os.environ.get(SUPERVISED, "")).read_text(encoding="utf-8").split("\n")
    except OSError:
        return None
    known = [Path(line) for line in dict.fromkeys(lines) if line]
    for run in reversed([run for run in known if run.parent == runs.resolve() and run not in _begun]):
        if read_json(run / "run.json").get("task") == name:
            return None if read_json(run / "status.json").get("state") == "finished" else run
    return None


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Settings that differ between two attempts, in words; empty if none does."""
    names = [name for name in now if name in before and before[name] != now[name]]
    words = [f"{name}={now[name]} (was {before[name]})" for name in names[:NAMED]]
    return ", ".join([*words, f"{len(names) - NAMED} more"] if len(names) > NAMED else words)
