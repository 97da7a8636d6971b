"""Whether a run should return to a checkpoint, and to which step."""

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
"""Rows on either side that show whether the reward rose."""
FIRST = 3
"""Rows at the start that stand for those before an onset at the first row."""
FAR = 50
"""Steps that may be discarded without proof: about the uncertainty of an estimated onset."""
AWAITED = 20
"""Steps after damage was detected for which a rollback waits for a validation, as long as a new trial would rest."""
DOUBT_LASTS = 20
"""Steps after a finding was last seen for which it still puts the reward in doubt."""


def returns(now: Situation) -> bool:
    """Whether a rollback to before the incident may help.

    It may help against damage seen for long enough. It may also help if nothing was learned, so nothing is lost, since
    a divergence that began with a known change, or since an unexplained loss.
    """
    if now.critical and not just_seen(now.members, now.view.step):
        return True
    lost = now.cause.id == "undetermined" and any(finding.id == "reward/collapse" for finding in now.members)
    turned = now.turns(now.onset)
    diverged = bool(turned) and any(rank(finding) <= DIVERGENCE for finding in now.members)
    return (lost or diverged) and not gained(now.view, min((turn.step for turn in turned), default=now.onset))


def gained(view: RunView, since: int) -> bool:
    """Whether the reward since a step is higher than in the rows before, by more than its noise explains."""
    reward = progress(view)
    if reward is None:
        return False
    rows = view.series(reward.metric).finite()
    before = rows.between(0, since - 1).last(GAIN).values
    after = rows.between(since, view.step).values
    if not len(before) and len(after) >= 2 * GAIN:  # since the first row, before the sign had an effect
        before = after[:FIRST]
    after = after[-GAIN:]
    if not len(before) or not len(after):
        return False
    noise = reward.noise * np.sqrt(1 / len(before) + 1 / len(after))
    return bool(after.mean() - before.mean() > 2 * noise)


def learned_until(view: RunView, onset: int) -> int:
    """The step of the best reward, if the run still learned after an onset; else the onset."""
    reward = progress(view)
    if reward and reward.peak_step > onset and gained(view.at(reward.peak_step), onset):
        return reward.peak_step
    return onset


def doubted(findings: Iterable[Finding], onset: int) -> list[int]:
    """Onsets of findings that put the reward in doubt and were not over when an incident began."""
    late = [f for f in findings if f.severity != "info" and f.last_step >= onset - DOUBT_LASTS]
    return [f.onset_step for f in late if f.causes and f.causes[0].id in IN_DOUBT]


def onset_to_undo(now: Situation) -> int:
    """The step before which a checkpoint must have been saved.

    It is the first sign of the incident; or the step of the best reward, if the run still learned after that sign; or
    the damage itself, if nothing older is affordable. If the reward was in doubt shortly before, neither its best nor
    its fall counts, and the checkpoint must be older than the doubt.
    """
    doubts = doubted(now.findings, now.onset)
    onset = min([now.onset, *doubts])
    if not doubts and (learned := learned_until(now.view, onset)) > onset:
        return learned
    lost = _steps_lost(now, onset)
    if lost is not None and lost <= now.affordable:
        return onset
    return min((f.onset_step for f in now.members if f.severity == "critical"), default=onset)


def _steps_lost(now: Situation, onset: int) -> int | None:
    """Steps that a return to before `onset` discards; None if there is no such checkpoint."""
    older = [state.step for state in now.checkpoints if state.step < onset]
    return now.view.step - max(older) if older else None


def wants_proof(now: Situation, onset: int) -> bool:
    """Whether a rollback needs a fall of held-out accuracy, if that is known.

    It does for a cause outside of the trainer, which affects the older weights as well, and if it discards more steps
    than the uncertainty of the onset.
    """
    lost = _steps_lost(now, onset)
    return now.cause.id in OUTSIDE or (lost is not None and lost > FAR)


def outdated(now: Situation) -> bool:
    """Whether held-out accuracy was last measured before the damage and was awaited long enough. It proves nothing."""
    seen = min((f.detected_step for f in now.members if f.severity == "critical"), default=now.view.step)
    measured = now.view.series("accuracy/val").finite().steps
    return now.view.step - seen >= AWAITED and not (len(measured) and measured[-1] >= seen)


def objection_to_return(now: Situation) -> str | None:
    """Why a rollback should not be made."""
    if not returns(now):
        return "there is no damage that a rollback would repair"
    wanted = wants_proof(now, onset_to_undo(now)) and not outdated(now)
    return held_out_holds(now.view) if wanted else None
