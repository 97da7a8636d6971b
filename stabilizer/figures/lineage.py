"""Which lineage of a run an incident happened on: the current one, or a branch that was rolled back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stabilizer.core.records import Finding


@dataclass(frozen=True)
class Lineage:
    """The attempts of one lineage: for each its first step, and the step from which the next one continued."""

    steps: Mapping[int, tuple[float, float]]
    known: frozenset[int] = frozenset()
    """All attempts on record."""

    @classmethod
    def of(cls, attempt: int, about: Mapping[str, Any]) -> Lineage:
        """The lineage that ends with an attempt, from `run.json`; empty for a log, which records none."""
        listed = about.get("attempts")
        rows = {
            row["attempt"]: row
            for row in (listed if isinstance(listed, list) else ())
            if isinstance(row, Mapping) and isinstance(row.get("attempt"), int)
        }
        steps: dict[int, tuple[float, float]] = {}
        end: float = math.inf
        now: Any = attempt
        while now in rows and now not in steps:
            start = rows[now].get("from_step")
            start = start if isinstance(start, int) else 0
            steps[now] = (start, end)
            end, parent = min(end, start), rows[now].get("parent")
            if not isinstance(parent, int):
                break
            now = parent
        return cls(steps, frozenset(rows))


def on_lineage(records: Iterable[Finding], lineage: Lineage) -> list[Finding]:
    """The newest record of each finding on a lineage, limited to the steps of that lineage.

    `records` may be all of findings.jsonl: then a finding that outlived a rollback is followed from branch to branch.
    """
    lives: dict[tuple[int, str], list[Finding]] = {}
    for record in records:
        lives.setdefault((record.incident, record.id), []).append(record)
    found = (_on_lineage(life, lineage) for life in lives.values())
    return [finding for finding in found if finding is not None]


def _on_lineage(life: list[Finding], lineage: Lineage) -> Finding | None:
    if not lineage.steps or not lineage.known.issuperset(record.attempt for record in life):
        return life[-1]
    opened = life[0].attempt
    last = {record.attempt: record for record in life if record.attempt in lineage.steps}
    parts = []
    for attempt, record in last.items():
        first, end = lineage.steps[attempt]
        began_here = attempt == opened or first <= record.onset_step <= record.last_step
        start = record.onset_step if began_here else first
        if start < end:
            parts.append((start, min(record.last_step, end - 1), record))
    if not parts:
        return None
    newest = parts[-1][2]
    goes_on = newest is life[-1] and newest.last_step < lineage.steps[newest.attempt][1]
    return replace(
        newest,
        onset_step=int(min(start for start, _, _ in parts)),
        last_step=int(max(end for _, end, _ in parts)),
        state=newest.state if goes_on else "resolved",
    )
