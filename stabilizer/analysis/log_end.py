"""How another trainer's log ended, as far as it shows: with an error, the trainer's last line, or the last step.

An end is not final while more may be written: a wrapper may restart a crashed training, and an evaluation may follow
the last step. A follower therefore waits for growth (`Rest`) before it accepts the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stabilizer.detectors.evidence.ending import ending
from stabilizer.runs.history import RunView

SETTLED_S = 10.0
"""Seconds without growth after which an end is reported: processes that shut down still write a little."""
GRACE_S = 60.0
"""Seconds without growth after which a log that ended is considered complete."""
PACE = 3
"""The wait lasts at least this many steps of the log: training may have survived the error."""
SLOWEST_S = 3600.0
"""Longest step duration that is accepted: a clock that was reset, or in other units, can show any value."""
LONGER = 10
"""Factor on the wait if the log may continue: something was written after the error, or no last line was seen."""


class LogEnd(NamedTuple):
    """The end of a log."""

    what: str
    crashed: bool
    sure: bool
    """Nothing follows unless the training is restarted."""


def log_end(view: RunView) -> LogEnd | None:
    """How the log with this newest view has ended; None if there is no sign of an end."""
    if failure := ending(view):
        why = f"{failure.harmless}; it ended with " if failure.harmless else ""
        where = failure.where.partition("; ")[0]
        return LogEnd(
            f"{why}{failure.message} ({where})" if where else why + failure.message, not failure.harmless, True
        )
    if last := view.about("ended"):
        return LogEnd(f"its trainer finished: {last}", False, True)
    planned = view.about("steps")
    if isinstance(planned, int) and 0 < planned <= view.step:
        return LogEnd(f"all {planned:,} planned steps are done", False, False)
    return None


def pace(view: RunView) -> float:
    """Seconds per step, from the newest twenty steps, at most `SLOWEST_S`; 0 if unknown."""
    took = view.series("time/step_s").last(20).finite().values
    if not len(took):
        took = np.diff(view.times().last(21).finite().values)
    took = np.minimum(took[took > 0], SLOWEST_S)
    return float(np.median(took)) if len(took) else 0.0


class Wait(NamedTuple):
    """A log that ended, and the remaining wait."""

    end: LogEnd
    seconds: float
    """Seconds to wait without growth, in total."""
    over: bool
    """Whether the wait is over."""
    wrote_on: bool
    """Whether something other than training was written after the end."""
    new: bool
    """Whether this end was not reported before."""


class Rest:
    """How long an ended log has not grown. The wait is `grace` seconds, or without it follows from the log's pace."""

    def __init__(self, grace: float | None, now: float):
        self._grace, self._grew = grace, now
        self._told: LogEnd | None = None
        self._wrote_on = self._said_so = False

    def look(self, end: LogEnd | None, *, grew: bool, now: float, step_s: float) -> Wait | None:
        """The state at `now`; None while the log continues. `grew` is whether the log grew since the last call."""
        if grew:
            self._grew = now
            self._wrote_on = self._told is not None
            return None
        base = max(GRACE_S, PACE * min(step_s, SLOWEST_S)) if self._grace is None else self._grace
        if end is None:
            self._told = None
            return None
        if now - self._grew < min(SETTLED_S, base):
            return None
        if end != self._told:
            self._wrote_on = self._said_so = False
        new = end != self._told or self._wrote_on != self._said_so
        self._told, self._said_so = end, self._wrote_on
        seconds = base * (LONGER if self._wrote_on or not end.sure else 1)
        return Wait(end, seconds, now - self._grew >= seconds, self._wrote_on, new)
