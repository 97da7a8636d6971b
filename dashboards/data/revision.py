"""Whether a page about incidents or trials must be redrawn: a cheap test for polls, most of which find no change."""

from __future__ import annotations

from typing import Any

from dashboards.data.followed_run import FollowedRun
from dashboards.data.run_registry import Runs
from stabilizer.runs.asking import waiting
from stabilizer.runs.listing import state_of


def revision(runs: Runs, followed: FollowedRun) -> list[Any]:
    """Everything that redraws the page when it changes: findings, journal, events and attempt, then the state, the
    mode, the verdict and the pending requests. Empty when the run can't be read.
    """
    try:
        with followed.lock:
            reader = followed.refresh()
            rows: list[Any] = [len(reader.findings), len(reader.actions), len(reader.events), reader.history.attempt]
            rows += [state_of(reader.status, runs.clock()), str(reader.status.get("remedy"))]
            verdict = followed.verdict()
            rows += [verdict.verdict, verdict.note, verdict.ask, verdict.problem]
    except Exception:  # the page reports it when it is drawn
        return []
    return [*rows, *(request.id for request in waiting(followed.path))]
