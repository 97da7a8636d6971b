"""The order of events in an incident: which signals left their trend when, and how far.

The departure of a metric is the one that `case` dates for the rules, so this order and the cause cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stabilizer.core.records import Finding
from stabilizer.core.stats import median
from stabilizer.incidents.diagnosis.case import MARGIN, SOON, Case
from stabilizer.incidents.diagnosis.graph import STAGES, stage
from stabilizer.runs.history import RunView
from stabilizer.runs.listing import number

SINCE = 30
"""Rows after a departure whose median defines how far it went."""


class Departed(NamedTuple):
    """A signal that left its trend."""

    metric: str
    stage: str
    """Its place in the order in which trouble spreads."""
    step: int
    up: bool
    before: float | None
    """Median of up to 100 rows before the onset; None where there were too few."""
    after: float | None
    """Median of up to 30 rows since the departure."""

    @property
    def ratio(self) -> float | None:
        """After over before, where both are above zero."""
        if self.before is None or self.after is None or self.before <= 0 or self.after <= 0:
            return None
        return self.after / self.before


class Onset(NamedTuple):
    """The onset of an incident, and the range of steps it is known to lie in."""

    step: int
    earliest: int
    latest: int


def onset(findings: Sequence[Finding], view: RunView) -> Onset:
    """The onset of an incident with the uncertainty its rules use; nothing begins after it was detected."""
    case = Case(findings, view)
    noticed = min(finding.detected_step for finding in findings)
    latest = min(math.floor(case.onset + MARGIN * case.spacing), max(noticed, case.onset))
    return Onset(case.onset, max(0, math.ceil(case.onset - SOON * case.spacing)), latest)


def departures(findings: Sequence[Finding], view: RunView) -> tuple[Departed, ...]:
    """Signals that left their trend around the onset, the earliest first; of simultaneous ones the upstream first.

    Too early in a run, or for metrics whose order is not compared, a finding's own onset dates its metric.
    """
    case = Case(findings, view)
    found = []
    for move in case.moves:
        shift, since = case.shift(move.metric), case.rows(move.metric, move.step, 0, SINCE)
        before, after = (shift.before, median(since)) if shift and len(since) else (None, None)
        found.append(Departed(move.metric, STAGES[move.stage], move.step, move.up, before, after))
    for finding in sorted(findings, key=lambda f: f.onset_step):
        metric, before, now = (finding.evidence.get(key) for key in ("metric", "baseline", "now"))
        if isinstance(metric, str) and metric not in {signal.metric for signal in found}:
            was, is_now = number(before), number(now)
            up = is_now is None or was is None or is_now >= was
            found.append(Departed(metric, STAGES[stage(finding.id)], finding.onset_step, up, was, is_now))
    return tuple(sorted(found, key=lambda signal: (signal.step, STAGES.index(signal.stage))))
