"""Known trouble: a warning or error in the log whose cause and fix are known, in a run that goes on."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import SEVERITIES, Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.ending import ending, message_of, trouble_of
from stabilizer.runs.history import RunView
from stabilizer.troubles.search import Found
from stabilizer.troubles.trouble import CERTAINTY

MOST = 3
"""Troubles that one summary names."""


@dataclass(frozen=True, kw_only=True)
class KnownTrouble(Detector):
    """The log holds a message of the catalogue of known troubles, and the run did not end with it.

    Signature
        A line of the log fits an entry of the catalogue (`stabilizer/troubles/`): a warning, or an error that the run
        survived. The gravest is named, with its cause and a fix in the numbers of the message.

    Why it matters
        Trainers and engines print the reason of many failures steps before a metric shows it, among thousands of lines:
        prompts padded on the wrong side, a verifier that raises in a thread, an engine that throws sequences out.

    Look-alikes
        A message that ended the run is `system/crashed` or `system/config-error`. A message that is printed often and
        harms nothing is `info`.

    False alarms
        A message quoted in an answer or in documentation is mistaken for one.

    Remedies
        `mend-the-program` or `fix-config`, with the change that the entry names.

    References
        Each entry names its public thread or the source file that prints the message.
    """

    id = "system/known-trouble"
    needs = ()
    confirm = 1
    at_end = True

    def check(self, view: RunView) -> Finding | None:
        end = ending(view)
        known = [
            (found, event)
            for event in view.events(("note",))
            if (found := trouble_of(event)) and not (end and event is end.event)
        ]
        if end is not None:  # what came with the end is its consequence
            known = [(found, event) for found, event in known if "failure" not in event.data]
        if not known:
            return None
        found, event = max(known, key=lambda one: SEVERITIES.index(_severity(one[0])))
        one, others = (
            found.trouble,
            list(dict.fromkeys(f.trouble.id for f, _ in known if f.trouble is not found.trouble)),
        )
        cause, fix = one.explained(found.values)
        more = f" Also: {', '.join(others[: MOST - 1])}." if others else ""
        return self.finding(
            view, _severity(found), event.step,
            f"{cause}. From the log: {message_of(event).rstrip('.')}.{more}",
            cause=one.kind, what=cause, next=fix, message=message_of(event), trouble=one.id,
            confidence=CERTAINTY[one.certainty], source=one.source,
            **{key: event.data[key] for key in ("file", "line") if key in event.data},
        )  # fmt: skip


def _severity(found: Found) -> Severity:
    """A trouble that ends a run did not end this one."""
    return "info" if found.trouble.severity == "critical" else found.trouble.severity
