"""Incidents as a run's records tell them: which findings belong together, and what an incident is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stabilizer.core.records import SEVERITIES, Cause, Finding, RemedyAdvice, worst


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
    def id(self) -> str:
        """The id of the finding it is named after."""
        return self.lead.id

    @property
    def key(self) -> str:
        """Its name in an address: its number, or the id of its finding where it never got one."""
        return str(self.number) if self.number else self.lead.id

    @property
    def state(self) -> str:
        """The state of the most severe finding."""
        return self.findings[0].state

    @property
    def others(self) -> tuple[Finding, ...]:
        """Its findings beside the one it is named after."""
        return tuple(finding for finding in self.findings if finding.id != self.lead.id)

    @property
    def harmful(self) -> bool:
        """Whether a finding that is more than information is unresolved."""
        return any(finding.state != "resolved" and finding.severity != "info" for finding in self.findings)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Possible causes on record, the most likely first."""
        found = next((finding.causes for finding in self.findings if finding.causes), ())
        return tuple(sorted(found, key=lambda cause: -cause.confidence))

    @property
    def remedies(self) -> tuple[RemedyAdvice, ...]:
        """Advice on record, before it is fitted to the state of the run."""
        return tuple(next((finding.remedies for finding in self.findings if finding.remedies), ()))

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
