"""The disk work of one writer: done in order, in a thread of its own, and waited for only so long.

A disk that answers makes no difference to the caller: the work is done when `do` returns. When a disk or a network file
system hangs, the caller goes on after `PATIENCE_S`, and what it asks for meanwhile waits in memory.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from stabilizer.runs.syncer import CLOSE_S, held

PATIENCE_S = 0.2
"""Seconds that a caller waits for the disk: below the longest pause that a training step may get, 250 ms."""
ROOM = 10_000
"""Pieces of work that may wait. Further rows, events and samples are dropped and counted."""


class _Work:
    """One piece of work, its result, and whether its caller still waits for that."""

    __slots__ = ("answer", "awaited", "done", "error", "how")

    def __init__(self, how: Callable[[], Any]):
        self.how = how
        self.done = threading.Event()
        self.awaited = True
        self.answer: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.answer = self.how()
        except Exception as error:
            self.error = error
        self.done.set()


class Disk:
    """Does work for one writer."""

    def __init__(self) -> None:
        self.lost = 0
        """Pieces of work that were dropped because too many waited."""
        self.failed: Exception | None = None
        """What the last work ended with that nobody waited for any more."""
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._counting = threading.Lock()
        self._waiting = 0
        self._began = 0.0
        """When the work in progress began, on the monotonic clock; 0 while there is none."""
        self.behind = False
        """Whether work was not done in time and some of it still waits."""

    @property
    def waiting(self) -> int:
        """Pieces of work that are not done."""
        return self._waiting

    @property
    def silent_s(self) -> float:
        """Seconds since which the disk has not answered; 0 while it answers in time."""
        return max(0.0, time.monotonic() - self._began) if self.behind and self._began else 0.0

    def do(self, how: Callable[[], Any], *, patience_s: float = PATIENCE_S, room: int | None = ROOM) -> Any:
        """The result of some work, or None where it is not done in time.

        Once the disk is behind, nobody waits until it caught up. Work is dropped when `room` pieces wait already,
        unless that is None. An exception of the work is raised here if it comes in time.
        """
        if threading.current_thread() is self._thread or not self._works():
            return how()
        if room is not None and self._waiting >= room:
            self.lost += 1
            return None
        work = _Work(how)
        self._count(1)
        self._queue.put(work)
        if work.done.wait(0 if self.behind else patience_s):
            if work.error is not None:
                raise work.error
            return work.answer
        work.awaited, self.behind = False, self._waiting > 0
        return None

    def answers(self, within_s: float = 0.0) -> bool:
        """Whether all work asked for so far is done, or will be within so many seconds."""
        if not self.behind or within_s <= 0:
            return not self.behind
        work = _Work(_nothing)
        self._count(1)
        self._queue.put(work)
        return work.done.wait(within_s)

    def end(self) -> None:
        """Let the thread end once all work is done. Nothing waits for it."""
        self._queue.put(None)

    def close(self) -> bool:
        """Wait until all work is done, but not for a disk that never answers; whether it is done."""
        thread, self._thread = self._thread, None
        if thread is not None and not sys.is_finalizing():
            self.end()
            thread.join(CLOSE_S)
            if thread.is_alive():
                return False
        while not self._queue.empty():  # left over by a thread that the interpreter has stopped at its end
            if (work := self._queue.get()) is not None:
                self._do(work)
        return True

    def _works(self) -> bool:
        """Whether a thread can do the work: the system may refuse one, and none runs at the interpreter's end."""
        if sys.is_finalizing():
            return False
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._work, name="disk", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            self._do(work)
            del work  # holds nothing alive while the queue is empty

    def _do(self, work: _Work) -> None:
        self._began = time.monotonic()
        work.run()
        self._began = 0.0
        if self._count(-1) == 0:
            self.behind = False
        if not work.awaited:
            self.failed = work.error

    def _count(self, change: int) -> int:
        with held(self._counting):
            self._waiting += change
            return self._waiting


def _nothing() -> None:
    """Work that is done once all work before it is."""
