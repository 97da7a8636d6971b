"""The command of the next attempt: of our own trainer with `--resume`, of another program with changed arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def with_arguments(command: Sequence[str], changed: Mapping[str, Any]) -> list[str]:
    """The command with other values of its options.

    An option that it does not have is added only beside `--config`, as parsers of such files understand it. A script
    gets the rest from `stabilizer.changed_arguments()`.
    """
    words = list(command)
    for name, value in changed.items():
        flags = (f"--{name}", f"--{name.replace('_', '-')}")
        places = [place for place, word in enumerate(words) if word.partition("=")[0] in flags]
        for place in places:
            flag, equals, _ = words[place].partition("=")
            if equals:
                words[place] = f"{flag}={value}"
            elif place + 1 < len(words):
                words[place + 1] = str(value)
        if not places and any(word.partition("=")[0] == "--config" for word in words):
            words += [flags[0], str(value)]
    return words


def _verb(command: Sequence[str]) -> int | None:
    """Where the verb `train` of our own command is; None in another command."""
    for place, word in enumerate(command[:-1]):
        if command[place + 1] == "train" and Path(word).name in ("stabilizer", "stabilizer.exe"):
            return place + 1
    return None
