"""Versions of packages as texts beside a run tell them: `pip freeze`, `pip list`, lock files, `trl env`, banners.

A trainer's defaults and rules change between versions, so that a version beside the configuration or in the log
is worth more than the newest one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stabilizer.trainers.schema import Schema

PACKAGES = {
    "trl": ("trl",),
    "open-r1": ("trl",),
    "ms-swift": ("ms-swift", "ms_swift", "swift"),
    "llama-factory": ("llamafactory", "llama-factory", "llamafactory-cli"),
    "verl": ("verl",),
    "easyr1": ("verl",),
    "search-r1": ("verl",),
    "openrlhf": ("openrlhf",),
    "skyrl": ("skyrl", "skyrl-train"),
    "nemo-rl": ("nemo-rl", "nemo_rl"),
    "prime-rl": ("prime-rl", "prime_rl"),
    "slime": ("slime",),
    "areal": ("areal",),
    "roll": ("roll",),
}
"""Names of the package whose version is the trainer's; of Open-R1 that of TRL, whose rules apply."""
FILES = (
    "pip_freeze.txt", "pip-freeze.txt", "freeze.txt", "requirements.lock", "uv.lock", "poetry.lock", "pdm.lock",
    "requirements.txt", "environment.yml", "environment.yaml", "env.txt", "trl_env.txt",
)  # fmt: skip
"""Files beside a configuration that tell installed versions, the most exact first."""
MOST_BYTES = 4 * 2**20
"""Bytes of such a file that are read; a lock file of a large project has about one MiB."""
_NUMBER = r"v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?(?:[.-]?(?:dev|post|rc|a|b)\d{0,4})?)(?![\d.]*\d)"
_GAP = r"[ \t]{0,80}"
"""Blanks within a line. Bounded, because two unbounded gaps side by side take quadratic time on a text of blanks."""
_LINES = (
    rf"^{_GAP}[-*]?{_GAP}`?NAME`?{_GAP}(?:version{_GAP})?(?:={{2,3}}|:|@|[ \t]){_GAP}{_NUMBER}",  # pip freeze, trl env
    rf'^name = "NAME"\r?\nversion = "{_NUMBER}"',  # uv.lock, poetry.lock
    rf"^{_GAP}-{_GAP}NAME{_GAP}={{1,2}}{_GAP}{_NUMBER}",  # environment.yml
)
_BANNERS = {
    "llama-factory": (rf"Welcome to LLaMA Factory, version {_NUMBER}", rf"`llamafactory` version: {_NUMBER}"),
    "ms-swift": (rf"swift[._]version['\"]?\s*[:=]\s*['\"]?{_NUMBER}",),
    "trl": (rf"TRL version:\s*{_NUMBER}",),
    "open-r1": (rf"TRL version:\s*{_NUMBER}",),
}
"""What a trainer prints of itself at its start."""


class Told(NamedTuple):
    """A version and the file that has it."""

    version: str
    where: str


def version_in(text: str, trainer: str) -> str:
    """The trainer's version that a text tells; "" where it tells none."""
    for pattern in _patterns(trainer):
        if match := re.search(pattern, text[:MOST_BYTES], re.M | re.I):
            return match[1]
    return ""


def version_beside(path: Path, trainer: Schema) -> Told | None:
    """The version that a file beside a configuration tells."""
    for name in FILES:
        file = path.parent / name
        if file != path and (version := version_in(_text(file), trainer.name)):
            return Told(version, name)
    return None


def _patterns(trainer: str) -> Iterator[str]:
    yield from _BANNERS.get(trainer, ())
    for name in PACKAGES.get(trainer, ()):
        for line in _LINES:
            yield line.replace("NAME", re.escape(name))


def _text(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
