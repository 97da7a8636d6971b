"""One step of a run as printers take it: from a live run, or read from a log. It imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabilizer.core.records import Action, Finding


@dataclass(frozen=True)
class Tick:
    """What a step brought."""

    step: int
    steps: int | None
    """Planned steps; None where the log does not say."""
    metrics: dict[str, float]
    findings: list[Finding]
    """Findings that opened, changed or closed at this step; the first tick also has those before the first step."""
    actions: Sequence[Action]
    """Journal entries written after this step."""
    open_incidents: int
    troubles: Sequence[str] = ()
    """Failures at this step that did not end training, each reported once."""
