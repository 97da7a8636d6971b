"""Whether, and to before what, a run should return to a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.detectors.evidence.progress import progress
from stabilizer.remedies.objections import held_out_holds
from stabilizer.remedies.situation import IN_DOUBT, OUTSIDE, Situation
from stabilizer.remedies.urgency import DIVERGENCE, just_seen, rank
from stabilizer.runs.history import RunView

GAIN = 10
"""Rows on either side that say whether anything was gained."""
FAR = 50
"""Steps that may be thrown away without proof: about what an estimated onset is uncertain by."""
DOUBT_LASTS = 20
"""Steps after a finding was last seen for which it still puts the reward in doubt."""


def returns(now: Situation) -> bool:
    """Whether a checkpoint from before the incident may be the answer.

    There is damage, seen for long enough to be believed; or nothing was learned, so nothing is lost, since a divergence
    that began with a known change, or since a loss without an explanation.
    """
    if now.critical and not just_seen(now.members, now.view.step):
        return True
    lost = now.cause.id == "undetermined" and any(finding.id == "reward/collapse" for finding in now.members)
    if not (lost or any(rank(finding) <= DIVERGENCE for finding in now.members)):
        return False
    turned = now.turns(now.onset)
    return (lost or bool(turned)) and not gained(now.view, min((turn.step for turn in turned), default=now.onset))


def gained(view: RunView, since: int) -> bool:
    """Whether the reward since a step is above what it was in the rows before, by more than its noise explains."""
    reward = progress(view)
    if reward is None:
        return False
    before = view.series(reward.metric).between(0, since - 1).finite().last(GAIN).values
    after = view.series(reward.metric).between(since, view.step).finite().last(GAIN).values
    if not len(before) or not len(after):
        return False
    noise = reward.noise * np.sqrt(1 / len(before) + 1 / len(after))
    return bool(after.mean() - before.mean() > 2 * noise)


def doubted(findings: Iterable[Finding], onset: int) -> list[int]:
    """Onsets of findings that put the reward in doubt and were not over when an incident began."""
    late = [f for f in findings if f.severity != "info" and f.last_step >= onset - DOUBT_LASTS]
    return [f.onset_step for f in late if f.causes and f.causes[0].id in IN_DOUBT]


def onset_to_undo(now: Situation) -> int:
    """The step that a checkpoint has to be older than.

    It is the first sign of the incident; or the reward's best, where the run learned on after that sign; or the damage
    itself, where nothing older is affordable. Where the reward was in doubt shortly before, neither its best nor its
    fall counts, and the checkpoint has to be older than the doubt.
    """
    doubts = doubted(now.findings, now.onset)
    onset = min([now.onset, *doubts])
    reward = progress(now.view)
    if not doubts and reward and reward.peak_step > onset and gained(now.view.at(reward.peak_step), onset):
        return reward.peak_step
    lost = _steps_lost(now, onset)
    if lost is not None and lost <= now.affordable:
        return onset
    return min((f.onset_step for f in now.members if f.severity == "critical"), default=onset)


def _steps_lost(now: Situation, onset: int) -> int | None:
    """Steps that returning to before `onset` throws away; None where there is no such checkpoint."""
    older = [state.step for state in now.checkpoints if state.step < onset]
    return now.view.step - max(older) if older else None


def wants_proof(now: Situation, onset: int) -> bool:
    """Whether going back needs a held-out accuracy that fell, where it is known.

    It does for a cause outside of the trainer, which the older weights meet as well, and where it throws away more
    steps than the estimate of the onset may be off by.
    """
    lost = _steps_lost(now, onset)
    return now.cause.id in OUTSIDE or (lost is not None and lost > FAR)


def objection_to_return(now: Situation) -> str | None:
    """What speaks against going back."""
    if not returns(now):
        return "there is no damage any more that going back would mend"
    return held_out_holds(now.view) if wants_proof(now, onset_to_undo(now)) else None
