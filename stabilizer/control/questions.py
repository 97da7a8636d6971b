"""Proposals that wait for a person: opened, answered, and withdrawn once they no longer fit the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabilizer.control.budget import COOLDOWN
from stabilizer.control.context import Context
from stabilizer.control.trial import Trial
from stabilizer.core.records import Cause, Finding, Reason
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView
from stabilizer.runs.requests import LIFE


@dataclass
class Question:
    """A proposal that waits for a decision."""

    trial: Trial
    approved_by: str = ""
    asked: int = 0
    """The step at which it was opened."""


class Questions:
    """The open proposals of one run, by action."""

    def __init__(self, context: Context):
        self._context = context
        self._record = context.ledger.record
        self.open: dict[str, Question] = {}

    def ask(self, trial: Trial, step: int) -> None:
        """Open a proposal that is in the journal."""
        self.open[trial.action] = Question(trial, asked=step)

    def about(self, incident: int) -> Question | None:
        """The proposal for an incident that waits for a person."""
        return next((question for question in self.open.values() if question.trial.incident == incident), None)

    def approve(self, action: str, by: str) -> bool:
        """Record an approval: the fix is applied as soon as no other trial runs. False if no such proposal waits."""
        if question := self.open.get(action):
            question.approved_by = by or "somebody"
        return question is not None

    def reject(self, action: str, by: str, step: int) -> bool:
        """Close a proposal that was rejected. False if no such proposal waits."""
        if question := self.open.pop(action, None):
            self._record(question.trial, "rejected", step, f"rejected by {by}", "person")
        return question is not None

    def approved(self) -> Question | None:
        """An approved proposal that can be applied now."""
        return next((q for q in self.open.values() if q.approved_by and not self._recovers(q.trial)), None)

    def _recovers(self, asked: Trial) -> bool:
        """Whether all findings behind a fix are recovering: then an approval waits until they are back or resolved."""
        members = self._context.members(asked.incident)
        return bool(members) and all(finding.state == "recovering" for finding in members)

    def withdraw(self, asked: Question, now: Situation, instead: str = "") -> None:
        """Withdraw a proposal that should not be carried out any more. It may be proposed again after its
        replacement."""
        trial = asked.trial
        if now.critical and not trial.critical:
            why = "there has been damage since"
        elif now.cause.id != trial.cause:
            why = f"the cause is now {now.cause.id} and was {trial.cause} then"
        else:
            why = "the run has changed since, so it would no longer help"
        del self.open[trial.action]
        text = f"outdated: {why}" + (f"; {instead} is proposed in its place" if instead else "")
        self._record(trial, "expired", now.view.step, text, "replaced" if instead else "outdated")

    def lapse(self, question: Question, step: int, text: str, reason: Reason = "no-need", **data: object) -> None:
        """Record that a proposal expired. It may be proposed again if the incident needs it."""
        trial, by = question.trial, question.approved_by
        self.open.pop(trial.action, None)
        text = f"approved by {by} but not applied: {text}" if by else text
        self._record(trial, "expired", step, text, reason, **data)

    def lapsed(self, asked: Trial, view: RunView) -> str:
        """Why a proposal would no longer be made; empty if it still would."""
        members = self._context.members(asked.incident)
        if not members:
            only = any(finding.incident == asked.incident for finding in self._context.watch.active())
            over = "the rest of the incident needs no fix" if only else "the incident is over"
            return f"{over}, so it is no longer needed"
        if asked.findings and not any(finding.id in asked.findings for finding in members):
            return f"{', '.join(asked.findings)} needed it and is resolved"
        return self._other_cause(asked) or self._unfounded(asked, view)

    def _other_cause(self, asked: Trial) -> str:
        """Why another cause makes a proposal pointless. An undeclared change is the suspect whatever the cause is."""
        causes = self._context.watch.incident(asked.incident).causes
        if asked.back or not causes or causes[0].id == asked.cause:
            return ""
        return f"the cause is now {causes[0].id} and was {asked.cause or 'unknown'} then"

    def _unfounded(self, asked: Trial, view: RunView) -> str:
        """Why a hard remedy would no longer be proposed for its incident.

        An approved soft remedy costs little and is undone if it does not help.
        """
        if asked.remedy.safety != "hard":
            return ""
        if asked.target and asked.target.step not in {state.step for state in self._context.controls.checkpoints()}:
            return f"the checkpoint of step {asked.target.step:,}, to which it would return, is gone"
        causes = self._context.watch.incident(asked.incident).causes
        cause = next((cause for cause in causes if cause.id == asked.cause), Cause(asked.cause, 0.0, ""))
        return asked.remedy.objection(self._context.situation(asked.incident, view, cause=cause)) or ""

    def expire(self, view: RunView) -> None:
        """Close proposals that are no longer needed, and those without an answer for too long."""
        unresolved: Sequence[Finding] = self._context.watch.active() if self.open else ()
        incidents = {finding.incident for finding in unresolved}
        for question in list(self.open.values()):
            if question.trial.incident not in incidents:
                self.lapse(question, view.step, "the incident is over, so it is no longer needed")
            elif question.approved_by:
                continue  # checked when it is applied
            elif view.step - question.asked >= LIFE:
                self.lapse(question, view.step, f"nobody answered within {LIFE} steps", "unanswered")
            elif why := self._outgrown(question, view):
                self.lapse(question, view.step, why)

    def _outgrown(self, question: Question, view: RunView) -> str:
        """Why a waiting rollback would no longer be proposed, checked at intervals; empty if it still would."""
        trial, waited = question.trial, view.step - question.asked
        due = trial.remedy.rollback and waited % COOLDOWN == COOLDOWN - 1
        return self._unfounded(trial, view) if due and self._context.members(trial.incident) else ""


def worth_asking_again(asked: Question, critical: bool, step: int) -> bool:
    """Whether to compare a proposal with the current run: once there is damage, and at intervals.

    An approved proposal is not compared, nor is a rollback while there is damage: the likely causes of a broken run
    change as it decays, and only a rollback repairs its weights.
    """
    worse = critical and not asked.trial.critical
    if asked.trial.remedy.rollback and critical and not worse:
        return False
    return not asked.approved_by and (worse or (step - asked.asked) % COOLDOWN == COOLDOWN - 1)
