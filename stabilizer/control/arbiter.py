"""Which fix, when, and whether at all: one trial at a time, in the order that `arbitration` gives.

Two failed trials of one incident end the automatic handling of it: then a person is asked. What was spent is counted
by `limits`, and survives a restart in the journal. A trial is judged by `trial`; what it changed is put back when it
fails, and where the run got worse under it, its weights too.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from stabilizer.control.arbitration import (
    DIVERGENCE,
    HOLD_BACK,
    OUTSIDE,
    gained,
    held_out_holds,
    just_seen,
    left_to_people,
    most_urgent,
    objection,
    rank,
)
from stabilizer.control.conduct import MODES, Conduct, Host, Mode
from stabilizer.control.limits import COOLDOWN, MAX_FAILURES, quiet_hours
from stabilizer.control.trial import Trial
from stabilizer.core.knobs import Controls
from stabilizer.core.records import Action, Cause, Finding, JournalEntry
from stabilizer.detectors.evidence.progress import progress
from stabilizer.incidents.watch import MERGE, Watch
from stabilizer.remedies import LOWER_LR, REMEDIES, RESTORE, ROLL_BACK, fitting
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.evidence import leapt_far
from stabilizer.remedies.turns import LR, turns
from stabilizer.runs.history import RunView
from stabilizer.runs.requests import LIFE, Request

__all__ = ["MODES", "Arbiter", "Host", "Mode"]

SUGGESTIONS = 3
"""Proposals for one incident where nothing is carried out: more would be a list and no advice."""


@dataclass
class _Question:
    """A proposal that waits for a person."""

    trial: Trial
    approved_by: str = ""
    asked: int = 0
    """The step it was asked at."""


@dataclass(frozen=True)
class Need:
    """An incident that something is to be done about."""

    number: int
    members: list[Finding]
    """Findings that count: neither information nor what a fix has made harmless."""
    cause: Cause
    onset: int
    critical: bool


def _may_mend(remedy: Remedy, cause: Cause) -> bool:
    """Whether a fix that no person has to make could reach what was damaged."""
    by_itself = remedy.safety != "advice" and not remedy.asks and not left_to_people(remedy, cause)
    return by_itself and not remedy.harmless


class Arbiter(Conduct):
    """The remedy side of one run. `tick` after every step, at the step boundary; it never raises for a failed fix."""

    def __init__(
        self, mode: Mode, controls: Controls, watch: Watch, host: Host, earlier: Iterable[Action] = (), *,
        fork_steps: int = 0,
    ):  # fmt: skip
        super().__init__(mode, controls, watch, host, fork_steps)
        self._questions: dict[str, _Question] = {}
        self._take_over(list(earlier))

    def tick(self, view: RunView, requests: Iterable[Request] = ()) -> None:
        """Judge the running trial, heed requests, and see whether something should be tried."""
        for request in requests:
            self._heed(request, view)
        if self.mode == "off":
            return
        self._hold(view)
        if self.trial:
            self._follow(view)
            return
        self._expire(view)
        if self._apply_approved(view):
            return
        self.limits.rest = max(0, self.limits.rest - 1)
        if not self.limits.rest:
            self._let_go(view)
        incident = most_urgent(self.watch.active())
        if incident is not None:
            self._serve(incident, view)

    # --- choosing ---------------------------------------------------------------------------------------------------

    def _serve(self, number: int, view: RunView) -> None:
        """Make, or propose, the first fix that an incident calls for and that may be made; one question at a time."""
        need = self._need(number, view)
        asked = self._asked(number)
        if need is None or (asked and not self._worth_asking_anew(asked, need.critical, view)):
            return
        for remedy, change in self._worth_trying(need, view):
            if asked and remedy is asked.trial.remedy:
                return  # still the first thing to do
            if asked and remedy.safety != "advice":
                self._withdraw(asked, need, view, instead=remedy.id)
                asked = None
            if self._consider(remedy, change, need, view):
                return
        if asked:
            self._withdraw(asked, need, view)

    def _need(self, number: int, view: RunView) -> Need | None:
        """What an incident calls for; None where it is to be left alone for now."""
        members = self._standing(number)
        incident, critical = self.watch.incident(number), any(f.severity == "critical" for f in members)
        if not members or not incident.causes or self._suggested_enough(number):
            return None
        if self.limits.failures[number] >= MAX_FAILURES or (self.limits.rest and not critical):
            return None
        if self._acts and not critical and quiet_hours(view):
            return None
        return Need(number, members, incident.causes[0], incident.onset_step, critical)

    def _asked(self, number: int) -> _Question | None:
        """The proposal for an incident that waits for a person."""
        return next((question for question in self._questions.values() if question.trial.incident == number), None)

    def _worth_trying(self, need: Need, view: RunView) -> Iterator[tuple[Remedy, Change]]:
        """Remedies in the order of trying, with what each would turn: those that nothing speaks against."""
        returns = self._returns(need, view)
        remedies = self._candidates(need, view, returns=returns)
        if self.mode == "auto-full" and self.limits.failures[need.number] and not need.critical:
            if any(remedy.rollback for remedy in remedies):
                return  # the last trial is kept for going back, should it come to damage
        for remedy in remedies:
            if self._suggested_enough(need.number):
                return
            asked = self._asked(need.number)
            known = self._is_known(need.number, remedy, view) and not (asked and remedy is asked.trial.remedy)
            if known or self._speaks_against(remedy, need, view, returns=returns):
                continue
            change = self._change(remedy, need.cause.id, view, self._onset(remedy, need, view))
            if change is not None:
                yield remedy, change

    def _speaks_against(self, remedy: Remedy, need: Need, view: RunView, *, returns: bool) -> str:
        """Why a remedy is not the answer to an incident as the run stands; empty where it may be."""
        if remedy.rollback and not returns:
            return "there is no damage any more that going back would mend"
        if remedy.id == "early-stop" and not need.critical:
            return "there is no damage any more that would be a reason to stop"
        if remedy.id in HOLD_BACK and need.number in self._put_right:
            return "the settings are as they were when the run was well, and smaller steps mend no weights"
        if remedy.rollback and self._wants_proof(need, self._onset(remedy, need, view), view):
            if holds := held_out_holds(view):
                return holds
        return objection(remedy, need.cause.id, need.members, self.watch, view)

    def _is_known(self, number: int, remedy: Remedy, view: RunView) -> bool:
        """Whether it was tried for an incident, and need not be looked at anew."""
        wait = self._waits.get((number, remedy.id))
        return (number, remedy.id) in self._tried and (wait is None or view.step < wait.until)

    def _worth_asking_anew(self, asked: _Question, critical: bool, view: RunView) -> bool:
        """Whether a proposal should be held against the run as it is by now: when it came to damage, and now and then.

        Not what somebody has said yes to, and not a way back from damage while there is damage: causes told of a broken
        run change with what is left of it, and nothing less mends its weights.
        """
        worse = critical and not asked.trial.critical
        if asked.trial.remedy.rollback and critical and not worse:
            return False
        return not asked.approved_by and (worse or (view.step - asked.asked) % COOLDOWN == COOLDOWN - 1)

    def _withdraw(self, asked: _Question, need: Need, view: RunView, instead: str = "") -> None:
        """Take a proposal back that is not what should be done any more; what replaces it leaves room for it later."""
        trial = asked.trial
        if need.critical and not trial.critical:
            why = "it has come to damage since"
        elif need.cause.id != trial.cause:
            why = f"the cause is {need.cause.id} by now, and was {trial.cause} then"
        else:
            why = "the run has changed since, and it would not help any more"
        del self._questions[trial.action]
        text = f"outdated: {why}" + (f"; {instead} is proposed in its place" if instead else "")
        self._journal(trial, "expired", view.step, text)
        if instead:
            self._tried.discard((trial.incident, trial.remedy.id))

    def _returns(self, need: Need, view: RunView) -> bool:
        """Whether a checkpoint from before it may be the answer: there is damage, seen for long enough to be believed;
        or nothing was learned, so nothing is lost, since a divergence that began with a known change, or since a loss
        that nobody can explain."""
        if need.critical and not just_seen(need.members, view.step):
            return True
        lost = need.cause.id == "undetermined" and any(finding.id == "reward/collapse" for finding in need.members)
        diverged = any(rank(finding) <= DIVERGENCE for finding in need.members)
        if not (lost or diverged):
            return False
        turned = turns(view, need.onset, self.limits.courses)
        return (lost or bool(turned)) and not gained(view, min((turn.step for turn in turned), default=need.onset))

    def _onset(self, remedy: Remedy, need: Need, view: RunView) -> int:
        """What a way back has to be older than: the first sign of the incident, unless the run learned on after it, for
        then its best is from before the damage; and the damage itself, where nothing older is within reach.

        Where the reward was in doubt shortly before, neither its best nor its fall tells: the doubt has to be older.
        """
        if not remedy.rollback:
            return need.onset
        doubted = self._doubted(need.onset)
        onset = min([need.onset, *doubted])
        reward = progress(view)
        if not doubted and reward and reward.peak_step > onset and gained(view.at(reward.peak_step), onset):
            return reward.peak_step
        older = [state.step for state in self.controls.checkpoints() if state.step < onset]
        if older and not self.limits.too_dear(view.step - max(older), view):
            return onset
        return min((f.onset_step for f in need.members if f.severity == "critical"), default=onset)

    def _wants_proof(self, need: Need, onset: int, view: RunView) -> bool:
        """Whether going back takes a held-out accuracy that fell, where it is known: from a trouble that lies outside,
        which meets the weights gone back to as well, and where it throws away more than an estimate of where damage
        began may be off."""
        if need.cause.id in OUTSIDE:
            return True
        older = [state.step for state in self.controls.checkpoints() if state.step < onset]
        return bool(older) and view.step - max(older) > MERGE

    def _candidates(self, need: Need, view: RunView, *, returns: bool) -> list[Remedy]:
        """Remedies in the order of trying; damage done by a divergence is gone back from first.

        What goes on outside of the trainer, and shows in nothing that the policy does, is not in its weights.
        """
        cause = need.cause.id
        remedies = [RESTORE, *fitting(cause, view)]
        diverged = need.critical and any(rank(finding) == DIVERGENCE for finding in need.members)
        outside, leapt = cause in OUTSIDE, diverged and leapt_far(view, need.onset)
        mended = any(_may_mend(remedy, need.cause) for remedy in remedies[1:]) and not (outside and leapt)
        damaged = (diverged or (returns and not outside)) and not mended
        if ROLL_BACK not in remedies and (damaged or turns(view, need.onset, self.limits.courses)):
            remedies.append(ROLL_BACK)  # whatever did it
        if diverged and (cause == "undetermined" or cause in ROLL_BACK.answers) and LOWER_LR not in remedies:
            remedies.append(LOWER_LR)  # where there is no going back, smaller steps are what contains it
        first = self.mode == "auto-full" and returns
        return sorted(remedies, key=lambda remedy: not remedy.rollback) if first else remedies

    def _suggested_enough(self, number: int) -> bool:
        return self.mode == "suggest" and sum(incident == number for incident, _ in self._tried) >= SUGGESTIONS

    def _consider(self, remedy: Remedy, change: Change, need: Need, view: RunView) -> bool:
        """Propose a remedy and, where the mode allows, apply it. True when nothing else should be considered now."""
        onset = self._onset(remedy, need, view)
        trial = self._trial(self._next_id(), remedy, change, need.number, onset, view, need.cause.id)
        looked = (need.number, remedy.id)
        self._tried.add(looked)
        if looked in self._waits:  # over: what else may speak against it now does not pass with time
            self._waits[looked] = self._waits[looked]._replace(until=math.inf)
        text = f"{remedy.why}; expected within {trial.window} steps: {remedy.expects}"
        people = left_to_people(remedy, need.cause) if self._acts and not trial.back else ""
        text += f"; not made by itself: {people}" if people else ""
        asks = self.mode == "approve" and remedy.safety != "advice"
        won = self._wins_nothing(trial, view) if asks else ""  # whoever is asked is told what it would win
        told = self._evidence(trial) if asks and not won else {}
        self._journal(trial, "proposed", view.step, text, hypothesis=trial.hypothesis(), **told)
        if remedy.safety == "advice" or people:
            return False
        if won:
            self._journal(trial, "rejected", view.step, won, **self._evidence(trial))
            return False
        if asks:
            self._questions[trial.action] = _Question(trial, asked=view.step)
            return True
        allowed = self.mode == "auto-full" or (self.mode == "auto-safe" and remedy.safety == "soft")
        if not allowed or remedy.asks:
            return False
        if reason := self._refused(trial, view):
            self._journal(trial, "rejected", view.step, reason, **self._evidence(trial))
            if "a person should" in reason:
                self.host.declare(view.step, "note", f"{trial.action} ({remedy.id}): {reason}", incident=need.number)
            return False
        return self._apply(trial, view)

    # --- people -----------------------------------------------------------------------------------------------------

    def _heed(self, request: Request, view: RunView) -> None:
        question = self._questions.get(request.action)
        if request.kind == "approve" and question:
            question.approved_by = request.by or "somebody"  # applied as soon as no other trial is running
        elif request.kind == "reject" and question:
            del self._questions[request.action]
            self._journal(question.trial, "rejected", view.step, f"rejected by {request.by}")
        elif request.kind == "revert" and self.trial and self.trial.action == request.action:
            trial, self.trial = self.trial, None
            self.limits.lock(trial.change, view.step)
            self._revert(trial, view, f"undone by {request.by}")
            self._revert_under(trial, view)
        elif request.kind == "revert" and self._is_on_top(request.action):
            self._revert_kept(request, view)
        elif request.kind in ("approve", "reject", "revert"):
            why = "its knob was turned again since; undo that first"
            why = why if request.action in self._kept else f"nothing to {request.kind}"
            text = f"request to {request.kind} {request.action or '(nothing)'} by {request.by}: {why}"
            self.host.declare(view.step, "note", text)

    def _revert_kept(self, request: Request, view: RunView) -> None:
        change = self._kept.pop(request.action)
        self._undo(change)
        self.limits.lock(change, view.step)
        self._save_quietly(view)
        text = f"undone by {request.by}"
        self.host.journal(Action(request.action, "reverted", "by-hand", view.step, change=change, text=text))
        self.host.declare(view.step + 1, "intervention", f"{request.action} {text}", action=request.action)

    def _apply_approved(self, view: RunView) -> bool:
        """Apply what a person approved, with the knobs and checkpoints as they are now."""
        approved = next((a for a, q in self._questions.items() if q.approved_by and not self._recovers(q.trial)), None)
        if approved is None:
            return False
        question = self._questions.pop(approved)
        asked = question.trial
        if reason := self._lapsed(asked, view):
            self._lapse(question, view, reason)
            return False
        change = self._change(asked.remedy, asked.cause, view, asked.onset)
        if change is None:
            self._lapse(question, view, "the knobs have changed since it was proposed; it no longer applies")
            return False
        trial = self._trial(approved, asked.remedy, change, asked.incident, asked.onset, view, asked.cause)
        if reason := self._wins_nothing(trial, view):
            self._lapse(question, view, reason, **self._evidence(trial))
            return False
        self._apply(trial, view)
        return True

    def _recovers(self, asked: Trial) -> bool:
        """Whether nothing of what called for a fix was seen of late: then it waits until that is back, or resolved."""
        members = self._standing(asked.incident)
        return bool(members) and all(finding.state == "recovering" for finding in members)

    def _lapsed(self, asked: Trial, view: RunView) -> str:
        """Why the premises of a proposal hold no longer; empty while it would be made today as well."""
        members, incident = self._standing(asked.incident), self.watch.incident(asked.incident)
        if not members:
            only = any(finding.incident == asked.incident for finding in self.watch.active())
            over = "what is left of the incident calls for no fix" if only else "the incident is over"
            return f"{over}, so it is no longer needed"
        if asked.findings and not any(finding.id in asked.findings for finding in members):
            return f"{', '.join(asked.findings)} called for it, and no longer stands"
        if incident.causes and incident.causes[0].id != asked.cause:
            return f"the cause is {incident.causes[0].id} by now, and was {asked.cause or 'not known'} then"
        return self._unfounded(asked, members, view)

    def _unfounded(self, asked: Trial, members: list[Finding], view: RunView) -> str:
        """Why a hard remedy would not be proposed for the same incident as the run stands by now.

        A soft one that a person wants costs little and is undone if it does not help.
        """
        if asked.remedy.safety != "hard":
            return ""
        incident = self.watch.incident(asked.incident)
        cause = next((cause for cause in incident.causes if cause.id == asked.cause), Cause(asked.cause, 0.0, ""))
        critical = any(finding.severity == "critical" for finding in members)
        need = Need(asked.incident, members, cause, incident.onset_step, critical)
        returns = self._returns(need, view)
        return self._speaks_against(asked.remedy, need, view, returns=returns)

    def _lapse(self, question: _Question, view: RunView, reason: str, **data: object) -> None:
        """Put on record that a proposal expired. It may be made again if the incident calls for it again."""
        trial, by = question.trial, question.approved_by
        self._questions.pop(trial.action, None)
        text = f"approved by {by}, and not applied: {reason}" if by else reason
        self._journal(trial, "expired", view.step, text, **data)
        if "probe" not in data:  # else it is looked at again after a wait
            self._tried.discard((trial.incident, trial.remedy.id))

    def _expire(self, view: RunView) -> None:
        """Close proposals whose premises are gone, and those that nobody has answered for long."""
        standing = {finding.incident for finding in self.watch.active()} if self._questions else set()
        for question in list(self._questions.values()):
            trial, waited = question.trial, view.step - question.asked
            if trial.incident not in standing:
                self._lapse(question, view, "the incident is over, so it is no longer needed")
            elif question.approved_by:
                continue  # looked at when it is applied
            elif waited >= LIFE:
                del self._questions[trial.action]
                self._journal(trial, "expired", view.step, f"nobody answered within {LIFE} steps")
            elif trial.remedy.rollback and waited % COOLDOWN == COOLDOWN - 1:
                members = self._standing(trial.incident)
                if members and (reason := self._unfounded(trial, members, view)):
                    self._lapse(question, view, reason)

    # --- after a restart --------------------------------------------------------------------------------------------

    def _take_over(self, earlier: Sequence[Action]) -> None:
        """Know what was known; what was in flight is undone, so that no knob differs from what the journal says."""
        self.limits.recall(earlier)
        held = {action.action: float(action.data["holds"]) for action in earlier if "holds" in action.data}
        latest: dict[str, Action] = {}
        for action in earlier:
            latest[action.action] = action
            self._actions = max(self._actions, int(action.action.removeprefix("a") or 0))
            self._tried.add((action.incident, action.remedy))
            if "released" in action.data:
                self._released.add(action.remedy)
            nothing_won = action.entry == "rejected" and "probe" in action.data
            if "released" in action.data or "interrupted" in action.data or nothing_won:
                self._tried.discard((action.incident, action.remedy))
        cut = [action for action in latest.values() if action.entry in ("applied", "approved")]
        for action in reversed(cut):  # newest first: one may have been built on another
            self._undo(dict(action.change))
        if cut:  # before the journal says so: a second crash must not bring the change back
            with contextlib.suppress(OSError):
                self.controls.snapshot()
        for action in latest.values():
            if action.entry == "verified":
                if came := action.data.get("came"):
                    self._came[action.incident] = int(came)
                self._restored = action.data.get("restored", self._restored)
                self._outlived |= {(action.incident, str(name)) for name in action.data.get("outlived", ())}
                if action.remedy == RESTORE.id:
                    self._put_right.add(action.incident)
                self._kept[action.action] = dict(action.change)
                if action.action in held and LR in action.change:
                    self._held.begin(action.action, held[action.action], action.change[LR])
                remedy = next((remedy for remedy in REMEDIES if remedy.id == action.remedy), None)
                if remedy is not None and (against := action.data.get("against")):
                    self._holding[action.action] = Trial(
                        action.action, remedy, action.incident, int(against["onset"]), False, dict(action.change),
                        cause=str(against["cause"]),
                    )  # fmt: skip
            elif action.entry in ("applied", "approved"):
                self._tried.discard((action.incident, action.remedy))
                made = (
                    "during the trial, so the change was"
                    if action.entry == "applied"
                    else "while it was made, so it was"
                )
                entry: JournalEntry = "reverted" if action.entry == "applied" else "failed"
                self._close(action, entry, f"the run was interrupted {made} undone")
            elif action.entry == "proposed" and self.mode != "suggest" and action.safety != "advice":
                self._tried.discard((action.incident, action.remedy))
                self._close(action, "expired", "the run was restarted; it will be proposed again if the need remains")

    def _close(self, action: Action, entry: JournalEntry, text: str) -> None:
        self.host.journal(replace(action, entry=entry, text=text, data={"interrupted": True}))
