"""What follows a trial: more of the same after damage, weights that go back, or a change that is no longer needed."""

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
"""Trials that are built on one another."""
IN_WEIGHTS = ("policy/", "optim/", "numerics/", "value/")
"""Findings of what the weights do, whatever the world around them does."""


@dataclass(frozen=True)
class FollowUp:
    """A trial that goes on from another one."""

    remedy: Remedy
    change: Change
    now: Situation
    onset: int
    margin: int
    text: str
    under: Trial | None = None
    """The trial that is kept or undone together with it; None where that one is kept in any case."""
    replays: bool = False
    returns: Checkpoint | None = None


def escalation(trial: Trial, now: Situation, reason: str) -> FollowUp | None:
    """More of a change that goes the right way, from the state before, where there was damage in spite of it.

    Putting the knob back first would be to go on with what did the damage. `auto-full` returns to before the onset,
    once more if it has to; `auto-safe` may only return to the snapshot of its own trial.
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
    # what was saved since going back was trained under the change that is not enough
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
    """What a remedy would change on top of a trial; None where it can't."""
    change = remedy.against(trial.cause, now.knobs)
    if trial.back and (change is None or not trial.target):
        return {}  # the cause is gone already: what is left to mend are the weights
    return None if change is None or any(knob not in now.knobs for knob in change) else change


def _next_step(trial: Trial, now: Situation) -> Remedy | None:
    """The remedy that would go on from a trial in this mode, where its change goes the right way at all."""
    lowers = trial.remedy is LOWER_LR
    if now.mode == "auto-full" and (trial.target is not None or lowers or trial.back):
        return ROLL_BACK
    own = now.mode == "auto-safe" and lowers and not trial.critical and not trial.under
    return LOWER_LR if own else None


def mending(trial: Trial, now: Situation) -> FollowUp | None:
    """Weights that go back, where a kept fix stopped the damage and the run is still worse than before the onset.

    Not while it learns again: what comes back by itself costs less than the steps since then.
    """
    harmless = trial.remedy.harmless and not trial.came  # what came to an end has left its damage
    if now.mode != "auto-full" or trial.target or trial.outlived or harmless:
        return None
    view = now.view
    before = Guard.of(view.at(trial.onset - 1), trial.remedy.horizon)
    since = trial.came or max(trial.began, view.step - trial.window // 2)
    state, level = before.verdict(view, since, trial.window)
    reward = progress(view)
    learns = reward and reward.rising and not trial.came  # what rose until it came was what failed
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
    """Whether damage is back after a return that changed the prompts ahead alone, from a cause that no return removes.

    Then it was not in the weights, and a second return would lose as much for as little.
    """
    if not trial.target or trial.change or trial.back:
        return False
    if now.cause.id != "undetermined":
        return now.cause.id not in ROLL_BACK.answers
    return not any(f.id.startswith(IN_WEIGHTS) for f in now.active if f.severity != "info")


def overtaken(trial: Trial, now: Situation) -> bool:
    """Whether a trial was begun before it could be seen that a setting had been changed without a declaration.

    A rate that runs away does so row by row, and whatever else is tried meanwhile is tried against the wrong cause.
    """
    known = (trial.incident, RESTORE.id) in now.memory.proposed
    return now.acts and trial.alone and not known and bool(now.turns(trial.onset))


def holds_back(trial: Trial) -> bool:
    """Whether it slows learning for as long as it lasts, against what may pass: then it need not last."""
    return trial.alone and trial.remedy.slows and trial.cause in OVERSHOT


def no_longer_needed(remedy: str, change: Change, onset: int, memory: Memory, view: RunView) -> bool:
    """Whether steps would be as usual without a change that slows learning: what it held back is over.

    Once a run and remedy, so that what it holds back does not come again and again.
    """
    if remedy in memory.released or remedy not in BY_ID:
        return False
    before, after = change.get(LR, (1.0, 1.0))
    rate = before / after if before and after else 1.0
    return steps_usual(view, onset, rows=SETTLE, rate=rate)
