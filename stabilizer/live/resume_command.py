"""The command that continues a run of our own trainer: the same start, with `--resume` for what fixed its beginning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

KEPT = {"--remedy": 1, "--fork": 1, "--dashboard": 0, "--port": 1, "--json": 0, "--debug": 0}
"""Options of `train` that go with `--resume`, and how many values each has."""


def resuming(command: Sequence[str], run: Path | None) -> list[str]:
    """The command for the next attempt; another program's command stays as it is."""
    begin = _verb(command)
    if begin is None or run is None or not any((run / "checkpoints").glob("step-*")):
        return list(command)
    words, kept = list(command[begin + 1 :]), []
    while words:
        name, _, value = (word := words.pop(0)).partition("=")
        if name in KEPT:
            kept.append(word)
            if KEPT[name] and not value and words:
                kept.append(words.pop(0))
    return [*command[: begin + 1], "--resume", str(run), *kept]


def _verb(command: Sequence[str]) -> int | None:
    """Where the verb `train` of our own command is; None in another command."""
    for place, word in enumerate(command[:-1]):
        if command[place + 1] == "train" and Path(word).name in ("stabilizer", "stabilizer.exe"):
            return place + 1
    return None
