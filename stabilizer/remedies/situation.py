"""The input for choosing a fix: one incident of one run at one step, as a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from stabilizer.core.knobs import Change, Checkpoint
from stabilizer.core.records import Cause, Finding
from stabilizer.remedies.turns import Turn, turns
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import Memory

Mode = Literal["off", "suggest", "approve", "auto-safe", "auto-full"]
MODES: tuple[Mode, ...] = get_args(Mode)

OVERSHOT = ("lr-too-high", "undetermined")
"""Causes against which slower learning helps only while steps are too large. Against other causes it may be
permanent."""
OUTSIDE = ("prompts-too-hard", "data-shift", "reward-fault", "reward-hackable", "wrong-groups", "tool-broken")
"""Causes in the data or the reward, which no knob of the trainer removes. Engine errors are not among them, because
they are measured per token and can be corrected; nor are dead groups, because a larger batch helps."""
IN_DOUBT = ("reward-fault", "reward-hackable")
"""Causes during which the reward does not measure what the policy learned."""


@dataclass(frozen=True)
class Situation:
    """An incident, its run and the trials so far."""

    incident: int
    cause: Cause
    onset: int
    members: tuple[Finding, ...]
    """Unresolved findings of the incident that need a remedy."""
    view: RunView
    knobs: Mapping[str, float] = field(default_factory=dict)
    active: tuple[Finding, ...] = ()
    """All unresolved findings of the incident."""
    had: frozenset[str] = frozenset()
    """Ids of all findings that the incident ever had."""
    findings: tuple[Finding, ...] = ()
    """Every finding of the run so far, resolved ones too."""
    list_checkpoints: Callable[[], Sequence[Checkpoint]] = tuple
    """Lists the states that can be restored. It reads the disk, so only rollbacks call it."""
    memory: Memory = field(default_factory=Memory)
    affordable: float = math.inf
    """Steps left in the budget of fixes."""
    restarts: frozenset[str] = frozenset()
    """Knobs that take a restart."""
    mode: Mode = "suggest"
    asked: str = ""
    """The remedy with an open proposal for this incident; empty if there is none."""

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """States that can be restored, oldest first."""
        return tuple(self.list_checkpoints())

    @property
    def critical(self) -> bool:
        """Whether one of the members is critical, so that there is damage."""
        return any(finding.severity == "critical" for finding in self.members)

    @property
    def damaged(self) -> bool:
        """Whether any unresolved finding is critical, including those that need no remedy."""
        return any(finding.severity == "critical" for finding in self.active)

    @property
    def acts(self) -> bool:
        """Whether fixes are applied without asking."""
        return self.mode in ("auto-safe", "auto-full")

    @property
    def since(self) -> int:
        """The earliest onset among the members; the current step if there are none."""
        return min((finding.onset_step for finding in self.members), default=self.view.step)

    def turns(self, onset: int) -> list[Turn]:
        """Undeclared changes of knobs around an onset or since."""
        return turns(self.view, onset, self.memory.courses)

    def puts_back(self, change: Change, onset: int) -> bool:
        """Whether a change restores the values from before an undeclared change."""
        return bool(change) and change == {turn.knob: (turn.now, turn.was) for turn in self.turns(onset)}

    def had_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """The subset of some findings that the incident ever had."""
        return tuple(name for name in names if name in self.had)

    def tried(self, remedy: str) -> bool:
        """Whether a remedy was tried or proposed for this incident and may not be tried again yet."""
        return self.memory.tried_by(self.incident, remedy, self.view.step)
