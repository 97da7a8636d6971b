"""Appending lines to a file so that a crash loses at most the line being written.

One `os.write` per record on an O_APPEND descriptor. The kernel may write less than asked without an error, so the
return value is checked. On a full disk or an I/O error the torn end is cut off, the lines wait in a bounded queue, and
every later append tries again: logging must never stop training. The same holds for a file that can't be opened.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

QUEUE_LINES = 10_000
"""Lines of one file that wait in memory while the disk refuses them; then the oldest are dropped."""
MAX_LATE = 16
"""Files that are kept for their unwritten lines alone."""


class AppendFile:
    """A file that only one thread appends to. No method raises: `error` says why not, `lost` counts dropped lines."""

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

        A synced file is synced once for all of them. Lines added without `sync` are synced with later ones.
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

    def close(self) -> None:
        """Write what can still be written and close the file."""
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
        """Cut off a torn end; when that fails too, it is tried again before the next line."""
        os.ftruncate(self._fd, self._end)
        self._torn = False


class LateFiles:
    """Files that get no more lines, but some of whose lines the disk still refuses: at most `MAX_LATE` of them."""

    def __init__(self) -> None:
        self.files: deque[AppendFile] = deque()
        self.lost = 0
        """Lines of files that were given up."""

    def retire(self, file: AppendFile) -> None:
        """Close a file, or keep it while some of its lines are not written."""
        if file.flush():
            file.close()
            return
        self.files.append(file)
        if len(self.files) > MAX_LATE:
            oldest = self.files.popleft()
            oldest.close()
            self.lost += oldest.lost + oldest.waiting

    def retry(self) -> None:
        """Try each of them once more."""
        for _ in range(len(self.files)):
            self.retire(self.files.popleft())
