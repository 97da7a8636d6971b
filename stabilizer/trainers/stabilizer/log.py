"""A run directory of our own (`DESIGN.md`, "The run directory"), recognised by its run.json."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.runs.heartbeats import FRESH_S, held_place, read_beats
from stabilizer.runs.listing import heartbeat_of, run_state
from stabilizer.runs.loaded import LoadedRun, NoMetrics, load_own
from stabilizer.runs.reader import OwnNames, RunError, read_json
from stabilizer.runs.stalls import from_outside

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
    _refuse_options(folder, mapping, config)
    run = load_own(folder.resolve())
    status = read_json(folder / "status.json")
    now = time.time()
    state, heartbeat = run_state(status, now), heartbeat_of(status)
    for history in run.histories.values():
        history.about = {**history.about, "state": state, "state_step": status.get("step")}
    if status.get("state") == "running" and heartbeat is not None:
        silence = _silence(folder, now, now - heartbeat if state == "stalled" else None)
        run.history.about = {**run.history.about, **silence, "silent_step": max(run.history.step, 0)}
    if not run.ticks and not run.recorded:
        text = f"{folder}: no metrics yet (state: {state}); try again when the first step is done"
        raise NoMetrics(text, run) if run.history.about.get("stall") else RunError(text)
    return run


def _refuse_options(folder: Path, mapping: dict[str, str], config: Mapping[str, Any] | None) -> None:
    if mapping:
        raise OwnNames(f"{folder}: --map renames metrics of foreign logs; a run directory has our names already")
    if config:
        raise RunError(f"{folder}: --config is for foreign logs; this run's own configuration is in its run.json")


def _silence(folder: Path, now: float, silent_s: float | None) -> dict[str, Any]:
    """What a run that calls itself running does: by the heartbeats of its phases or, without any, by its silence."""
    beats = read_beats(folder)
    found = from_outside(beats, now, lambda beat: held_place(folder, beat.rank))
    if found is not None:
        return {"stall": found}
    watched = any(beat.age(now) <= FRESH_S for beat in beats)  # its watchdog judges it by the history of its phases
    return {} if silent_s is None or watched else {"silent_s": silent_s}
