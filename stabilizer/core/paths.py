"""Paths: what people write for one, and where the sample runs lie."""

from __future__ import annotations

from pathlib import Path


def expanded(path: str, where: str) -> Path:
    """The path with `~` expanded. ValueError, which names `where` the path is set, when there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = Path(path).parts[0]
        raise ValueError(f"{where}: no home folder is known for {user!r}; write the whole path") from None


def sample_runs() -> Path:
    """The folder of the sample runs: inside an installed package, beside the package in the repository."""
    package = Path(__file__).parents[1]
    inside = package / "sample_runs"
    return inside if inside.is_dir() else package.parent / "sample_runs"
