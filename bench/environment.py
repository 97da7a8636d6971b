"""Environments of their own for the tools a benchmark compares with: made once, in the cache, not in the user's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "stabilizer"


def python_of(folder: Path) -> Path:
    """Where the Python of a virtual environment is."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def says_yes(python: Path, code: str) -> bool:
    """Whether this Python is there and runs this code without an error."""
    return python.exists() and subprocess.run([python, "-c", code], capture_output=True).returncode == 0  # noqa: S603


def install(python: Path, *packages: str) -> str | None:
    """Install; what went wrong, or None."""
    words = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    done = subprocess.run(words, capture_output=True, text=True)  # noqa: S603
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (lines or done.stderr.splitlines() or ["pip failed"])[-1][:300]
