"""Whether a run would apply a request, and why not; the command line and the dashboard use the same rules.

Only `leave` writes, and only a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.core.records import Action
from stabilizer.runs.listing import state_of, writer_lives
from stabilizer.runs.requests import Kind, Request, ask, look

ANSWERS: Mapping[str, tuple[Kind, ...]] = {
    "proposed": ("approve", "reject"),
    "applied": ("revert",),
    "verified": ("revert",),
}
"""Allowed answers to a trial, by its newest entry in the journal."""

FRESH_S = 15.0
"""Seconds for which a heartbeat counts as a sign of life if the process is not visible on this machine."""


def over(status: Mapping[str, Any], now: float) -> str:
    """Why no process would answer; empty if one might. A run in a long step has no heartbeat but still answers."""
    state = state_of(status, now)
    if state not in ("running", "paused", "stalled"):
        return f"the run is {state}, so it can't be changed"
    beat = status.get("t")
    fresh = isinstance(beat, (int, float)) and now - beat < FRESH_S  # a container's process is not visible from outside
    gone = not fresh and writer_lives(dict(status)) is False
    return "the run's process is gone, so it can't be changed" if gone else ""


ALLOWS: Mapping[str, str] = {
    "stabilizer": "stop it and continue with `stabilizer train --resume {run} --remedy approve`",
    "trl": 'start it with attach(..., remedy="approve"), or change a knob with `stabilizer fix {run} set NAME=VALUE`',
}
"""How a run of a trainer is allowed to apply remedies."""
BY_YOURSELF = "inside another loop no fix can be undone; change a knob with `stabilizer fix {run} set NAME=VALUE`"
AGAIN: Mapping[str, str] = {"stabilizer": "resume it with `stabilizer train --resume {run}`"}
"""How a run that ended goes on."""
ENDED = ("finished", "quiet", "unreadable")
"""States of a run that does not go on."""


def over_and_on(status: Mapping[str, Any], now: float, run: object, trainer: object) -> str:
    """Why no process would answer, and how the run goes on; empty if one might answer."""
    why = over(status, now)
    if not why or state_of(status, now) in ENDED:
        return why
    return f"{why}; {AGAIN.get(str(trainer), 'start its script again').format(run=run)}"


def idle(status: Mapping[str, Any], run: object, trainer: object = "stabilizer") -> str:
    """Why this run of a trainer applies no remedy, and how to allow it; empty if it may."""
    mode = status.get("remedy")
    if mode not in ("off", "suggest"):
        return ""
    how = ALLOWS.get(str(trainer), BY_YOURSELF).format(run=run)
    return f"the run has the remedy mode {mode}, so it applies no remedies; {how}"


def misplaced(kind: str, name: str | None, latest: Mapping[str, Action]) -> str:
    """Why the training process would ignore this answer; empty if it fits the newest entry of the trial."""
    if not name:
        return f"{kind} needs an action: one of {', '.join(latest) or '(there are none yet)'}"
    if name not in latest:
        return f"no action {name!r} in the journal; there are {', '.join(latest) or 'none yet'}"
    if latest[name].entry == "expired":
        return f"action {name} has expired, at step {latest[name].step:,}: {latest[name].text}"
    if kind not in ANSWERS.get(latest[name].entry, ()):
        return f"action {name} is {latest[name].entry}, so it can't be asked to {kind}"
    return ""


def leave(run: Path, kind: Kind, action: str = "", by: str = "cli", *, proposal: str = "") -> Request:
    """Leave a request. The folder must not be a link, which could point outside the run."""
    if (run / "requests").is_symlink():
        raise ValueError(f"{run / 'requests'} is a symbolic link, so nothing is written there; remove it")
    try:
        return ask(run, kind, action, by, proposal=proposal)
    except OSError as error:
        raise ValueError(f"{run / 'requests'} can't be written: {error.strerror}; check its permissions") from None


def waiting(run: Path) -> list[Request]:
    """Requests that the training process has not applied yet, oldest first, in its order."""
    return look(run).requests
