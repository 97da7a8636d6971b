"""What people write for a path."""

from __future__ import annotations

from pathlib import Path


def expanded(path: str, where: str) -> Path:
    """The path with `~` expanded. ValueError, which names `where` the path is set, when there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = Path(path).parts[0]
        raise ValueError(f"{where}: no home folder is known for {user!r}; write the whole path") from None
