"""Whether a run would heed a request, and why not: one set of rules for the command line and for the dashboard.

Nothing here writes but `leave`, and it writes nothing but a request.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from stabilizer.records import Action
from stabilizer.runs.listing import state_of, writer_lives
from stabilizer.runs.requests import MAX_BYTES, MAX_TAKEN, Kind, Request, ask

ANSWERS: Mapping[str, tuple[Kind, ...]] = {
    "proposed": ("approve", "reject"),
    "applied": ("revert",),
    "verified": ("revert",),
}
"""Which answers an action takes, by its newest entry."""


def over(status: Mapping[str, Any], now: float) -> str:
    """Why nothing would answer; empty when somebody might. A run in a long step has no heartbeat, and still answers."""
    state = state_of(status, now)
    busy = state == "stalled" and writer_lives(dict(status)) is not False
    return "" if busy or state in ("running", "paused") else f"the run is {state}, so nothing would answer"


def idle(status: Mapping[str, Any], run: object) -> str:
    """Why this run carries out no fix, and how it would; empty when it may."""
    mode = status.get("remedy")
    if mode not in ("off", "suggest"):
        return ""
    return (
        f"the run has --remedy {mode}, so it carries nothing out; stop it and go on with"
        f" `stabilizer train --resume {run} --remedy approve`"
    )


def misplaced(kind: str, name: str | None, latest: Mapping[str, Action]) -> str:
    """Why the training process would have to ignore this answer; empty when it fits the action's newest entry."""
    if not name:
        return f"{kind} needs an action: one of {', '.join(latest) or '(there are none yet)'}"
    if name not in latest:
        return f"no action {name!r} in the journal; there are {', '.join(latest) or 'none yet'}"
    if kind not in ANSWERS.get(latest[name].entry, ()):
        return f"action {name} is {latest[name].entry}, so it can't be asked to {kind}"
    return ""


def leave(run: Path, kind: Kind, action: str = "", by: str = "cli", *, proposal: str = "") -> Request:
    """Leave a request, in a folder that is one: a link in its place could lead a viewer's hand out of the run."""
    if (run / "requests").is_symlink():
        raise ValueError(f"{run / 'requests'} is a symbolic link, so nothing is written there; remove it")
    try:
        return ask(run, kind, action, by, proposal=proposal)
    except OSError as error:
        raise ValueError(f"{run / 'requests'} can't be written: {error.strerror}; check the folder's rights") from None


def waiting(run: Path) -> list[Request]:
    """Requests the training process has not taken yet, oldest first. Reads at most `MAX_TAKEN`; nothing raises."""
    found = []
    try:
        with os.scandir(run / "requests") as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".json")]
    except OSError:
        return []
    for name in sorted(names)[:MAX_TAKEN]:
        request = _request(run / "requests" / name)
        if request is not None:
            found.append(request)
    return sorted(found, key=lambda request: request.t)


def _request(path: Path) -> Request | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return None
        row = orjson.loads(os.read(handle, MAX_BYTES))
        words = {name: str(row.get(name, ""))[:200] for name in ("kind", "action", "by")}
        return Request(path.stem, words["kind"], words["action"], words["by"], float(row["t"]))  # type: ignore[arg-type]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
    finally:
        os.close(handle)
