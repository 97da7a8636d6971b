"""Incidents as a run's records tell them: which findings belong together, and what an incident is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stabilizer.core.records import SEVERITIES, Finding, worst


@dataclass(frozen=True)
class Incident:
    """Findings that belong together, newest record of each, the gravest and earliest first.

    Its title, and the numbers in its headline, are those that were told when it opened or got worse: they stay while it
    lives, whatever joins it later.
    """

    number: int
    findings: tuple[Finding, ...]
    lead: Finding
    """The finding it is named after: the gravest of those it opened with."""
    told: str
    """What was said of that finding when it last opened or got worse."""
    onset: int
    """When the first of it began."""
    detected: int
    """When the first of it was noticed."""

    @property
    def latest(self) -> str:
        """What is said of the lead by now, where that is something else."""
        return "" if self.lead.summary == self.told else self.lead.summary

    @property
    def severity(self) -> str:
        """The gravest severity among the findings."""
        return worst(finding.severity for finding in self.findings) or "info"

    @property
    def open(self) -> bool:
        """Whether anything of it still stands."""
        return any(finding.state != "resolved" for finding in self.findings)

    @property
    def last(self) -> int:
        """When the last of it was seen."""
        return max(finding.last_step for finding in self.findings)

    @property
    def headline(self) -> str:
        """What was reported when it opened or got worse, where none of its findings says the same by now."""
        return "" if self.told in {finding.summary for finding in self.findings} else self.told

    @property
    def explained(self) -> Finding:
        """The finding with the newest explanation, the gravest of several.

        A resolved finding keeps its explanation: what is left of the incident may no longer show its cause.
        """
        known = [f for f in self.findings if f.causes and f.causes[0].id != "undetermined"]
        return max(
            known or self.findings,
            key=lambda f: (bool(f.causes), f.last_step, f.detected_step, SEVERITIES.index(f.severity)),
        )

    @property
    def cause(self) -> str:
        """The likeliest cause, `undetermined` when no rule explains what was seen."""
        causes = self.explained.causes
        return causes[0].id if causes else "undetermined"


def newest_findings(records: Iterable[Finding]) -> list[Finding]:
    """findings.jsonl holds one record per change: the newest record of each finding, in order of first appearance."""
    newest: dict[tuple[int, str], Finding] = {}
    for finding in records:
        newest[finding.incident, finding.id] = finding
    return list(newest.values())


def incidents(records: Iterable[Finding]) -> list[Incident]:
    """Findings grouped by incident, oldest onset first. Findings of no incident (number 0) stand alone."""
    groups: dict[Any, dict[str, list[Finding]]] = {}
    for finding in records:
        groups.setdefault(finding.incident or finding.id, {}).setdefault(finding.id, []).append(finding)
    return sorted((_incident_of(list(lives.values())) for lives in groups.values()), key=lambda found: found.onset)


def _incident_of(lives: Sequence[Sequence[Finding]]) -> Incident:
    """One incident from the records of each of its findings, in the order in which they first appeared."""
    newest = [life[-1] for life in lives]
    ranked = sorted(newest, key=lambda f: (f.state == "resolved", -SEVERITIES.index(f.severity), f.onset_step))
    first = lives[0][0]
    with_it = [
        life for life in lives if (life[0].attempt, life[0].detected_step) == (first.attempt, first.detected_step)
    ]
    lead = max(with_it, key=lambda life: SEVERITIES.index(life[0].severity))
    every = [record for life in lives for record in life]
    return Incident(
        first.incident, tuple(ranked), lead[-1], _told(lead),
        onset=min(record.onset_step for record in every), detected=min(record.detected_step for record in every),
    )  # fmt: skip


def _told(life: Sequence[Finding]) -> str:
    """The summary of a finding when it last opened or got worse, from its records."""
    told = life[0].summary
    for before, record in pairwise(life):
        worse = SEVERITIES.index(record.severity) > SEVERITIES.index(before.severity)
        if worse or (before.state == "resolved" and record.state != "resolved"):
            told = record.summary
    return told
