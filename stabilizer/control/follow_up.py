"""Follow-ups of a trial: a larger change after damage, a rollback of the weights, or the undo of a change that is no
longer needed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stabilizer.control.context import reward_is_back
from stabilizer.control.guard import Guard
from stabilizer.control.trial import SETTLE, Trial
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Cause
from stabilizer.detectors.evidence.progress import progress
from stabilizer.remedies import BY_ID, LOWER_LR, RESTORE, ROLL_BACK
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.evidence import steps_usual
from stabilizer.remedies.situation import OVERSHOT, Situation
from stabilizer.remedies.turns import LR
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import Memory

DEEPEST = 3
"""Most trials that may be built on one another."""
IN_WEIGHTS = ("policy/", "optim/", "numerics/", "value/")
"""Findings about the policy's behaviour, independent of its surroundings."""


@dataclass(frozen=True)
class FollowUp:
    """A trial that is built on another one."""

    remedy: Remedy
    change: Change
    now: Situation
    onset: int
    margin: int
    text: str
    under: Trial | None = None
    """The trial that is kept or undone together with it; None if that one is kept in any case."""
    replays: bool = False
    returns: Checkpoint | None = None


def escalation(trial: Trial, now: Situation, reason: str) -> FollowUp | None:
    """A larger change in the same direction, from the state before, if there was damage despite the first change.

    Restoring the knob first would restore the cause of the damage. `auto-full` returns to before the onset, again if
    necessary; `auto-safe` may only return to the snapshot of its own trial.
    """
    remedy = _next_step(trial, now)
    hurt = trial.harmed or (now.mode == "auto-full" and not trial.outlived and still_critical(now))
    if remedy is None or not hurt or trial.depth >= DEEPEST or goes_on_outside(trial, now):
        return None
    arrived = {knob: values[-1] for knob, values in trial.course.items()}
    now = replace(now, knobs={**now.knobs, **arrived}, cause=Cause(trial.cause, 0.0, ""))
    change = _more(remedy, trial, now)
    if change is None:
        return None
    # checkpoints saved since the rollback were trained under the insufficient change
    onset, margin = (trial.target.step + 1, 1) if trial.target else (trial.onset, trial.margin)
    return FollowUp(
        remedy,
        change,
        now,
        onset,
        margin,
        f"{trial.action} did not help ({reason}). Rolling back and applying a larger change.",
        under=trial,
        replays=trial.back and not trial.target,
        returns=trial.snapshot if remedy is LOWER_LR else None,
    )


def _more(remedy: Remedy, trial: Trial, now: Situation) -> Change | None:
    """The change of a remedy on top of a trial; None if it can't help."""
    change = remedy.against(trial.cause, now.knobs)
    if trial.back and (change is None or not trial.target):
        return {}  # the cause is already removed: only the weights need repair
    return None if change is None or any(knob not in now.knobs for knob in change) else change


def _next_step(trial: Trial, now: Situation) -> Remedy | None:
    """The remedy that may continue a trial in this mode, if its change is in the right direction."""
    lowers = trial.remedy is LOWER_LR
    if now.mode == "auto-full" and (trial.target is not None or lowers or trial.back):
        return ROLL_BACK
    own = now.mode == "auto-safe" and lowers and not trial.critical and not trial.under
    return LOWER_LR if own else None


def mending(trial: Trial, now: Situation) -> FollowUp | None:
    """A rollback of the weights, if a kept fix stopped the damage but the run is still worse than before the onset.

    Not while the run recovers: a recovery without a rollback costs fewer steps.
    """
    harmless = trial.remedy.harmless and not trial.came  # a fault that ended has left its damage
    if now.mode != "auto-full" or trial.target or trial.outlived or harmless:
        return None
    view = now.view
    before = Guard.of(view.at(trial.onset - 1), trial.remedy.horizon)
    since = trial.came or max(trial.began, view.step - trial.window // 2)
    state, level = before.verdict(view, since, trial.window)
    reward = progress(view)
    learns = reward and reward.rising and not trial.came  # a reward that rose until the event was the faulty one
    if not still_critical(now) and (state != "worse" or learns):
        return None
    text = f"{trial.action} is kept, but {before.metric} is {level:.3g}, and was {before.level:.3g} before the onset"
    now = replace(now, cause=Cause(trial.cause, 0.0, ""))
    return FollowUp(ROLL_BACK, {}, now, trial.onset, trial.margin, text, replays=trial.back)


def still_critical(now: Situation) -> bool:
    """Whether there is damage that does not recover."""
    critical = [f for f in now.active if f.severity == "critical" and f.state != "recovering"]
    return any(not reward_is_back(now.memory, finding) for finding in critical)


def goes_on_outside(trial: Trial, now: Situation) -> bool:
    """Whether damage is back after a rollback that only changed the prompts, from a cause that no rollback removes.

    Then the fault was not in the weights, and a second rollback would lose steps for nothing.
    """
    if not trial.target or trial.change or trial.back:
        return False
    if now.cause.id != "undetermined":
        return now.cause.id not in ROLL_BACK.answers
    return not any(f.id.startswith(IN_WEIGHTS) for f in now.active if f.severity != "info")


def overtaken(trial: Trial, now: Situation) -> bool:
    """Whether a trial started before an undeclared change of a setting was visible.

    A runaway rate rises gradually, and any other remedy tried meanwhile treats the wrong cause.
    """
    known = (trial.incident, RESTORE.id) in now.memory.proposed
    return now.acts and trial.alone and not known and bool(now.turns(trial.onset))


def restoring_more(trial: Trial, now: Situation) -> FollowUp | None:
    """The restoring of further settings, if they changed just after those that a trial restored.

    A change of one script may show in several steps: some settings wait for the next generation.
    """
    turned = now.turns(trial.onset) if trial.back and trial.ticks < SETTLE and trial.depth < DEEPEST else []
    if all(turn.step < now.view.step for turn in turned):
        return None
    change: Change = {turn.knob: (turn.now, turn.was) for turn in turned}
    text = f"{', '.join(change)} changed just after what {trial.action} restored, and is restored too"
    return FollowUp(RESTORE, change, now, trial.onset, trial.margin, text, under=trial)


def holds_back(trial: Trial) -> bool:
    """Whether it slows learning while it lasts, against a cause that may end: then it can be undone later."""
    return trial.alone and trial.remedy.slows and trial.cause in OVERSHOT


def no_longer_needed(remedy: str, change: Change, onset: int, memory: Memory, view: RunView) -> bool:
    """Whether steps would have their usual size without a change that slows learning.

    Once per run and remedy, so that the fault does not return repeatedly.
    """
    if remedy in memory.released or remedy not in BY_ID:
        return False
    before, after = change.get(LR, (1.0, 1.0))
    rate = before / after if before and after else 1.0
    return steps_usual(view, onset, rows=SETTLE, rate=rate)
