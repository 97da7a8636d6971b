"""One fix as an experiment: what is changed, and the hypothesis that is written down before."""

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
"""Steps a rollback's target should be older than the onset, whose estimate is uncertain by that at most."""

SETTLE = 8
"""Ticks after a return to a checkpoint in which a divergence may be an echo of the old one."""


@dataclass
class Trial:
    """A remedy under test."""

    action: str
    remedy: Remedy
    incident: int
    onset: int
    critical: bool
    """Whether there was damage when it began."""
    change: Change
    guard: Guard = field(default_factory=Guard)
    before: Guard | None = None
    """The guard just before the change; None where that is `guard` itself. A rollback's `guard` is that of the
    checkpoint."""
    cause: str = ""
    in_doubt: bool = False
    """When it was proposed, the reward did not measure what was learned."""
    findings: tuple[str, ...] = ()
    """Findings that called for it when it was proposed."""
    course: Course = field(default_factory=dict)
    returns: Checkpoint | None = None
    """The state it begins from, where that is neither the present one nor chosen by the onset."""
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
    """It failed because the run got worse, so that weights have to go back as well as knobs."""
    margin: int = 1
    """Steps by which a checkpoint should be older than the onset, to be from before it beyond doubt."""
    back: bool = False
    """The change gives settings the values that they had before an undeclared change."""
    replays: bool = False
    """It goes back with its cause known and removed, so the prompts ahead stay the same: one change at a time."""
    holds: float | None = None
    """The learning rate that the knob keeps while the schedule is away."""
    under: Trial | None = None
    """The trial it goes on from, which did not help."""
    outlived: tuple[str, ...] = ()
    """Findings of the incident that stay open whether it helps or not."""
    came: int = 0
    """The first step at which what it waited for had happened; 0 if it has not, or it waits for nothing."""
    twin: dict[str, Any] | None = None
    """What copies of the run did with and without the change."""
    probe: Probe | None = None
    """Rewards of the weights to go back to, and of the present ones."""
    asked: int = 0
    """Steps that this measurement cost, whether it succeeded or not."""

    @property
    def level_before(self) -> Guard:
        """The guard with its level just before the change."""
        return self.before or self.guard

    @property
    def alone(self) -> bool:
        """Whether it changes settings from the present state, and nothing else."""
        return not (self.back or self.target or self.under or self.returns)

    def evidence(self) -> dict[str, Any]:
        """What was tried and measured before the change, and the steps it cost."""
        found: dict[str, Any] = {}
        if self.twin:
            found = {"twin": self.twin, "extra_steps": self.twin["extra_steps"]}
        if self.asked:
            probe = self.probe.record() if self.probe else {}
            found |= {"probe": probe, "extra_steps": found.get("extra_steps", 0) + self.asked}
        return found

    @property
    def words(self) -> str:
        """What it does, in words."""
        turned = in_words({knob: turn for knob, turn in self.change.items() if turn[0] != turn[1]})
        warming = "warmed up again over 20 steps" if "control/lr_scale" in self.course else ""
        return ", ".join(filter(None, [*self.remedy.orders, f"set {turned}" if turned else "", warming]))

    @property
    def depth(self) -> int:
        """How many trials are kept or undone together with it, itself included."""
        return 1 + len(self.chain())

    def chain(self) -> list[Trial]:
        """The trials it goes on from, newest first."""
        return [self.under, *self.under.chain()] if self.under else []

    def hypothesis(self) -> dict[str, Any]:
        """What the journal holds before anything is changed."""
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
    """The trial of a remedy in a situation, with the state that it would return to and the level it must keep."""
    turned = turns(now.view, onset, now.memory.courses)
    back = now.puts_back(change, onset)
    if back:
        onset, margin = min(turn.step for turn in turned), 1
    if margin is None:  # the sooner it was seen, the less it can be off
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
    """The knobs of this run that the change takes somewhere row by row."""
    return {knob: values for knob, values in remedy.course(change, now.knobs).items() if knob in now.knobs}


def _guard_at(target: Checkpoint, onset: int, now: Situation, remedy: Remedy) -> Guard:
    """The level of the run at a checkpoint; for one too early to have a level, that from before the onset."""
    there = now.view.at(target.step)
    return Guard.of(there if progress(there) else now.view.at(onset - 1), remedy.horizon)


def targets(checkpoints: Iterable[Checkpoint], onset: int, margin: int) -> list[Checkpoint]:
    """Checkpoints older than the onset, those safely older first, the newest of each kind first."""
    older = [checkpoint for checkpoint in checkpoints if checkpoint.step < onset]
    return sorted(older, key=lambda c: (c.step <= onset - margin, c.step, c.attempt), reverse=True)
