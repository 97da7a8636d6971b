"""One fix as an experiment: the change, and the hypothesis that is recorded before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stabilizer.control.guard import Guard
from stabilizer.control.probe import Probe
from stabilizer.core.knobs import KNOBS, Checkpoint
from stabilizer.detectors.evidence.progress import progress
from stabilizer.remedies.base import Change, Course, Remedy, in_words
from stabilizer.remedies.going_back import doubted
from stabilizer.remedies.situation import Situation
from stabilizer.remedies.turns import turns

ONSET_MARGIN = 10
"""Steps by which a rollback's target should precede the onset: the largest uncertainty of an onset."""

SETTLE = 8
"""Ticks after a rollback in which a divergence may be an echo of the old one."""


@dataclass
class Trial:
    """A remedy under test."""

    action: str
    remedy: Remedy
    incident: int
    onset: int
    critical: bool
    """Whether there was damage when it started."""
    change: Change
    guard: Guard = field(default_factory=Guard)
    before: Guard | None = None
    """The guard just before the change; None if that is `guard` itself. The `guard` of a rollback is that of the
    checkpoint."""
    cause: str = ""
    in_doubt: bool = False
    """Whether the reward was unreliable when it was proposed."""
    findings: tuple[str, ...] = ()
    """Findings that needed it when it was proposed."""
    course: Course = field(default_factory=dict)
    returns: Checkpoint | None = None
    """The state it starts from, if that is neither the current one nor chosen by the onset."""
    target: Checkpoint | None = None
    """The state a rollback returned to."""
    snapshot: Checkpoint | None = None
    """The state before the change."""
    began: int = 0
    """The first step under the change."""
    window: int = 30
    """Ticks until it is judged."""
    ticks: int = 0
    harmed: bool = False
    """It failed because the run got worse, so the weights must be restored as well as the knobs."""
    margin: int = 1
    """Steps by which a checkpoint should be older than the onset to be certainly from before it."""
    back: bool = False
    """Whether the change restores the values from before an undeclared change."""
    replays: bool = False
    """Whether it rolls back with its cause known and removed, so that the prompts stay the same: one change at a
    time."""
    holds: float | None = None
    """The learning rate that the knob keeps while the schedule is off."""
    under: Trial | None = None
    """The failed trial that it is built on."""
    outlived: tuple[str, ...] = ()
    """Findings of the incident that stay open whether it helps or not."""
    came: int = 0
    """The first step at which the event it waited for had happened; 0 if it has not, or if it waits for nothing."""
    twin: dict[str, Any] | None = None
    """Results of copies of the run with and without the change."""
    probe: Probe | None = None
    """Rewards of the target's weights and of the current ones."""
    asked: int = 0
    """Steps that this measurement cost, whether it succeeded or not."""

    @property
    def level_before(self) -> Guard:
        """The guard with its level just before the change."""
        return self.before or self.guard

    @property
    def alone(self) -> bool:
        """Whether it only changes settings, from the current state."""
        return not (self.back or self.target or self.under or self.returns)

    def evidence(self) -> dict[str, Any]:
        """Trials and measurements before the change, and their cost in steps."""
        found: dict[str, Any] = {}
        if self.twin:
            found = {"twin": self.twin, "extra_steps": self.twin["extra_steps"]}
        if self.asked:
            probe = self.probe.record() if self.probe else {}
            found |= {"probe": probe, "extra_steps": found.get("extra_steps", 0) + self.asked}
        return found

    @property
    def words(self) -> str:
        """A description of the change."""
        turned = in_words(self.change)
        warming = "warmed up again over 20 steps" if "control/lr_scale" in self.course else ""
        return ", ".join(filter(None, [*self.remedy.orders, f"set {turned}" if turned else "", warming]))

    @property
    def depth(self) -> int:
        """How many trials are kept or undone together with it, itself included."""
        return 1 + len(self.chain())

    def chain(self) -> list[Trial]:
        """The trials that it is built on, newest first."""
        return [self.under, *self.under.chain()] if self.under else []

    def hypothesis(self) -> dict[str, Any]:
        """The fields of the journal entry before the change."""
        metric = next(iter(self.change), None)
        return {
            "why": self.remedy.why,
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
        before, after = self.change[knob] if knob else (None, None)
        if knob and KNOBS[knob].longer_steps and before and after:
            return f"steps up to {after / before:.3g} times as long"
        if self.remedy.orders == ("skip-update",):
            return f"{self.remedy.repeats} steps without learning"
        return ""


def plan(
    action: str, remedy: Remedy, change: Change, now: Situation, onset: int, *, margin: int | None = None
) -> Trial:
    """The trial of a remedy in a situation, with the state it would return to and the level it must keep."""
    turned = turns(now.view, onset, now.memory.courses)
    back = now.puts_back(change, onset)
    if back:
        onset, margin = min(turn.step for turn in turned), 1
    if margin is None:  # an onset that was detected early is more precise
        margin = min(ONSET_MARGIN, max(1, (now.view.step - onset) // 2))
    ways = targets(now.checkpoints, onset, margin) if remedy.rollback else []
    target = ways[0] if ways else None
    level = Guard.of(now.view, remedy.horizon)
    guard = _guard_at(target, onset, now, remedy) if target else level
    course = {} if back else _course(remedy, change, now)
    return Trial(
        action=action,
        remedy=remedy,
        incident=now.incident,
        onset=onset,
        critical=now.damaged,
        change={knob: (now.knobs[knob], now.knobs[knob]) for knob in course} | change,
        guard=guard,
        before=level if target else None,
        in_doubt=bool(target) and bool(doubted(now.findings, onset)),
        findings=tuple(dict.fromkeys(finding.id for finding in now.members)),
        cause=now.cause.id,
        course=course,
        back=back,
        replays=back,
        margin=margin,
        outlived=now.had_of(remedy.outlived(now.cause.id)),
        holds=next((turn.rate for turn in turned if turn.rate), None) if back else None,
        target=target,
        began=now.view.step + 1,
        window=guard.window(remedy.horizon),
    )


def _course(remedy: Remedy, change: Change, now: Situation) -> Course:
    """The knobs of this run that the change moves gradually."""
    return {knob: values for knob, values in remedy.course(change, now.knobs).items() if knob in now.knobs}


def _guard_at(target: Checkpoint, onset: int, now: Situation, remedy: Remedy) -> Guard:
    """The level of the run at a checkpoint; if it is too early for a level, that from before the onset."""
    there = now.view.at(target.step)
    return Guard.of(there if progress(there) else now.view.at(onset - 1), remedy.horizon)


def targets(checkpoints: Iterable[Checkpoint], onset: int, margin: int) -> list[Checkpoint]:
    """Checkpoints older than the onset, those safely older first, the newest of each kind first."""
    older = [checkpoint for checkpoint in checkpoints if checkpoint.step < onset]
    return sorted(older, key=lambda c: (c.step <= onset - margin, c.step, c.attempt), reverse=True)
