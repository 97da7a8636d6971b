"""Heartbeats of ranks other than the first: they have no run of their own and learn its folder from the first rank.

The folder travels through the store of torch.distributed, which both have anyway. Nothing here is a collective, so a
rank that does not take part holds up no other.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stabilizer.live.heart import Heart
from stabilizer.live.watchdog import Watchdog, wanted

KEY = "stabilizer/run"
ASKED_S = 1.0
"""Seconds between two questions for the folder of the run."""
CLOSING_S = 5.0
"""Longest wait at the end for a question that is being asked."""
GIVEN_UP_S = 1800.0
"""Seconds after which a rank stops to ask: the first rank has no run."""
_announced = 0
_awaited = 0


def announce(run: Path) -> None:
    """Tell the other ranks where the run is. Called by the first rank, once a run."""
    global _announced
    _announced += 1
    with contextlib.suppress(Exception):  # without a process group there are no others
        _store().set(f"{KEY}/{_announced}", str(run.resolve()))


class RankWatch:
    """The heart of one rank, watched as soon as the folder of the run is known. Nothing here raises."""

    def __init__(self, rank: int, world: int, folder: Callable[[], str] | None = None):
        global _awaited
        _awaited += 1
        on, fixed_s = wanted()
        self.heart = Heart(fixed_s=fixed_s)
        self._rank, self._world = rank, world
        self._folder = folder or _asked(f"{KEY}/{_awaited}")
        self._watchdog: Watchdog | None = None
        self._ending = threading.Event()
        self._asking = threading.Thread(target=self._wait, name="stabilizer", daemon=True)
        if on:
            self._asking.start()
            atexit.register(self._stop_asking)

    def follow(self, trainer: Any) -> None:
        """Take the phases and steps of a trainer of ours."""
        trainer.watched_by(stepping(self.heart, trainer))

    def close(self) -> None:
        """The rank has done its work."""
        self._stop_asking()
        if self._watchdog is not None:
            self._watchdog.close()

    def _stop_asking(self) -> None:
        """A thread inside torch's store when the interpreter ends would abort the process (SIGABRT)."""
        self._ending.set()
        if self._asking.is_alive():
            self._asking.join(CLOSING_S)

    def _wait(self) -> None:
        end = time.monotonic() + GIVEN_UP_S
        while time.monotonic() < end and not self._ending.wait(ASKED_S):
            with contextlib.suppress(Exception):  # the store is not there yet, or not any more
                if run := self._folder():
                    self._watchdog = Watchdog(Path(run), self.heart, rank=self._rank, world=self._world)
                    self._watchdog.start()
                    return


def stepping(heart: Heart, trainer: Any) -> Callable[[str], None]:
    """Enters phases of a trainer of ours, with the step it has finished."""

    def enter(phase: str) -> None:
        heart.step = trainer.step
        heart.enter(phase)

    return enter


def _asked(key: str) -> Callable[[], str]:
    def folder() -> str:
        store = _store()
        return store.get(key).decode() if store.check([key]) else ""

    return folder


def _store() -> Any:
    """The store of the process group; an exception without one."""
    from torch.distributed import distributed_c10d  # imports torch, which a rank has imported already

    return distributed_c10d._get_default_store()
