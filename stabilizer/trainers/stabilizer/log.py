"""A run directory of our own (`DESIGN.md`, "The run directory"), recognised by its run.json."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.runs.listing import heartbeat_of, run_state
from stabilizer.runs.loaded import LoadedRun, load_own
from stabilizer.runs.reader import OwnNames, RunError, read_json

NAME = "stabilizer"
WHAT = "a run directory, the folder that holds run.json"


def recognises(path: Path) -> bool:
    """By the exact name of the file every run directory has."""
    return (path / "run.json").is_file() or (path.name == "run.json" and path.is_file())


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run with its status: `about` also holds `state` and `state_step`.

    For a run whose status is "running" but whose heartbeat stopped, it also holds the length of the silence and the
    step before it. The clock is read only here.
    """
    folder = path.parent if path.name == "run.json" else path
    if mapping:
        raise OwnNames(f"{folder}: --map renames metrics of foreign logs; a run directory has our names already")
    if config:
        raise RunError(f"{folder}: --config is for foreign logs; this run's own configuration is in its run.json")
    run = load_own(folder.resolve())
    status = read_json(folder / "status.json")
    now = time.time()
    state, heartbeat = run_state(status, now), heartbeat_of(status)
    for history in run.histories.values():
        history.about = {**history.about, "state": state, "state_step": status.get("step")}
    if state == "stalled" and status.get("state") == "running" and heartbeat is not None:
        latest = run.history
        latest.about = {**latest.about, "silent_s": now - heartbeat, "silent_step": latest.step}
    if not run.ticks and not run.recorded:
        raise RunError(f"{folder}: no metrics yet (state: {state}); try again when the first step is done")
    return run
