"""The interface of every detector: a pure function of a run up to a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from stabilizer.core.records import Finding, Severity
from stabilizer.runs.history import RunView


class Detector:
    """One failure mode. File, class and id use the same words; the class docstring is its manual page.

    `check` keeps no state, reads no clock and no file, and sees only the view it is given. Its answer for a step is the
    same live, in replay and after a resume. It reports what it sees at that step: `incidents.watch` handles
    persistence, merging and closing, `incidents.diagnosis` causes, and `remedies` changes. Subclasses are frozen
    dataclasses; their fields are the options, each with its unit.
    """

    id: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """Metrics without which nothing can be checked (alternatives joined by `|`)."""
    confirm: ClassVar[int] = 3
    """Consecutive ticks a finding must last before it opens an incident; 1 where a single row is proof."""
    at_end: ClassVar[bool] = False
    """Checked once, when a run or its log is over: only then is it known that nothing followed."""

    def check(self, view: RunView) -> Finding | None:
        """The finding at `view.step`, or None."""
        raise NotImplementedError

    def ends(self, view: RunView) -> list[Finding]:
        """The findings that only the end of a run or its log shows, of this failure or of others."""
        found = self.check(view) if self.at_end else None
        return [found] if found else []

    def missing(self, view: RunView) -> list[str]:
        """Which of `needs` this run never measured."""
        return [need for need in self.needs if not any(name in view for name in need.split("|"))]

    def confirmed(
        self, found: Finding | None, view: RunView, look: Callable[[RunView], Finding | None]
    ) -> Finding | None:
        """The finding, as information unless it was already more than that `confirm` rows ago. For detectors whose
        hints last long, where a hint would otherwise be a shortcut to a warning."""
        if found is None or found.severity == "info":
            return found
        steps = view.series(str(found.evidence["metric"])).steps
        before = look(view.at(int(steps[-self.confirm]))) if len(steps) >= self.confirm else None
        return found if before is not None and before.severity != "info" else replace(found, severity="info")

    def finding(self, view: RunView, severity: Severity, onset: int, summary: str, **evidence: Any) -> Finding:
        """A finding of this detector at the view's step."""
        return Finding(
            id=self.id,
            severity=severity,
            summary=summary,
            onset_step=int(onset),
            detected_step=view.step,
            last_step=view.step,
            evidence=evidence,
            attempt=view.attempt,
        )
