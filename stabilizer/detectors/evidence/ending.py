"""What ended a run: the failure after which nothing was trained, if there is one.

Only the end of a log can show it. An exception that a reward function survives, or a crash after which a scheduler
restarted the job, is followed by rows. A failure at the last row of the newest attempt is what stopped it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stabilizer.core.failures import kind_of
from stabilizer.core.records import Event
from stabilizer.runs.history import RunView
from stabilizer.troubles.search import Found, by_id

CONSEQUENCES = ("ChildFailedError", "RayTaskError", "SIGTERM", "collective operation timeout", "ActorDied")
"""What other processes print about a failure elsewhere."""


_MILD = re.compile(
    r".{0,60}?\b(?:INFO|WARNING|(?<!NCCL )WARN|DEBUG)\b|.{0,200}?Warning: |.{0,200}?\b[Rr]etry"
    r"|(?:.{0,20} )?\[?[WI](?:\d{3,4} | \w{1,40}\.cpp)"
)
"""A line that its writer calls no error: an exception after it explains the end better. NCCL calls its errors WARN;
torch's C++ code begins its warnings with `[W` and a date or file."""
_RAISED = re.compile(r"(?:\w{1,60}\.){0,8}\w{0,60}(?:Error|Exception|Interrupt|Exit|Timeout|Died)\b")


class Ending(NamedTuple):
    """The failure that ended a run."""

    kind: str
    message: str
    where: str
    """File and line of the log, and of the code where a traceback shows it."""
    event: Event
    harmless: str
    """Why it is no crash: all steps were done, or somebody stopped it. "" for a crash."""


def ending(view: RunView) -> Ending | None:
    """The failure after which no row came, the most likely of several; None for a run without one."""
    return view.once(_ending)


def warned(view: RunView) -> Found | None:
    """A known trouble that a warning names before an end which nothing explains."""
    mild = [event for event in view.events(("note",)) if event.step == view.step and _MILD.match(message_of(event))]
    return next((found for event in reversed(mild) if (found := trouble_of(event))), None)


def _ending(view: RunView) -> Ending | None:
    last = [
        event
        for event in view.events(("note",))
        if event.step == view.step and event.attempt == view.attempt and _kind(event) not in ("", "non-finite-gradient")
    ]
    if not last:
        return None
    event = min(last, key=_rank)
    message = message_of(event)
    return Ending(_kind(event), message, _where(event), event, _harmless(view, message))


def _kind(event: Event) -> str:
    return str(event.data.get("failure", ""))


def _rank(event: Event) -> tuple[bool, bool, bool, bool, int]:
    """Causes before consequences, errors before warnings, named kinds before plain exceptions, what was raised before
    remarks about the environment, then the first."""
    message = message_of(event)
    trouble = trouble_of(event)
    follows = trouble.trouble.consequence if trouble else any(word in message for word in CONSEQUENCES)
    plain = trouble is None and kind_of(message) == "traceback"
    return follows, bool(_MILD.match(message)), plain, _remark(event, trouble), event.data.get("line", 0)


def _remark(event: Event, found: Found | None) -> bool:
    """Whether a program goes on after such a line: an installer's or a package's complaint, printed and not raised."""
    if found is None or found.trouble.consequence or "raised" in event.data or _RAISED.match(message_of(event)):
        return False
    trouble = found.trouble
    return trouble.kind == "config-error" or (trouble.kind == "infrastructure" and trouble.certainty != "certain")


def message_of(event: Event) -> str:
    """The message of a failure or a note."""
    return str(event.data.get("message") or event.text)


def trouble_of(event: Event) -> Found | None:
    """The known trouble that shows in a failure or a note."""
    trouble = by_id().get(str(event.data.get("trouble", "")))
    values = event.data.get("values")
    return Found(trouble, dict(values) if isinstance(values, dict) else {}) if trouble else None


def _where(event: Event) -> str:
    places = []
    if "line" in event.data:
        places.append(f"{event.data.get('file', 'the log')}, line {event.data['line']}")
    if raised := event.data.get("raised"):
        places.append(f"raised in {raised}")
    return "; ".join(places)


def _harmless(view: RunView, message: str) -> str:
    planned = view.about("steps")
    if isinstance(planned, int) and 0 < planned <= view.step:
        return f"all {planned:,} planned steps were done"
    if last := view.about("ended"):
        return f"its trainer had finished: {last}"
    if "KeyboardInterrupt" in message or "SIGTERM" in message:
        return "it was stopped from outside"
    return ""
