"""Whether a run or a log lies wholly under the given folders: a link could expose any file of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path


class Containment:
    """The folders that were given, and what was found out about runs under them. Safe to share between threads."""

    def __init__(self, roots: Sequence[Path]):
        self._roots = tuple(roots)
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[tuple[int, ...], bool]] = {}

    def holds(self, path: Path) -> bool:
        """Whether the path and all links in it lead to places under the roots; checked again when a folder changed."""
        places = (path, path / "metrics", path / "samples", path / "requests")
        stamp = tuple(_changed(place) for place in places)
        with self._lock:
            known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = (stamp, self.has(path) and all(map(self.has, _links(path))))
            with self._lock:
                self._known[path] = known
        return known[1]

    def has(self, path: Path) -> bool:
        """Whether a path leads to a place under one of the roots."""
        real = os.path.realpath(path)
        return any(Path(real).is_relative_to(os.path.realpath(root)) for root in self._roots)


def _links(folder: Path) -> Iterator[Path]:
    """The links in a folder and below it."""
    for where, below, files in os.walk(folder):
        yield from (Path(where, name) for name in (*below, *files) if os.path.islink(os.path.join(where, name)))


def _changed(path: Path) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return 0
