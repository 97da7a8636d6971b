"""Size and modification time of files that may be gone already."""

from __future__ import annotations

from pathlib import Path


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def stamp_of(path: Path) -> tuple[int, int]:
    """A value that changes when the file is written to."""
    return modified_ns(path), size_of(path)
