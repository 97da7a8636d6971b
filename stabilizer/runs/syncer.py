"""Waiting for the disk in a background thread, so that a training step does not."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Hashable, Iterator
from queue import SimpleQueue
from threading import Lock, Thread

from stabilizer.runs.append import AppendFile


@contextlib.contextmanager
def held(lock: Lock) -> Iterator[None]:
    """`with lock`. At the interpreter's end nobody waits: a thread that was stopped may hold it, and no other runs."""
    got = lock.acquire(blocking=not sys.is_finalizing())
    try:
        yield
    finally:
        if got:
            lock.release()


class Syncer:
    """Waits for the disk in a thread of its own, for those with something better to do. A file that is to be synced
    outlives the process anyway; of what is still to be written, as a heartbeat, a killed process loses the newest."""

    def __init__(self) -> None:
        self.failed: dict[Hashable, Exception] = {}
        """What could not be done, and why; nothing of what was done since."""
        self._wanted: SimpleQueue[Hashable] = SimpleQueue()
        self._due: dict[Hashable, Callable[[], object]] = {}
        """What is in the queue: a disk that is slower than what is asked of it owes each of them one wait, not many."""
        self._counting = Lock()
        self._thread: Thread | None = None

    def soon(self, *files: AppendFile) -> None:
        """Have these on the disk before long; returns at once."""
        for file in files:
            self.do(file, file.sync)

    def do(self, what: Hashable, how: Callable[[], object]) -> None:
        """Have something done before long, in place of what was to be done about the same and has not begun."""
        if not self._works():
            self._try(what, how)
            return
        with held(self._counting):
            known = what in self._due
            self._due[what] = how
        if not known:
            self._wanted.put(what)

    def close(self) -> None:
        """Wait until all that was asked for is done."""
        thread, self._thread = self._thread, None
        if thread is not None and not sys.is_finalizing():
            self._wanted.put(None)
            thread.join()
        for what in list(self._due):  # of a thread that the interpreter, at its end, has stopped
            self._next(what)

    def _works(self) -> bool:
        """Whether there is a thread: no more of them may be had, and at the interpreter's end none goes on."""
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
            del what  # nor is it held while there is nothing to do: who asked may be gone

    def _next(self, what: Hashable) -> None:
        with held(self._counting):
            how = self._due.pop(what, None)  # before it is done: what is written meanwhile is asked for anew
        if how is not None:
            self._try(what, how)

    def _try(self, what: Hashable, how: Callable[[], object]) -> None:
        try:
            how()
        except Exception as error:  # the next thing to do is none the worse for it
            self.failed[what] = error
        else:
            self.failed.pop(what, None)
