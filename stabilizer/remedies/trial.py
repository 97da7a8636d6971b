"""One fix as an experiment: the hypothesis is written down first, and the numbers decide whether the fix stays.

A trial succeeds when, at its horizon, the findings it was made for are quiet *and* the guard (the reward) is not lower
than it was; anything else, "no difference" included, is undone, so that a run's settings drift only for a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stabilizer.detectors.progress import progress
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.controls import Checkpoint
from stabilizer.runs.history import RunView
from stabilizer.watch import Watch

Outcome = Literal["running", "verified", "failed"]

SETTLE = 8
"""Ticks after which a divergence that is back counts as back; before, it may be an echo."""


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
    guard: str
    guard_level: float
    guard_noise: float
    target: Checkpoint | None = None
    ticks: int = 0

    def hypothesis(self) -> dict[str, Any]:
        """What was promised before anything was changed."""
        return {
            "expects": self.remedy.expects,
            "guard": self.guard,
            "guard_level": self.guard_level,
            "guard_noise": self.guard_noise,
            "horizon_steps": self.remedy.horizon,
            "undo": {knob: before for knob, (before, _) in self.change.items()},
            "rollback_to": self.target.step if self.target else None,
        }

    def judge(self, watch: Watch, view: RunView) -> tuple[Outcome, str]:
        """How the trial stands one tick later, and why."""
        self.ticks += 1
        if self.ticks >= SETTLE and (self.target or not self.critical):  # damage that is back, or new
            for finding in watch.active():
                here = finding.last_step == view.step and finding.attempt == view.attempt
                if finding.incident == self.incident and finding.severity == "critical" and here:
                    return "failed", f"{finding.id} is critical after {self.ticks} steps: {finding.summary}"
        if self.ticks < self.remedy.horizon:
            return "running", ""
        if standing := self._standing(watch, view):
            return "failed", f"still true after {self.ticks} steps: {standing}"
        reward = progress(view)
        if reward is None or reward.now < self.guard_level - 2 * self.guard_noise:
            now = "unknown" if reward is None else f"{reward.now:.3g}"
            return "failed", f"{self.guard} is {now}, below the guard of {self.guard_level:.3g}"
        return "verified", f"findings quiet and {self.guard} {reward.now:.3g} against {self.guard_level:.3g} before"

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
