"""One fix as an experiment: the hypothesis is written down first, and the numbers decide whether the fix stays.

A trial succeeds when, at its horizon, the findings it was made for are quiet *and* the guard (the reward) is not lower
than it was; anything else, "no difference" included, is undone, so that a run's settings drift only for a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stabilizer.detectors.progress import progress
from stabilizer.records import Finding
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.controls import Checkpoint
from stabilizer.runs.history import RunView

Outcome = Literal["running", "verified", "failed"]

SETTLE = 8
"""Ticks after which a divergence that is back counts as back; before, it may be an echo."""


@dataclass
class Trial:
    """A remedy under test."""

    action: str
    remedy: Remedy
    incident: int
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

    def judge(self, active: Sequence[Finding], view: RunView) -> tuple[Outcome, str]:
        """How the trial stands one tick later, and why."""
        self.ticks += 1
        mine = [f for f in active if f.incident == self.incident and f.severity != "info"]
        loud = [f for f in mine if f.state in ("open", "mitigating")]
        back = [f for f in loud if f.last_step == view.step and f.attempt == view.attempt and f.severity == "critical"]
        if self.target and self.ticks >= SETTLE and back:
            return "failed", f"{back[0].id} is back after {self.ticks} steps: {back[0].summary}"
        if self.ticks < self.remedy.horizon:
            return "running", ""
        if loud:
            return "failed", f"{loud[0].id} still stands after {self.ticks} steps"
        reward = progress(view)
        if reward is None or reward.now < self.guard_level - 2 * self.guard_noise:
            now = "unknown" if reward is None else f"{reward.now:.3g}"
            return "failed", f"{self.guard} is {now}, below the guard of {self.guard_level:.3g}"
        return "verified", f"findings quiet and {self.guard} {reward.now:.3g} against {self.guard_level:.3g} before"
