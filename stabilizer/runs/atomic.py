"""Small JSON files that are replaced whole: a reader sees the old one or the new one, never half of either."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from stabilizer.core.records import as_json
from stabilizer.runs.syncer import Syncer, held


def replace_json(path: Path, value: Any, *, sync: bool = True) -> None:
    """Replace a JSON file in one step.

    With `sync` it survives a crash of the machine and not only of the process. Waiting for the disk takes milliseconds.
    """
    option = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    try:
        text = orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:  # a lone surrogate in a name or a setting, or an integer beyond 64 bits
        text = orjson.dumps(as_json(value), option=option)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.replace(temporary, path)


class SmallFiles:
    """The small JSON files of one folder, written at once or in the background. No method raises an OSError: `refused`
    holds the files that could not be written, and why."""

    def __init__(self, folder: Path, syncer: Syncer):
        self.refused: dict[str, OSError] = {}
        self._folder = folder
        self._syncer = syncer
        self._owed: dict[str, Any] = {}
        """The refused content of each of them."""
        self._newest: dict[str, int] = {}
        """By file, the number of its newest version. An older one is not written any more."""
        self._locks: dict[str, Lock] = {}

    def replace(self, name: str, value: Any) -> bool:
        """Replace a file and wait until it is on the disk; False when the disk refuses."""
        return self._put(name, value, self._number(name), sync=True)

    def retry(self) -> None:
        """Write what was refused once more."""
        for name, value in list(self._owed.items()):
            self.replace(name, value)

    def replace_soon(self, name: str, value: Any) -> None:
        """Replace a file in the background: renaming a file can wait for a busy disk even without a sync."""
        self._syncer.do(name, partial(self._put, name, value, self._number(name), sync=False))

    def _number(self, name: str) -> int:
        self._locks.setdefault(name, Lock())
        self._newest[name] = number = self._newest.get(name, 0) + 1
        return number

    def _put(self, name: str, value: Any, number: int, *, sync: bool) -> bool:
        with held(self._locks[name]):
            if number < self._newest[name]:
                return True  # a newer version is on its way, or there
            try:
                replace_json(self._folder / name, value, sync=sync)
            except OSError as error:
                self.refused[name], self._owed[name] = error, value
                return False
            self.refused.pop(name, None)
            self._owed.pop(name, None)
            return True
