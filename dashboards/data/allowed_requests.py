"""The requests that a viewer may send to a run, or why there are none: the data behind the buttons.

A request is a file until the training process takes it. Between that and its entry in the journal nothing on disk
tells that somebody asked, so this server remembers what it asked itself, for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from dashboards.data.followed_run import FollowedRun, Reader
from dashboards.data.run_registry import Runs
from stabilizer.control.cost import cost
from stabilizer.core.records import Action
from stabilizer.runs import asking
from stabilizer.runs.journal import newest
from stabilizer.runs.listing import state_of
from stabilizer.runs.requests import Kind

LABELS: Mapping[str, str] = {
    "approve": "Approve",
    "reject": "Reject",
    "revert": "Revert",
    "pause": "Pause",
    "resume": "Resume",
    "snapshot": "Save a snapshot",
}
ANSWERS: tuple[Kind, ...] = ("approve", "reject", "revert")
"""Requests about one trial."""
SILENT = "No sign of life: the run reads a request only if it goes on."
REMEMBERED_S = 120.0
"""After this long without an answer on record the question may be asked again."""


@dataclass(frozen=True)
class AllowedRequest:
    """One button: what it asks for, and what must be read before it is meant."""

    kind: str
    label: str
    warning: str = ""
    cost: tuple[str, ...] = ()
    """What it would cost the run now."""


@dataclass(frozen=True)
class AllowedRequests:
    """The buttons of an action, or of the run when there is no action; what already waits, and why there are none."""

    run: str
    action: str
    offers: tuple[AllowedRequest, ...] = ()
    waits: str = ""
    refused: str = ""
    note: str = ""
    """What to know before a request is sent."""


def allowed_requests(runs: Runs, run: str, action: str = "") -> AllowedRequests:
    """The requests a run accepts now. `action` is a trial of its journal; empty for the run as a whole."""
    followed = runs.get(run)
    if followed is None:
        return AllowedRequests(run, action, refused="there is no such run")
    try:
        with followed.lock:
            reader = followed.refresh()
            found = _allowed(runs, run, followed, reader, action)
        silent = found.offers and state_of(reader.status, runs.clock()) == "stalled"
        return replace(found, note=SILENT) if silent else found
    except Exception as error:  # whatever a directory holds, the page stays up and reports it
        return AllowedRequests(
            run, action, refused=f"the run can't be read: {str(error)[:300] or type(error).__name__}"
        )


def submit(runs: Runs, run: str, kind: str, action: str = "") -> AllowedRequests:
    """Send a request if it is allowed, and return what is allowed then. Sending twice sends once."""
    followed = runs.get(run)
    if followed is None:
        return allowed_requests(runs, run, action)
    with followed.lock:  # of two presses at once the second sees the first's request
        now = allowed_requests(runs, run, action)
        if kind not in {offer.kind for offer in now.offers}:
            return now if now.waits or now.refused else replace(now, refused=_too_late(followed, kind, action))
        asked: tuple[Kind, str] = ("do", "snapshot") if kind == "snapshot" else (cast("Kind", kind), action)
        try:
            answered = {entry.action: entry.hash for entry in followed.refresh().actions}.get(action, "")
            asking.leave(followed.path, *asked, "dashboard", proposal=answered)
        except ValueError as error:
            return AllowedRequests(run, action, refused=str(error))
        stood = _situation(followed.refresh(), action, runs.clock())
        runs.asked[str(followed.path), kind, action] = (stood, runs.clock())
        return allowed_requests(runs, run, action)


def _allowed(runs: Runs, run: str, followed: FollowedRun, reader: Reader, action: str) -> AllowedRequests:
    now = runs.clock()
    if why := asking.over_and_on(reader.status, now, followed.path, reader.about.get("trainer")):
        return AllowedRequests(run, action, refused=why)
    if waits := _waits(runs, followed, reader, action, now):
        return AllowedRequests(run, action, waits=waits)
    if not action:
        kinds = ("resume" if state_of(reader.status, now) == "paused" else "pause", "snapshot")
        return AllowedRequests(run, action, tuple(AllowedRequest(kind, LABELS[kind]) for kind in kinds))
    latest = newest(reader.actions)
    view = reader.history.view()
    found: list[AllowedRequest] = []
    if action in latest and latest[action].entry == "proposed" and latest[action].safety == "advice":
        return AllowedRequests(
            run, action, refused="this is advice for a person to follow, so there is nothing to approve"
        )
    fitting = [kind for kind in ANSWERS if not asking.misplaced(kind, action, latest)]
    if "approve" in fitting and (why := asking.idle(reader.status, followed.path, reader.about.get("trainer"))):
        return AllowedRequests(run, action, refused=why)
    for kind in fitting:
        costs = cost(latest[action], view, view.step) if kind == "approve" else ()
        found.append(AllowedRequest(kind, LABELS[kind], _warning(kind, latest[action], reader.actions), costs))
    return AllowedRequests(run, action, tuple(found))


def _too_late(followed: FollowedRun, kind: str, action: str) -> str:
    """Why a proposal can't be answered any more."""
    latest = newest(followed.refresh().actions)
    return asking.misplaced(kind, action, latest) if action in latest else ""


def _waits(runs: Runs, followed: FollowedRun, reader: Reader, action: str, now: float) -> str:
    """In words, a request that was sent and is not recorded yet."""
    for request in asking.waiting(followed.path):
        kind: str = "snapshot" if request.kind == "do" and request.action == "snapshot" else request.kind
        of = "" if kind in ("pause", "resume", "snapshot") else request.action
        if kind in LABELS and of == action:
            by = f" by {request.by}" if request.by else ""
            return f"{kind} requested{by}; the run applies it at its next step"
    for (path, kind, of), (stood, t) in list(runs.asked.items()):
        if path == str(followed.path) and of == action:
            if kind != "snapshot" and stood == _situation(reader, action, now) and now - t < REMEMBERED_S:
                return f"{kind} requested; the run has received it and applies it as soon as it can"
            runs.asked.pop((path, kind, of), None)
    return ""


def _situation(reader: Reader, action: str, now: float) -> Any:
    """What changes once a request is applied: the newest entry of its trial, or the state of the run."""
    entry = newest(reader.actions).get(action) if action else None
    return (entry.n, entry.hash) if entry else state_of(reader.status, now)


def _warning(kind: str, latest: Action, actions: Sequence[Action]) -> str:
    """The warning before a hard change."""
    if kind == "reject" or latest.safety == "soft":
        return ""
    proposed = next((entry for entry in actions if entry.action == latest.action), latest)
    hypothesis = proposed.data.get("hypothesis")
    back = hypothesis.get("rollback_to") if isinstance(hypothesis, Mapping) else None
    if kind == "revert":
        return "This was a hard change: undoing it restores the knobs, but not what was learned since."
    if isinstance(back, int):
        return (
            f"The run rolls back to the state after step {back}. What it learned since is discarded; its record stays"
            " readable as an abandoned branch."
        )
    return "This is a hard change: it can't be undone completely."
