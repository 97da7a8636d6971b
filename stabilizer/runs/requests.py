"""User requests to a live run: each is applied exactly once and journaled. Viewers create nothing else in a run.

A dashboard, the command line or a webhook leaves a request (approve, reject, revert, pause, resume, set a knob, carry
out an order). The training process applies it, journals it under the id of the request, and only then removes the file.
So a request survives a crash of either side. Its file appears whole or not at all, and nothing is locked.

A file must be a regular file of modest size that belongs to the owner of the run, to the user who trains, or to root.
Any other file is left in place and reported.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

import orjson

from stabilizer.core import json_text

Kind = Literal["approve", "reject", "revert", "pause", "resume", "set", "do"]
MAX_BYTES = 64 * 1024
MAX_TAKEN = 100
"""Requests taken at once, so that thousands of them can't delay a training step."""
MAX_OPENED = 1000
"""Files that are opened at once: most of a flood of files are no requests."""
LIFE = 500
"""Steps for which a proposal waits for an answer. After them the run has changed too much for it."""
MAX_WORDS = 200
"""Characters of an action or a name that are kept."""

NO_REQUEST = "no request: it must be a JSON object with the texts kind, action and by, and t in seconds"

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `action` is the id of a trial in the journal; for `set` it is knob=value, for `do` an order.

    `proposal`, where given, is the hash of the journal entry that is answered. The answer holds for that entry alone.
    """

    id: str
    kind: Kind
    action: str
    by: str
    t: float
    proposal: str = ""


@dataclass
class Seen:
    """The contents of the folder at one time."""

    requests: list[Request] = field(default_factory=list)
    """Oldest first. They stay in the folder until `settle`."""
    refused: dict[str, str] = field(default_factory=dict)
    """Names of files that are not accepted as requests, and why."""


def ask(
    run: Path, kind: Kind, action: str = "", by: str = "cli", *, proposal: str = "", id: str | None = None
) -> Request:
    """Leave a request for the training process of `run`. The same `id` (32 hexadecimal digits) is one request."""
    request = Request(id or uuid.uuid4().hex, kind, action[:MAX_WORDS], by[:MAX_WORDS], time.time(), proposal)
    if not _ID.fullmatch(request.id):
        raise ValueError(f"{request.id!r}: a request's id is 32 hexadecimal digits")
    folder = run / "requests"
    folder.mkdir(exist_ok=True)
    temporary = folder / f".{request.id}.tmp"
    row = {"id": request.id, "kind": kind, "action": request.action, "by": request.by, "t": request.t}
    row |= {"proposal": proposal} if proposal else {}
    with open(temporary, "wb") as file:
        file.write(orjson.dumps(row) + b"\n")
        file.flush()
        os.fsync(file.fileno())  # the caller reports that the request will be applied
    os.replace(temporary, folder / f"{request.id}.json")
    return request


def look(run: Path, known: Collection[str] = ()) -> Seen:
    """For the training process: requests whose file names are not `known`, at most `MAX_TAKEN` of them, oldest first.

    Nothing raises, and nothing is removed: `settle` does that after a request was applied.
    """
    seen = Seen()
    folder = run / "requests"
    try:
        trusted = {os.geteuid(), run.stat().st_uid, 0}
        if folder.is_symlink():
            return Seen(refused={} if "requests" in known else {"requests": "the folder is a symbolic link"})
    except OSError:
        return seen
    for name in _oldest(folder, known):
        request = _read(folder / name, trusted)
        if isinstance(request, str):
            seen.refused[name] = request
        elif len(seen.requests) < MAX_TAKEN:
            seen.requests.append(request)
    seen.requests.sort(key=lambda request: request.t)
    return seen


def settle(run: Path, request: Request) -> bool:
    """Remove a request that was applied or refused, and journaled. False when it can't be removed."""
    try:
        (run / "requests" / f"{request.id}.json").unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _oldest(folder: Path, known: Collection[str]) -> list[str]:
    """Names of at most `MAX_OPENED` new files, oldest first."""
    ages: list[tuple[int, str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.name.endswith(".json") and entry.name[0] != "." and entry.name not in known:
                        ages.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
                if len(ages) >= MAX_OPENED:
                    break
    except OSError:
        pass
    return [name for _, name in sorted(ages)]


def _read(path: Path, trusted: set[int]) -> Request | str:
    """The request in a file, or why it is not accepted. The file is opened once: what is checked is what is read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return "a symbolic link" if path.is_symlink() else f"can't be read: {error.strerror}"
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return "not a plain file"
        if status.st_uid not in trusted:
            return f"belongs to user {status.st_uid}, who may not make requests to this run"
        if status.st_size > MAX_BYTES:
            return f"larger than {MAX_BYTES} bytes"
        return _decode(path.stem, json_text.loads(os.read(handle, MAX_BYTES)))
    except json_text.NestedTooDeep as error:
        return f"no request: {error}"
    except (OSError, ValueError):
        return NO_REQUEST
    finally:
        os.close(handle)


def _decode(id: str, row: Any) -> Request | str:
    if not isinstance(row, dict):
        return NO_REQUEST
    kind, t = row.get("kind"), row.get("t")
    action, by, proposal = (row.get(name, "") for name in ("action", "by", "proposal"))
    if not all(isinstance(word, str) for word in (kind, action, by, proposal)):
        return NO_REQUEST
    if isinstance(t, bool) or not isinstance(t, (int, float)) or not math.isfinite(t):
        return NO_REQUEST
    if kind not in get_args(Kind):
        return f"asks for {str(kind)[:40]!r}, which does not exist; there are {', '.join(get_args(Kind))}"
    return Request(id, cast(Kind, kind), action[:MAX_WORDS], by[:MAX_WORDS], float(t), proposal[:MAX_WORDS])
