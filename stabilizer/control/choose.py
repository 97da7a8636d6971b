"""Chooses the next fix for an incident, if any: a pure function of the situation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from stabilizer.control.budget import MAX_FAILURES, Refusal, quiet_hours, resting, warming_up
from stabilizer.core.records import Cause
from stabilizer.remedies import LIKELY, LOWER_LR, RESTORE, ROLL_BACK, fitting
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.evidence import leapt_far
from stabilizer.remedies.going_back import returns
from stabilizer.remedies.situation import OUTSIDE, Mode, Situation
from stabilizer.remedies.urgency import DIVERGENCE, rank

SUGGESTIONS = 3
"""Most proposals for one incident in a mode that applies nothing; a longer list would not be useful advice."""


@dataclass(frozen=True)
class Proposal:
    """A fix for an incident, and how to handle it."""

    remedy: Remedy
    change: Change
    onset: int
    handling: Literal["suggest", "ask", "apply"]
    """`suggest`: record it and continue with the next. `ask`: wait for a person. `apply`: make the change, if it is
    allowed."""
    withheld: str = ""
    """Why an automatic mode only suggests it; empty if it applies it, or never applies such a fix."""


def choose(now: Situation) -> Proposal | Refusal:
    """The first untried remedy that fits a situation, or why there is none."""
    if not now.members:
        return Refusal("no-need", "no finding of the incident needs a fix")
    if why := _left_alone(now):
        return Refusal("limit", why)
    remedies = candidates(now)
    spare = now.mode == "auto-full" and now.memory.failures[now.incident] and not now.critical
    if spare and any(remedy.rollback for remedy in remedies):
        return Refusal("limit", "the last trial is reserved for a rollback, in case of damage")
    for remedy in remedies:
        if found := _fitting(remedy, now):
            return found
    return _nothing_fits(now)


def _nothing_fits(now: Situation) -> Refusal:
    waits = _warming(now)
    return Refusal("limit", waits) if waits else Refusal("outdated", "no untried remedy fits")


def _warming(now: Situation) -> str:
    """Why an automatic mode changes only what does not depend on the rate; empty if it may change anything."""
    return warming_up(now.view) if now.acts and not now.critical else ""


def _fitting(remedy: Remedy, now: Situation) -> Proposal | None:
    """The proposal of a remedy; None if it was tried, objects or can't help this run."""
    if _passed_over(remedy, now) or remedy.objection(now):
        return None
    onset = remedy.onset(now)
    change = change_of(remedy, now, onset)
    return None if change is None else proposal(remedy, change, onset, now)


def _passed_over(remedy: Remedy, now: Situation) -> bool:
    """Whether it was tried already, or has to wait until the learning rate has warmed up."""
    tried = now.tried(remedy.id) and remedy.id != now.asked
    shown_by = remedy.in_warm_up.get(now.cause.id)
    shown = any(finding.id == shown_by for finding in now.members)
    return tried or (not shown and bool(_warming(now)))


def _left_alone(now: Situation) -> str:
    """Why no fix is started for the incident for now, even if one fits."""
    if now.mode == "suggest" and sum(incident == now.incident for incident, _ in now.memory.proposed) >= SUGGESTIONS:
        return f"{SUGGESTIONS} fixes were suggested"
    if now.memory.failures[now.incident] >= MAX_FAILURES:
        return f"{MAX_FAILURES} fixes failed"
    restoring = now.incident, RESTORE.id
    if restoring in now.memory.waits and now.tried(RESTORE.id):
        return "the run still learned under a changed setting"
    if now.critical:
        return ""
    if resting(now.memory, now.view.step):
        return "a trial ended too recently"
    return quiet_hours(now.view) if now.acts else ""


def candidates(now: Situation) -> list[Remedy]:
    """Remedies in the order of trying; damage from a divergence needs a rollback first.

    A fault outside of the trainer that has no effect on the policy's behaviour is not in its weights.
    """
    answers, returning = fitting(now.cause.id, now.view), returns(now)
    remedies = [RESTORE, *answers]
    if ROLL_BACK not in remedies and (_damaged(now, answers, returning) or now.turns(now.onset)):
        remedies.append(ROLL_BACK)  # whatever the cause
    contained = now.cause.id == "undetermined" or now.cause.id in ROLL_BACK.answers
    if _diverged(now) and contained and LOWER_LR not in remedies:
        remedies.append(LOWER_LR)  # without a checkpoint to return to, smaller steps limit the damage
    first = now.mode == "auto-full" and returning
    return sorted(remedies, key=lambda remedy: not remedy.rollback) if first else remedies


def _diverged(now: Situation) -> bool:
    return now.critical and any(rank(finding) == DIVERGENCE for finding in now.members)


def _damaged(now: Situation, answers: list[Remedy], returning: bool) -> bool:
    """Whether the weights are damaged in a way that no remedy of the cause repairs."""
    outside, diverged = now.cause.id in OUTSIDE, _diverged(now)
    if not diverged and (outside or not returning):
        return False
    leapt = outside and diverged and leapt_far(now.view, now.onset)
    return leapt or not any(_may_mend(remedy, now.cause) for remedy in answers)


def _may_mend(remedy: Remedy, cause: Cause) -> bool:
    """Whether a fix without a person could repair the damage."""
    by_itself = remedy.safety != "advice" and not remedy.asks and not left_to_people(remedy, cause)
    return by_itself and not remedy.harmless


def change_of(remedy: Remedy, now: Situation, onset: int) -> Change | None:
    """The change of a remedy with the current knobs; None if it can't help this run."""
    change = remedy.given(now.cause.id, now.knobs, now.view, onset, now.memory.courses)
    return None if change is None or any(knob not in now.knobs for knob in change) else change


def proposal(remedy: Remedy, change: Change, onset: int, now: Situation) -> Proposal:
    """How the mode handles a remedy that fits."""
    withheld = left_to_people(remedy, now.cause) if now.acts and not now.puts_back(change, onset) else ""
    if remedy.safety == "advice" or withheld:
        return Proposal(remedy, change, onset, "suggest", withheld)
    if now.mode == "approve":
        return Proposal(remedy, change, onset, "ask")
    return Proposal(remedy, change, onset, "apply" if _applies(remedy, change, now.mode, now.restarts) else "suggest")


def _applies(remedy: Remedy, change: Change, mode: Mode, restarts: Collection[str]) -> bool:
    """Whether an automatic mode makes a change; one that takes a restart is as hard as a hard fix."""
    soft = remedy.safety == "soft" and not any(knob in restarts for knob in change)
    return not remedy.asks and (mode == "auto-full" or (mode == "auto-safe" and soft))


def left_to_people(remedy: Remedy, cause: Cause) -> str:
    """Why a soft fix is proposed and not applied automatically, whatever the mode; empty if it may be applied.

    A change of a knob against a fault elsewhere is a guess, and guesses cost accuracy: any change makes a run diverge
    from its former path, so about half of the fixes that do not help do damage. Slower learning costs more, so it needs
    a cause that is more than suspected. A fix that changes neither weights nor data is free. A fix that makes a fault
    harmless without removing it is intended for such causes.
    """
    if remedy.safety != "soft" or remedy.harmless:
        return ""
    if cause.id not in remedy.answers:
        return f"it limits the effects of {cause.id} but does not remove it"
    if cause.id in OUTSIDE and not remedy.outlived(cause.id):
        return f"{cause.id} lies outside of the trainer"
    if remedy.slows and (cause.doubt or cause.confidence < LIKELY):
        return f"it slows learning, and {cause.id} is only suspected ({cause.doubt or f'{cause.confidence:.0%}'})"
    return ""
