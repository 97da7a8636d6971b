"""Lists the logs of other trainers in a folder and below.

A folder that one trainer filled (its state file, its event files) is one log; otherwise every log file is one. Folders
of our own runs are skipped. Only the beginnings of files are read, and nothing is written.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from stabilizer.formats import mlflow, tensorboard
from stabilizer.runs.reader import RunError
from stabilizer.trainers.folder import PASSED_OVER, may_be_log
from stabilizer.trainers.reading import CONSOLES, READERS, failed_in, recognised

MAX_DEPTH = 4
MAX_FOLDERS = 1000
MAX_FILES = 5000
MAX_LOGS = 200
"""Most logs that are listed for one root."""

MOST_FAILED = 1 << 20
"""Bytes of a console log up to which it is searched for a failure."""
CONSOLE = "console"
"""The format of a log that holds a failure and no numbers."""

_ANYONES = {"json_log": (".jsonl", ".ndjson"), "table": (".csv", ".tsv")}
"""Formats that any program may write: listed only for files with these suffixes."""

Ask = Callable[[Path], str]
"""The name of the format at a path; empty when there is none."""


class Place(NamedTuple):
    """A log and its format."""

    path: Path
    format: str


def format_of(path: Path) -> str:
    """The name of the format at `path`; empty when it is unknown or unreadable.

    A console log in which training failed before its first number counts too.
    """
    try:
        if reader := recognised(path):
            return reader.name
        short = path.suffix in CONSOLES and path.stat().st_size <= MOST_FAILED
        return CONSOLE if short and failed_in([path]) else ""
    except (OSError, RunError, ValueError):
        return ""


def find(root: Path, ask: Ask = format_of) -> list[Place]:
    """Logs of other trainers at `root` or below."""
    if root.is_file():
        return [Place(root, name)] if (name := ask(root)) and name != "stabilizer" else []
    found: list[Place] = []
    pending, folders, files = deque([(root, 0)]), 0, 0
    while pending and folders < MAX_FOLDERS and files < MAX_FILES and len(found) < MAX_LOGS:
        folder, depth = pending.popleft()
        if (folder / "run.json").is_file():
            continue
        folders += 1
        if name := _whole(folder):
            found.append(Place(folder, name))
            continue
        names, below = _entries(folder)
        names = names[: MAX_FILES - files]
        files += len(names)
        found += _logs(folder, names, ask)
        if depth < MAX_DEPTH:
            pending += [(folder / name, depth + 1) for name in below if name not in PASSED_OVER]
    return found[:MAX_LOGS]


def _logs(folder: Path, names: list[str], ask: Ask) -> Iterator[Place]:
    """The logs among the files of a folder, hidden ones left out; its event files together are one."""
    names = [name for name in names if not name.startswith(".")]
    events = [name for name in names if "tfevents" in name]
    if any(ask(folder / name) == tensorboard.NAME for name in events):
        yield Place(folder, tensorboard.NAME)
        names = [name for name in names if name not in set(events)]
    for file in (folder / name for name in names):
        if may_be_log(file) and (name := ask(file)) and _says_so(file, name):
            yield Place(file, name)


def _whole(folder: Path) -> str:
    """The format that reads this folder as one log; empty for none."""
    for reader in READERS:
        if reader.takes_folder and reader.recognises(folder):
            return reader.name
    return mlflow.NAME if (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir() else ""


def _says_so(file: Path, format: str) -> bool:
    return format not in _ANYONES or file.suffix.lower() in _ANYONES[format]


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    try:
        with os.scandir(folder) as entries:
            known = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        return [], []
    return [name for name, is_folder in known if not is_folder], [name for name, is_folder in known if is_folder]
