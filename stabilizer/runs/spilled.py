"""Room for the numbers of a long run in a temporary file that is mapped into memory.

The arrays behave like any others. The rows that a live watch has passed are taken out of the process's memory, and the
system reads them back if something looks at them again. Where no such file can be made, the numbers stay in memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref

import numpy as np

LEAST_ROWS = 16_384
"""Rows from which on a column is worth a file: 256 kB."""
MOST_FILES = 200
"""Files that one process has open for this: each takes a descriptor, and a process often has 1,024."""
KEPT_ROWS = 8_192
"""Newest rows of a column that stay in memory: four times what a signal keeps (`column.REACH`)."""
PAGE = mmap.PAGESIZE

_open_files = 0


class Spilled:
    """Two arrays of one length, steps and values, in a file of their own."""

    def __init__(self, rows: int):
        """OSError when there is no room on the disk, or too many such files are open."""
        global _open_files
        if _open_files >= MOST_FILES or not hasattr(mmap, "MADV_DONTNEED") or not hasattr(os, "posix_fallocate"):
            raise OSError("no file for old rows")
        self._half = -(-8 * rows // PAGE) * PAGE
        with tempfile.TemporaryFile(prefix="stabilizer-") as file:
            os.posix_fallocate(file.fileno(), 0, 2 * self._half)  # a full disk must show now, and not as a signal later
            self._map = mmap.mmap(file.fileno(), 2 * self._half)
        _open_files += 1
        weakref.finalize(self._map, _closed)
        self.steps = np.frombuffer(self._map, np.int64, rows)
        self.values = np.frombuffer(self._map, float, rows, self._half)

    def pass_by(self, rows: int) -> None:
        """Take the first rows out of memory. They stay readable."""
        if size := 8 * rows // PAGE * PAGE:
            for start in (0, self._half):
                self._map.madvise(mmap.MADV_DONTNEED, start, size)


def _closed() -> None:
    global _open_files
    _open_files -= 1
