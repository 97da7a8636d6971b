"""Waiting for the disk in a background thread, so that a training step does not."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Hashable, Iterator
from queue import SimpleQueue
from threading import Lock, Thread

CLOSE_S = 60.0
"""Longest wait for the disk when a run ends, in seconds. A disk that spins up or a busy network takes up to 30 s."""


@contextlib.contextmanager
def held(lock: Lock) -> Iterator[None]:
    """`with lock`, but without waiting at the interpreter's end: a stopped thread may hold the lock for ever."""
    got = lock.acquire(blocking=not sys.is_finalizing())
    try:
        yield
    finally:
        if got:
            lock.release()


class Syncer:
    """Does work that waits for the disk in a background thread. A killed process loses only what was not written yet,
    such as the newest heartbeat: lines that wait for a sync are already in their file."""

    def __init__(self) -> None:
        self.failed: dict[Hashable, Exception] = {}
        """Work that failed, and why, until the same work succeeds."""
        self._wanted: SimpleQueue[Hashable] = SimpleQueue()
        self._due: dict[Hashable, Callable[[], object]] = {}
        """Work in the queue, by key: however often the same work is asked for, a slow disk does it once."""
        self._counting = Lock()
        self._thread: Thread | None = None

    def do(self, what: Hashable, how: Callable[[], object]) -> None:
        """Do something in the background. It replaces work of the same key that has not begun."""
        if not self._works():
            self._try(what, how)
            return
        with held(self._counting):
            known = what in self._due
            self._due[what] = how
        if not known:
            self._wanted.put(what)

    def close(self) -> None:
        """Wait until all work is done, but not for a disk that never answers."""
        thread, self._thread = self._thread, None
        if thread is not None and not sys.is_finalizing():
            self._wanted.put(None)
            thread.join(CLOSE_S)
            if thread.is_alive():
                self.failed["closing"] = TimeoutError(f"the disk did not answer within {CLOSE_S:g} s")
                return
        for what in list(self._due):  # left over by a thread that the interpreter has stopped at its end
            self._next(what)

    def _works(self) -> bool:
        """Whether a thread can do the work: the system may refuse one, and none runs at the interpreter's end."""
        if sys.is_finalizing():
            return False
        if self._thread is None:
            thread = Thread(target=self._work, name="syncer", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _work(self) -> None:
        while (what := self._wanted.get()) is not None:
            self._next(what)
            del what  # holds nothing alive while the queue is empty

    def _next(self, what: Hashable) -> None:
        with held(self._counting):
            how = self._due.pop(what, None)  # before it is done: work asked for meanwhile is queued again
        if how is not None:
            self._try(what, how)

    def _try(self, what: Hashable, how: Callable[[], object]) -> None:
        try:
            how()
        except Exception as error:  # a failure must not stop the work after it
            self.failed[what] = error
        else:
            self.failed.pop(what, None)
