"""Judges whether a trial is kept, by the hypothesis that was recorded before the change.

A trial is kept if, at the end of its window, its findings have cleared *and* the guard (held-out accuracy, or the
reward) is not worse than before. Anything else, "no difference" included, is undone, so that the settings of a run
change only for a reason. New or returning damage, or a guard that is proven worse, ends a trial at once, because
further steps would add to the damage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stabilizer.control.guard import Guard
from stabilizer.control.guard import Verdict as GuardVerdict
from stabilizer.control.trial import SETTLE, Trial
from stabilizer.detectors.evidence.progress import progress
from stabilizer.incidents.watch import Watch
from stabilizer.remedies.base import BACK
from stabilizer.runs.history import RunView

FLAT = ("reward/plateau",)
"""Findings that nothing is gained."""
WORSENS = 4
"""Ticks after a change made before any damage, during which damage does not count against it."""


@dataclass(frozen=True)
class Judgement:
    """The state of a trial, and why."""

    outcome: Literal["running", "verified", "failed"]
    reason: str = ""
    harmed: bool = False
    """It failed because the run got worse, so its weights must be undone too."""
    came: int = 0
    """The first step at which the event that the trial waited for had happened; 0 if it has not."""


RUNNING = Judgement("running")


def advance(trial: Trial, watch: Watch, view: RunView) -> Judgement:
    """Count one more tick of a trial and judge it."""
    trial.ticks += 1
    found = judge(trial, watch, view)
    trial.harmed, trial.came = trial.harmed or found.harmed, trial.came or found.came
    return found


def judge(trial: Trial, watch: Watch, view: RunView) -> Judgement:
    """The state of a trial after `trial.ticks` ticks."""
    if trial.outlived:
        return _lessened(trial, view)
    if over := trial.remedy.over(view, trial.began):
        return Judgement("verified", over, came=view.step - BACK + 1)
    if not trial.remedy.harmless and (damage := _damage(trial, watch, view)):
        return Judgement("failed", damage, harmed=True)
    state, level = trial.guard.verdict(view, trial.began, trial.window)
    if state == "worse" and _restored(trial):
        state = "open"  # levels under different settings can't be compared
    compared = _compared(trial, level)
    falling_already = trial.critical and not trial.target
    if state == "worse" and trial.ticks >= (trial.window // 2 if falling_already else SETTLE):
        harmed = not trial.remedy.harmless and _got_worse(trial, view)
        return Judgement("failed", f"{trial.guard.metric} is {compared}, worse than noise explains", harmed=harmed)
    if _futile(trial, watch, view):
        return Judgement("failed", f"no sign of help after {trial.ticks} steps: {_unresolved(trial, watch, view)}")
    if trial.ticks < trial.window:
        return RUNNING
    return _at_the_end(trial, watch, view, state, level)


def _restored(trial: Trial) -> bool:
    """Whether it restored settings from the current state."""
    return trial.back and not trial.target


def _compared(trial: Trial, level: float | None) -> str:
    before = f"{trial.guard.level:.3g} before" if math.isfinite(trial.guard.level) else "no earlier value"
    return "unknown" if level is None else f"{level:.3g} on average against {before}"


def _at_the_end(trial: Trial, watch: Watch, view: RunView, state: GuardVerdict, level: float | None) -> Judgement:
    guard, compared = trial.guard, _compared(trial, level)
    if _restored(trial):  # values of the healthy run need no proof
        return Judgement("verified", f"{guard.metric} is {compared}")
    if unresolved := _unresolved(trial, watch, view):
        return Judgement("failed", f"unresolved after {trial.ticks} steps: {unresolved}")
    if trial.before:
        return _beside_what_it_left(trial, trial.before, view)
    short = level is None or (state == "open" and guard.level - level > guard.tolerance)
    if short and not trial.target:  # noise in the level is no reason to restore the cause of the damage
        harmed = not (trial.remedy.harmless or trial.critical or level is None)  # none of its own
        return Judgement("failed", f"{guard.metric} is {compared}, below the guard of {guard.level:.3g}", harmed=harmed)
    return Judgement("verified", f"all findings cleared; {guard.metric} is {compared}")


def _beside_what_it_left(trial: Trial, before: Guard, view: RunView) -> Judgement:
    """Compare a rollback with the run just before it, by the newest rows: the first rows are near the checkpoint.

    A reward that was in doubt then (`in_doubt`) can't be compared.
    """
    rows = max(trial.window // 2, math.ceil(before.every))
    state, level = before.verdict(view, max(trial.began, view.step - rows + 1), rows)
    now = "unknown" if level is None else f"{level:.3g} on average"
    then = f"{before.level:.3g}" if math.isfinite(before.level) else "no known value"
    text = f"{before.metric} {now} over the last {rows} steps, against {then} just before the fix"
    if trial.target and trial.guard.metric == before.metric and math.isfinite(trial.guard.level):
        text += f" and {trial.guard.level:.3g} at step {trial.target.step}"
    if state == "worse" and not trial.in_doubt:
        return Judgement("failed", f"the rollback did not help: {text}")
    return Judgement("verified", f"all findings cleared; {text}")


def _lessened(trial: Trial, view: RunView) -> Judgement:
    """Judge a fix that makes a fault harmless but does not remove it.

    The fault remains visible, in the reward too, so only a further decline counts.
    """
    early = Guard.of(view.at(trial.began + SETTLE - 1), trial.remedy.horizon)
    state, level = early.verdict(view, trial.began + SETTLE, trial.window)
    compared = "unknown" if level is None else f"{level:.3g} on average against {early.level:.3g} at its beginning"
    if state == "worse" and trial.ticks >= 2 * SETTLE:
        return Judgement("failed", f"{early.metric} is {compared}, worse than noise explains")
    return RUNNING if trial.ticks < trial.window else Judgement("verified", f"{early.metric} is {compared}")


def _got_worse(trial: Trial, view: RunView) -> bool:
    """Whether the run is worse than when the trial began.

    If the guard's level is older than the onset, the earlier loss counts in it too, and a return to the snapshot would
    discard steps for nothing.
    """
    if trial.target or trial.guard.step >= trial.onset:
        return True
    start = Guard.of_reward(view.at(trial.began - 1))
    return not start.rows or start.verdict(view, trial.began, trial.window)[0] == "worse"


def _damage(trial: Trial, watch: Watch, view: RunView) -> str:
    """Damage that returned after a rollback, or that a change did not prevent."""
    if (not trial.target and trial.critical) or trial.ticks < (SETTLE if trial.target else WORSENS):
        return ""
    for finding in watch.active():
        here = finding.last_step == view.step and finding.attempt == view.attempt
        if finding.incident == trial.incident and finding.severity == "critical" and here:
            return f"{finding.id} is critical after {trial.ticks} steps: {finding.summary}"
    return ""


def _futile(trial: Trial, watch: Watch, view: RunView) -> bool:
    """Whether the damage remains after half of the window without any improvement."""
    waits = trial.target or trial.remedy.harmless or trial.back
    if waits or not trial.critical or trial.ticks != trial.window // 2:
        return False
    reward = progress(view)
    return bool(_unresolved(trial, watch, view)) and not (reward and reward.rising)


def _unresolved(trial: Trial, watch: Watch, view: RunView) -> str:
    """A finding of the incident that its detector still reports if it ignores this trial.

    The event of the trial gives detectors a new baseline. While it is short, they report nothing, which does not mean
    that the run is healthy. So they run here without that event. A fix for a flat reward has to bring a gain, so there
    a hint is enough.
    """
    without = view.ignoring(trial.action)
    members = set(watch.incident(trial.incident).findings)
    for detector in watch.detectors:
        if detector.id in members:
            finding = detector.check(without)
            if finding and (finding.severity != "info" or finding.id in FLAT):
                return finding.summary
    return ""
