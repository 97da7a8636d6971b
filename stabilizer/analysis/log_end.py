"""How another trainer's log ended, as far as it can tell: in an error, with the trainer's last line, or its last step.

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
"""Seconds without growth after which a log that ended is believed to be over."""
PACE = 3
"""A log with long steps is waited for at least this many steps: training may have survived the error."""
SLOWEST_S = 3600.0
"""Longest that a step is believed to take: a clock that was reset, or in other units, can show any value."""
LONGER = 10
"""Factor on the wait where the log may continue: something was written after the error, or no last line was seen."""


class LogEnd(NamedTuple):
    """What the end of a log says."""

    what: str
    crashed: bool
    sure: bool
    """Nothing follows unless the training is restarted."""


def log_end(view: RunView) -> LogEnd | None:
    """How the log of which this is the newest view has ended; None while nothing says that it did."""
    if failure := ending(view):
        why = f"{failure.harmless}; it ended with " if failure.harmless else ""
        where = failure.where.partition("; ")[0]
        return LogEnd(
            f"{why}{failure.message} ({where})" if where else why + failure.message, not failure.harmless, True
        )
    if last := view.about("ended"):
        return LogEnd(f"its trainer is done: {last}", False, True)
    planned = view.about("steps")
    if isinstance(planned, int) and 0 < planned <= view.step:
        return LogEnd(f"all {planned:,} planned steps are done", False, False)
    return None


def pace(view: RunView) -> float:
    """Seconds a step takes, by what the newest twenty say, at most `SLOWEST_S`; 0 where nothing says."""
    took = view.series("time/step_s").last(20).finite().values
    if not len(took):
        took = np.diff(view.times().last(21).finite().values)
    took = np.minimum(took[took > 0], SLOWEST_S)
    return float(np.median(took)) if len(took) else 0.0


class Wait(NamedTuple):
    """A log that ended, and how long it is still waited for."""

    end: LogEnd
    seconds: float
    """Without growth, in all."""
    over: bool
    """They have passed."""
    wrote_on: bool
    """Something was written after the end, but nothing that was trained."""
    new: bool
    """Not reported before."""


class Rest:
    """How long a log that ended has rested. `grace` seconds are waited, or without it what its pace suggests."""

    def __init__(self, grace: float | None, now: float):
        self._grace, self._grew = grace, now
        self._told: LogEnd | None = None
        self._wrote_on = self._said_so = False

    def look(self, end: LogEnd | None, *, grew: bool, now: float, step_s: float) -> Wait | None:
        """How things stand at `now`; None while the log goes on. It `grew` since the look before or did not."""
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
