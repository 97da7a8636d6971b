"""The phases of a training process: which one it is in, since when, and how long such a phase may take.

The loop's thread enters and leaves phases; that costs two readings of a clock. The watchdog's thread reads them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from threading import get_ident
from typing import NamedTuple

PHASES = ("data", "rollout", "reward", "sync", "update", "validation", "save", "trial", "paused", "other")
"""What a training process does. `trial` is a fix tried on a copy of the run; `paused` waits for a person and is never
judged; `other` is everything between."""
WHOLE = ("validation", "trial")
"""Phases whose parts are not told apart: a validation generates more than a step does."""
KEPT = 64
"""Newest durations of each phase that define its usual time."""
LEARNED = 3
"""Durations below which a phase has no usual time yet: the first ones compile, load and allocate."""
FACTOR = 5.0
"""Limit of a phase in its longest usual durations. As in `system/stalled`."""
FLOOR_S = {"save": 600.0, "validation": 900.0, "trial": 3600.0}
"""Seconds below which no phase counts as stalled, where that is more than `OTHERS_S`. A checkpoint goes to a shared
disk at times; a validation grows with the length of the answers."""
OTHERS_S = 120.0
"""The same for all other phases. Below the 600 s after which NCCL gives up, so that the rank is named before."""
FIRST_S = 1800.0
"""Limit while a phase has no usual time, in seconds: torch gives a collective over gloo as long."""
FIRST_LONG_S = 3600.0
"""The same for a validation and a trial, which may be hundreds of steps."""
BUSY = 3.0
"""A process that computes gets so many times the limit: it is more often slow than stuck."""
UNUSUAL = 8
"""Durations from which on the longest is left out of the usual ones: one compilation must not hide later hangs."""


class Segment(NamedTuple):
    """A phase in progress."""

    phase: str
    since: float
    """When it began, by the heart's clock."""
    pending: str
    thread: int
    """The thread that entered it."""
    number: int
    """Counts segments, so that a new one of the same phase can be recognised."""


class Heart:
    """The phases of one process. `enter`, `phase` and `beat` belong to the loop's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, fixed_s: float | None = None):
        self.clock = clock
        self.fixed_s = fixed_s
        """A limit for every phase that the user gave, in seconds."""
        self.step = 0
        self._durations: dict[str, deque[float]] = {name: deque(maxlen=KEPT) for name in PHASES}
        self.now = Segment("other", clock(), "", get_ident(), 0)

    def enter(self, phase: str, pending: str = "") -> None:
        """Leave the phase in progress and begin another one."""
        now, before = self.clock(), self.now
        if (durations := self._durations.get(before.phase)) is not None:
            durations.append(now - before.since)
        self.now = Segment(phase, now, pending, get_ident(), before.number + 1)

    @contextmanager
    def phase(self, phase: str, pending: str = "") -> Iterator[None]:
        """A phase within another one, which goes on afterwards. A validation and a trial are one phase as a whole."""
        outer = self.now
        if outer.phase in WHOLE:
            yield
            return
        self.enter(phase, pending)
        try:
            yield
        finally:
            self.enter(outer.phase, outer.pending)

    def beat(self, step: int) -> None:
        """A step ended."""
        self.step = step
        self.enter("other")

    def usual(self, phase: str) -> float | None:
        """Seconds that a phase usually takes; None while it never ended."""
        known = self._known(phase)
        return median(known) if known else None

    def limit(self, phase: str, *, busy: bool = False) -> float:
        """Seconds after which a phase counts as stalled."""
        if phase == "paused":
            return math.inf
        if self.fixed_s is not None:
            return self.fixed_s
        known = self._known(phase)
        long = phase in WHOLE
        limit = FIRST_LONG_S if long else FIRST_S
        if len(known) >= LEARNED:
            longest = known[-2] if len(known) >= UNUSUAL else known[-1]
            limit = max(FLOOR_S.get(phase, OTHERS_S), FACTOR * longest)
        return limit * BUSY if busy else limit

    def _known(self, phase: str) -> list[float]:
        """The durations of a phase in ascending order; the loop's thread may add one at any time."""
        durations = self._durations.get(phase, ())
        for _ in range(3):
            try:
                return sorted(durations)
            except RuntimeError:  # it grew meanwhile
                continue
        return []
