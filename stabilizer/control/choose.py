"""Which fix comes next for an incident, if any: a pure function of the situation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stabilizer.control.budget import MAX_FAILURES, Refusal, quiet_hours, resting
from stabilizer.core.records import Cause
from stabilizer.remedies import LOWER_LR, RESTORE, ROLL_BACK, fitting
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.evidence import leapt_far
from stabilizer.remedies.going_back import returns
from stabilizer.remedies.situation import OUTSIDE, Situation
from stabilizer.remedies.urgency import DIVERGENCE, rank

SUGGESTIONS = 3
"""Proposals for one incident where nothing is carried out: more would be a list and no advice."""
LIKELY = 0.5
"""Confidence of a cause from which it is more likely than not."""


@dataclass(frozen=True)
class Proposal:
    """A fix for an incident, and what is to be done with it."""

    remedy: Remedy
    change: Change
    onset: int
    handling: Literal["suggest", "ask", "apply"]
    """`suggest`: write it down and go on to the next. `ask`: wait for a person. `apply`: make it, if it is allowed."""
    withheld: str = ""
    """Why an automatic mode only suggests it; empty where it does not, or the mode never applies such a fix."""


def choose(now: Situation) -> Proposal | Refusal:
    """The first remedy that fits a situation and was not tried for it, or why there is none."""
    if not now.members:
        return Refusal("no-need", "nothing of the incident calls for a fix")
    if why := _left_alone(now):
        return Refusal("limit", why)
    remedies = candidates(now)
    spare = now.mode == "auto-full" and now.memory.failures[now.incident] and not now.critical
    if spare and any(remedy.rollback for remedy in remedies):
        return Refusal("limit", "the last trial is kept for going back, should it come to damage")
    for remedy in remedies:
        if found := _fitting(remedy, now):
            return found
    return Refusal("outdated", "no remedy fits that was not tried")


def _fitting(remedy: Remedy, now: Situation) -> Proposal | None:
    """The proposal of a remedy; None where it was tried, objects, or can't help this run."""
    if (now.tried(remedy.id) and remedy.id != now.asked) or remedy.objection(now):
        return None
    onset = remedy.onset(now)
    change = change_of(remedy, now, onset)
    return None if change is None else proposal(remedy, change, onset, now)


def _left_alone(now: Situation) -> str:
    """Why nothing is begun for the incident for now, whatever would fit it."""
    if now.mode == "suggest" and sum(incident == now.incident for incident, _ in now.memory.proposed) >= SUGGESTIONS:
        return f"{SUGGESTIONS} fixes were suggested"
    if now.memory.failures[now.incident] >= MAX_FAILURES:
        return f"{MAX_FAILURES} fixes failed"
    if now.critical:
        return ""
    if resting(now.memory, now.view.step):
        return "a trial ended a moment ago"
    return quiet_hours(now.view) if now.acts else ""


def candidates(now: Situation) -> list[Remedy]:
    """Remedies in the order of trying; damage done by a divergence is undone first, by going back.

    Trouble outside of the trainer that shows in nothing that the policy does is not in its weights.
    """
    answers, returning = fitting(now.cause.id, now.view), returns(now)
    remedies = [RESTORE, *answers]
    if ROLL_BACK not in remedies and (_damaged(now, answers, returning) or now.turns(now.onset)):
        remedies.append(ROLL_BACK)  # whatever did it
    contained = now.cause.id == "undetermined" or now.cause.id in ROLL_BACK.answers
    if _diverged(now) and contained and LOWER_LR not in remedies:
        remedies.append(LOWER_LR)  # where there is no going back, smaller steps contain it
    first = now.mode == "auto-full" and returning
    return sorted(remedies, key=lambda remedy: not remedy.rollback) if first else remedies


def _diverged(now: Situation) -> bool:
    return now.critical and any(rank(finding) == DIVERGENCE for finding in now.members)


def _damaged(now: Situation, answers: list[Remedy], returning: bool) -> bool:
    """Whether weights were damaged in a way that none of the cause's own remedies mends."""
    outside, diverged = now.cause.id in OUTSIDE, _diverged(now)
    if not diverged and (outside or not returning):
        return False
    leapt = outside and diverged and leapt_far(now.view, now.onset)
    return leapt or not any(_may_mend(remedy, now.cause) for remedy in answers)


def _may_mend(remedy: Remedy, cause: Cause) -> bool:
    """Whether a fix that no person has to make could reach what was damaged."""
    by_itself = remedy.safety != "advice" and not remedy.asks and not left_to_people(remedy, cause)
    return by_itself and not remedy.harmless


def change_of(remedy: Remedy, now: Situation, onset: int) -> Change | None:
    """What a remedy would change as the knobs are now; None where it can't help this run."""
    change = remedy.given(now.cause.id, now.knobs, now.view, onset, now.memory.courses)
    return None if change is None or any(knob not in now.knobs for knob in change) else change


def proposal(remedy: Remedy, change: Change, onset: int, now: Situation) -> Proposal:
    """What the mode allows to be done with a remedy that fits."""
    withheld = left_to_people(remedy, now.cause) if now.acts and not now.puts_back(change, onset) else ""
    if remedy.safety == "advice" or withheld:
        return Proposal(remedy, change, onset, "suggest", withheld)
    if now.mode == "approve":
        return Proposal(remedy, change, onset, "ask")
    allowed = now.mode == "auto-full" or (now.mode == "auto-safe" and remedy.safety == "soft")
    return Proposal(remedy, change, onset, "apply" if allowed and not remedy.asks else "suggest")


def left_to_people(remedy: Remedy, cause: Cause) -> str:
    """Why a soft fix is proposed and not applied automatically, whatever the mode; empty where it may be.

    Turning a knob against a trouble that lies elsewhere is a guess, and every guess has a price: two runs that differ
    in anything end apart, so that about half of the fixes that do not help do harm. Slowing learning costs more, so it
    needs more than the likeliest of many causes. A fix that touches neither weights nor data is free, and a fix that
    makes harmless what it can't remove is meant for such causes.
    """
    if remedy.safety != "soft" or remedy.harmless:
        return ""
    if cause.id not in remedy.answers:
        return f"it contains the effects of {cause.id} and does not remove it"
    if cause.id in OUTSIDE and not remedy.outlived(cause.id):
        return f"{cause.id} lies outside of the trainer"
    if remedy.slows and cause.confidence < LIKELY:
        return f"it slows learning, and the cause is {cause.id} by {cause.confidence:.0%} only"
    return ""
