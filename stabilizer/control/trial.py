"""One fix as an experiment: the hypothesis is written down first, and the numbers decide whether the fix stays.

A trial succeeds when, at the end of its window, the findings it was made for are quiet *and* the guard (held-out
accuracy, or the reward) is not worse than it was; anything else, "no difference" included, is undone, so that a run's
settings drift only for a reason. Failure is not waited for: damage that is new or back, or a guard that is proven
worse (`sequential`), ends a trial at once, for every further step of it costs what the fix was meant to save.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from stabilizer.control.guard import Guard
from stabilizer.control.probe import Probe
from stabilizer.core.knobs import Checkpoint
from stabilizer.detectors.evidence.progress import progress
from stabilizer.incidents.watch import Watch
from stabilizer.remedies.base import BACK, Change, Course, Remedy
from stabilizer.runs.history import RunView

Outcome = Literal["running", "verified", "failed"]

SETTLE = 8
"""Ticks after a return to a checkpoint within which a divergence that shows may be an echo."""
WORSENS = 4
"""Ticks that a change made before there was damage has until damage counts against it."""


@dataclass
class Trial:
    """A remedy under test."""

    action: str
    remedy: Remedy
    incident: int
    onset: int
    critical: bool
    """Whether there was damage already when it began."""
    change: Change
    guard: Guard = field(default_factory=Guard)
    before: Guard | None = None
    """How the run stood just before the change; None where that is `guard` itself. A rollback's own guard is how the
    run stood at the checkpoint."""
    cause: str = ""
    in_doubt: bool = False
    """The reward was no measure of what was learned when it was proposed."""
    findings: tuple[str, ...] = ()
    """Findings that called for it when it was proposed."""
    course: Course = field(default_factory=dict)
    returns: Checkpoint | None = None
    """The state it begins from, where that is not the present one and not for the onset to say."""
    target: Checkpoint | None = None
    """The state a rollback returned to."""
    snapshot: Checkpoint | None = None
    """The state before anything was changed."""
    began: int = 0
    """The first step under the change."""
    window: int = 30
    """Ticks until it is judged."""
    ticks: int = 0
    harmed: bool = False
    """It failed because the run got worse, so that its weights are no better than its knobs."""
    margin: int = 1
    """Steps by which a state should be older than the onset to be surely from before it."""
    back: bool = False
    """The change gives settings back the values they had before somebody changed them."""
    replays: bool = False
    """It goes back with its cause known and gone, so that one thing changes: the prompts ahead are those that were."""
    holds: float | None = None
    """Learning rate that the knob keeps a schedule at that ran away."""
    under: Trial | None = None
    """The trial it is built on, which was not enough."""
    outlived: tuple[str, ...] = ()
    """Findings of the incident that stand whether it helps or not."""
    came: int = 0
    """The first step at which what it waited for had come; 0 where it has not, or waits for nothing."""
    twin: dict[str, Any] | None = None
    """What a copy of the run did meanwhile without the change."""
    probe: Probe | None = None
    """How the weights to go back to were paid beside those gone back from."""
    asked: int = 0
    """Steps that it cost to ask them, whether they could answer or not."""

    @property
    def level_before(self) -> Guard:
        """The metric to keep, and where it stood just before the change."""
        return self.before or self.guard

    @property
    def depth(self) -> int:
        """How many trials stand or fall together with it, itself among them."""
        return 1 + len(self.chain())

    def chain(self) -> list[Trial]:
        """What it is built on, newest first."""
        return [self.under, *self.under.chain()] if self.under else []

    def hypothesis(self) -> dict[str, Any]:
        """What was promised before anything was changed."""
        metric = next(iter(self.change), None)
        return {
            "cause": self.cause,
            "findings": list(self.findings),
            "expects": self.remedy.expects,
            "guard": self.guard.metric,
            "guard_direction": "not lower",
            "guard_level": self.guard.level,
            "guard_noise": self.guard.noise,
            "guard_tolerance": self.guard.tolerance,
            "horizon_steps": self.window,
            "orders": list(self.remedy.orders),
            "undo": {knob: before for knob, (before, _) in self.change.items()},
            "undo_weights": "returns to the snapshot if the run gets worse" if not self.remedy.harmless else "",
            "course": {knob: list(values) for knob, values in self.course.items()},
            "rollback_to": self.target.step if self.target else None,
            "cost": self._cost(metric),
        }

    def _cost(self, knob: str | None) -> str:
        if self.target:
            return "the steps since the checkpoint"
        if knob in ("control/prompts", "control/group_size", "control/max_completion") and self.change[knob][0]:
            return f"steps up to {self.change[knob][1] / self.change[knob][0]:.3g} times as long"
        if self.remedy.orders == ("skip-update",):
            return f"{self.remedy.repeats} steps without learning"
        return "none beside a snapshot"

    def judge(self, watch: Watch, view: RunView) -> tuple[Outcome, str]:
        """How the trial stands one tick later, and why."""
        self.ticks += 1
        if self.outlived:
            return self._lessened(view)
        if over := self.remedy.over(view, self.began):
            self.came = view.step - BACK + 1
            return "verified", over
        if not self.remedy.harmless:
            if damage := self._damage(watch, view):
                self.harmed = True
                return "failed", damage
        state, level = self.guard.verdict(view, self.began, self.window)
        restored = self.back and not self.target
        if restored and state == "worse":
            state = "open"  # a level under another setting is no measure for one under this
        before = f"{self.guard.level:.3g} before" if math.isfinite(self.guard.level) else "nothing known before"
        compared = "unknown" if level is None else f"{level:.3g} on average against {before}"
        falling_already = self.critical and not self.target
        if state == "worse" and self.ticks >= (self.window // 2 if falling_already else SETTLE):
            self.harmed = not self.remedy.harmless and self._got_worse(view)
            return "failed", f"{self.guard.metric} is {compared}, worse than noise explains"
        if self._futile(watch, view):
            return "failed", f"no sign of help after {self.ticks} steps: {self._standing(watch, view)}"
        if self.ticks < self.window:
            return "running", ""
        if restored:  # what the run was well with has nothing to prove
            return "verified", f"{self.guard.metric} is {compared}"
        if standing := self._standing(watch, view):
            return "failed", f"still true after {self.ticks} steps: {standing}"
        if self.before:
            return self._beside_what_it_left(self.before, view)
        short = level is None or (state == "open" and self.guard.level - level > self.guard.tolerance)
        if short and not self.target:  # what did the damage is not put back because chance has a say in the level
            self.harmed = not (self.remedy.harmless or self.critical or level is None)  # none of its own
            return "failed", f"{self.guard.metric} is {compared}, below the guard of {self.guard.level:.3g}"
        return "verified", f"findings quiet and {self.guard.metric} {compared}"

    def _beside_what_it_left(self, before: Guard, view: RunView) -> tuple[Outcome, str]:
        """A rollback beside the run just before it: the newest rows count, for the first ones are from further back.

        A reward that was in doubt then (`in_doubt`) can't be compared.
        """
        rows = max(self.window // 2, math.ceil(before.every))
        state, level = before.verdict(view, max(self.began, view.step - rows + 1), rows)
        now = "unknown" if level is None else f"{level:.3g} on average"
        then = f"{before.level:.3g}" if math.isfinite(before.level) else "nothing known"
        text = f"{before.metric} {now} over the last {rows} steps, against {then} just before the fix"
        if self.target and self.guard.metric == before.metric and math.isfinite(self.guard.level):
            text += f" and {self.guard.level:.3g} at step {self.target.step}"
        if state == "worse" and not self.in_doubt:
            return "failed", f"going back has not paid: {text}"
        return "verified", f"findings quiet and {text}"

    def _lessened(self, view: RunView) -> tuple[Outcome, str]:
        """Of what makes harmless and takes nothing away: what is still broken still shows, in the reward too, so that
        only what gets worse from there counts."""
        early = Guard.of(view.at(self.began + SETTLE - 1), self.remedy.horizon)
        state, level = early.verdict(view, self.began + SETTLE, self.window)
        compared = "unknown" if level is None else f"{level:.3g} on average against {early.level:.3g} at its beginning"
        if state == "worse" and self.ticks >= 2 * SETTLE:
            return "failed", f"{early.metric} is {compared}, worse than noise explains"
        return ("running", "") if self.ticks < self.window else ("verified", f"{early.metric} is {compared}")

    def _got_worse(self, view: RunView) -> bool:
        """Whether the run is worse than when the trial began: where the guard's level is older than the onset, what was
        lost before is in it too, and a return to the snapshot would throw steps away for nothing."""
        if self.target or self.guard.step >= self.onset:
            return True
        start = Guard.of_reward(view.at(self.began - 1))
        return not start.rows or start.verdict(view, self.began, self.window)[0] == "worse"

    def _damage(self, watch: Watch, view: RunView) -> str:
        """Damage that is back after a rollback, or came after a change that was to prevent it."""
        if (not self.target and self.critical) or self.ticks < (SETTLE if self.target else WORSENS):
            return ""
        for finding in watch.active():
            here = finding.last_step == view.step and finding.attempt == view.attempt
            if finding.incident == self.incident and finding.severity == "critical" and here:
                return f"{finding.id} is critical after {self.ticks} steps: {finding.summary}"
        return ""

    def _futile(self, watch: Watch, view: RunView) -> bool:
        """Damage that was there, is there after half of the window, and nothing gets better."""
        waits = self.target or self.remedy.harmless or self.back
        if waits or not self.critical or self.ticks != self.window // 2:
            return False
        reward = progress(view)
        return bool(self._standing(watch, view)) and not (reward and reward.rising)

    def _standing(self, watch: Watch, view: RunView) -> str:
        """A finding of the incident that still holds when its detector is not told of this trial.

        The trial's own event gives detectors a new baseline, and for as long as that is short they are silent because
        they can't see, which is not the same as being well. So they are asked as if nothing had been declared.
        """
        untold = view.ignoring(self.action)
        members = set(watch.incident(self.incident).findings)
        for detector in watch.detectors:
            if detector.id in members:
                finding = detector.check(untold)
                if finding and finding.severity != "info":
                    return finding.summary
        return ""
