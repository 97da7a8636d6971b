"""Whether a page that tells a run's story must be drawn anew: a cheap answer for a poll that mostly says no."""

from __future__ import annotations

from typing import Any

from dashboards.data.state import Followed, Runs
from stabilizer.runs.asking import waiting
from stabilizer.runs.listing import state_of


def revision(runs: Runs, followed: Followed) -> list[Any]:
    """What must be the same for the page to be the same: findings, journal, events and attempt, then the state, the
    mode, how the run stands, and the requests that wait. Empty when the run can't be read."""
    try:
        with followed.lock:
            reader = followed.refresh()
            rows = [len(reader.findings), len(reader.actions), len(reader.events), reader.history.attempt]
            rows += [state_of(reader.status, runs.clock()), str(reader.status.get("remedy"))]
            stands = followed.standing()
            rows += [stands.verdict, stands.note, stands.ask, stands.problem]
    except Exception:  # the page says so when it is drawn
        return []
    return [*rows, *(request.id for request in waiting(followed.path))]
