"""What a fix is chosen from: one incident of one run at one step, as a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Cause, Finding
from stabilizer.remedies.change import Change
from stabilizer.remedies.turns import Turn, turns
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import Memory

Mode = Literal["off", "suggest", "approve", "auto-safe", "auto-full"]
MODES: tuple[Mode, ...] = get_args(Mode)

OVERSHOT = ("lr-too-high", "undetermined")
"""Causes against which slowing down helps only while steps are too large. Against others it may be kept for good."""
OUTSIDE = ("prompts-too-hard", "data-shift", "reward-fault", "reward-hackable", "wrong-groups", "tool-broken")
"""Causes in the data or the reward, which no knob of the trainer removes. What an engine gets wrong is measured by the
token, so learning can correct for it; dead groups leave a batch too small, which can be made larger."""
IN_DOUBT = ("reward-fault", "reward-hackable")
"""Causes that make the reward a wrong measure of what was learned for as long as they last."""


@dataclass(frozen=True)
class Situation:
    """An incident, the run it happened in, and what was tried so far."""

    incident: int
    cause: Cause
    onset: int
    members: tuple[Finding, ...]
    """Unresolved findings of the incident that call for something."""
    view: RunView
    knobs: Mapping[str, float] = field(default_factory=dict)
    active: tuple[Finding, ...] = ()
    """All unresolved findings of the incident."""
    had: frozenset[str] = frozenset()
    """Ids of the findings that the incident ever had."""
    findings: tuple[Finding, ...] = ()
    """Every finding of the run so far, resolved ones too."""
    list_checkpoints: Callable[[], Sequence[Checkpoint]] = tuple
    """Reads which states can be returned to; asked only where a remedy goes back, because it reads the disk."""
    memory: Memory = field(default_factory=Memory)
    affordable: float = math.inf
    """Steps that fixes may still cost."""
    mode: Mode = "suggest"
    asked: str = ""
    """The remedy whose proposal for this incident waits for an answer; empty if none does."""

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """States that can be returned to, oldest first."""
        return tuple(self.list_checkpoints())

    @property
    def critical(self) -> bool:
        """Whether one of the members is critical, so that there is damage."""
        return any(finding.severity == "critical" for finding in self.members)

    @property
    def damaged(self) -> bool:
        """The same of all unresolved findings, those that call for nothing included."""
        return any(finding.severity == "critical" for finding in self.active)

    @property
    def acts(self) -> bool:
        """Whether fixes are applied without asking."""
        return self.mode in ("auto-safe", "auto-full")

    @property
    def since(self) -> int:
        """The earliest onset among the members; the present step where there are none."""
        return min((finding.onset_step for finding in self.members), default=self.view.step)

    def turns(self, onset: int) -> list[Turn]:
        """Knobs that were changed around an onset or since without a declaration."""
        return turns(self.view, onset, self.memory.courses)

    def puts_back(self, change: Change, onset: int) -> bool:
        """Whether a change gives settings the values that they had before an undeclared change."""
        return bool(change) and change == {turn.knob: (turn.now, turn.was) for turn in self.turns(onset)}

    def had_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of some findings that the incident ever had."""
        return tuple(name for name in names if name in self.had)

    def tried(self, remedy: str) -> bool:
        """Whether a remedy was tried or proposed for this incident and is not due again."""
        return self.memory.tried_by(self.incident, remedy, self.view.step)
