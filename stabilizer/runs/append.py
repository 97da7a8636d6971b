"""Appending lines to a file so that a crash loses at most the line being written.

One `os.write` per record on an O_APPEND descriptor. The kernel may write less than asked without an error, so the
return value is honoured; on a full disk or an I/O error the torn tail is cut off, the lines wait in a bounded queue,
and every later append tries again: logging must never stop training. The same goes for a file that can't be opened.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

QUEUE_LINES = 10_000


class AppendFile:
    """A file only this process appends to. Nothing raises: `error` says what is wrong, `lost` counts dropped lines."""

    def __init__(self, path: Path, *, sync: bool = False):
        self.path = path
        self.lost = 0
        self.error: OSError | None = None
        self._sync = sync
        self._torn = False
        self._waiting: deque[bytes] = deque()
        self._fd = -1
        self._end = 0
        try:
            self._open()
        except OSError as error:
            self.error = error

    def append(self, *lines: bytes, sync: bool = True) -> bool:
        """Add lines (newline included). True when they, and all before them, are in the file.

        A file that is synced is so once for all of them; lines added without `sync` wait for those after them.
        """
        for line in lines:
            self._waiting.append(line)
            if len(self._waiting) > QUEUE_LINES:
                self._waiting.popleft()
                self.lost += 1
        return self.flush(sync=sync)

    @property
    def waiting(self) -> int:
        """Lines not yet in the file."""
        return len(self._waiting)

    def flush(self, *, sync: bool = True) -> bool:
        """Try to write what is waiting; False while the file refuses."""
        try:
            if self._fd < 0:
                self._open()
            while self._waiting:
                self._write(self._waiting[0])
                self._waiting.popleft()
            if self._sync and sync:
                os.fsync(self._fd)
        except OSError as error:
            self.error = error
            return False
        self.error = None
        return True

    def sync(self) -> None:
        """Wait until the disk has what was written; nothing to do where the file is not open."""
        if self._fd < 0:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            self.error = error

    def close(self) -> None:
        """Write what can still be written and let go of the file."""
        if self._fd < 0 and not self._waiting:
            return
        self.flush()
        if self._fd >= 0:
            try:
                os.close(self._fd)
            except OSError as error:  # a network file system may report a failed write only now
                self.error = error
            self._fd = -1

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._end = os.fstat(descriptor).st_size
            torn = self._end and os.pread(descriptor, 1, self._end - 1) != b"\n"
        except OSError:
            os.close(descriptor)
            raise
        self._fd, self._torn = descriptor, False
        if torn:
            self._waiting.appendleft(b"\n")  # isolates a line torn by an earlier crash

    def _write(self, line: bytes) -> None:
        if self._torn:
            self._cut()
        done = 0
        try:
            while done < len(line):
                done += os.write(self._fd, line[done:])
        except OSError:
            if done:
                self._torn = True
                self._cut()
            raise
        self._end += len(line)

    def _cut(self) -> None:
        """Take a torn tail off; when even that fails it is tried again before the next line."""
        os.ftruncate(self._fd, self._end)
        self._torn = False


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
