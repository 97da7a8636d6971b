"""Reads a log: `load` finds the reader that recognises it.

`READERS` are the formats of all trainers' folders and the containers that any trainer may write to, in the order in
which they are asked. A path nobody can read is a `RunError` that says what was found there and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stabilizer.core.metrics import VOCABULARY
from stabilizer.core.text import plain
from stabilizer.formats import console, json_log, mlflow, mlflow_db, shapes, table, tensorboard, trackio, wandb
from stabilizer.formats.tailing import current
from stabilizer.runs.listing import list_runs
from stabilizer.runs.loaded import LoadedRun, NoMetrics
from stabilizer.runs.reader import RunError
from stabilizer.trainers import containers, folder, joined, notebook
from stabilizer.trainers.all import FAMILIES, TRAINERS
from stabilizer.trainers.config_file import config_file
from stabilizer.trainers.other import guesses
from stabilizer.trainers.reader import Rank, Reader

_OF_TRAINERS = [reader for family in FAMILIES for reader in family.readers]
_SHAPES = containers.reader(shapes, Rank.ANYONE)
_CONTAINERS = [
    *(containers.reader(module, Rank.CONTAINER) for module in (tensorboard, wandb, mlflow, mlflow_db, trackio)),
    *(containers.reader(module, Rank.ANYONE) for module in (json_log, table)),
    _SHAPES,
]
_NOTEBOOK = notebook.reader([reader for reader in _OF_TRAINERS if reader.printed], _SHAPES)
READERS: tuple[Reader, ...] = tuple(sorted([*_OF_TRAINERS, *_CONTAINERS, _NOTEBOOK], key=lambda reader: reader.rank))
_PACKAGES = {
    package: trainer.id
    for trainer in sorted(TRAINERS, key=lambda trainer: not trainer.parent)
    for package in trainer.packages
}
"""Folders of code -> trainer. A trainer that grew out of another comes before it."""
CONSOLES = {".log", ".out", ".err", ".txt"}
"""Suffixes of console logs that are searched for a failure where a folder holds no numbers."""


def load(
    path: Path, *, format: str | None = None, mapping: Mapping[str, str] | None = None, config: Path | None = None
) -> LoadedRun:
    """The run at `path`, whichever tool wrote it.

    `format` names the reader instead of having it guessed, `mapping` gives our name of a metric -> the log's name, and
    `config` is the trainer's configuration where the log does not hold it. `NoMetrics` when training failed before its
    first number.
    """
    reader = _named(format) if format else None
    try:
        _check(path)
        wanted = dict(mapping or {})
        _one_each(wanted)
        settings = config_file(config) if config else None
        searched = path.is_dir() and not _own(path)
        closed, runs = (folder.closed(path), list_runs(path)) if searched else ([], [])
        if reader is None and len(runs) == 1:
            told = f"{path} is a folder of one run: {runs[0]}; whatever lies beside it was not read"
            return load(runs[0], mapping=mapping, config=config).noted([told])
        if reader is None and searched and not runs:
            if found := folder.search(path, recognised):
                return _near_misses(folder.richest(path, found, mapping=wanted, config=settings).noted(closed), wanted)
        elif reader := reader or recognised(path):
            run = _read(reader, path, wanted, settings, guessed=not format)
            run = run if reader.rank == Rank.OWN else guesses.completed(run, joined.writer(run), wanted)
            return _near_misses(run.noted(closed), wanted)
        if closed:
            raise RunError(f"{path}: no log in it that can be read; {closed[0]}")
        raise _utf_16(path) or _unknown(path)
    except OSError as error:
        raise RunError(f"{error.filename or path}: {error.strerror or error}; check the path and its rights") from None


def _read(
    reader: Reader, path: Path, mapping: dict[str, str], config: dict[str, Any] | None, *, guessed: bool
) -> LoadedRun:
    try:
        return reader.read(path, mapping=mapping, config=config)
    except RunError:
        if guessed and reader.rank == Rank.ANYONE and (failed := failed_in([path])):
            raise failed from None  # a console whose first line only looked like the format
        if error := _utf_16(path):
            raise error from None
        raise


def _one_each(mapping: Mapping[str, str]) -> None:
    """RunError when one metric of the log is mapped to two of ours: only one of them would be read."""
    taken: dict[str, str] = {}
    for ours, theirs in mapping.items():
        if theirs in taken:
            pair = f"--map {plain(ours)}={plain(theirs)}"
            raise RunError(
                f"{pair}: '{plain(theirs)}' is read as {plain(taken[theirs])} already; leave out one of them"
            )
        taken[theirs] = ours


def _near_misses(run: LoadedRun, mapping: Mapping[str, str]) -> LoadedRun:
    """Add a note where `--map` names a metric that is nearly one of ours: probably a misspelling."""
    notes = [
        f"--map {plain(ours)}=...: no detector asks for {plain(ours)}; did you mean {near[0]}?"
        for ours in mapping
        if ours not in VOCABULARY
        and (near := difflib.get_close_matches(ours, VOCABULARY, 1, 0.85))
        and near[0] not in run.history.names()
    ]
    return replace(run, source=replace(run.source, notes=(*run.source.notes, *notes))) if notes else run


def _own(path: Path) -> bool:
    return any(reader.rank == Rank.OWN and reader.recognises(path) for reader in READERS)


def _settled(reader: Reader | None) -> bool:
    return reader is not None and reader.rank != Rank.ANYONE


def recognised(path: Path) -> Reader | None:
    """The first reader that knows what is at `path`."""
    tails = current()
    return tails.format(path, _asked, _settled) if tails else _asked(path)


def _asked(path: Path) -> Reader | None:
    return next((reader for reader in READERS if reader.recognises(path)), None)


def _named(name: str) -> Reader:
    names = [reader.name for reader in READERS]
    if name in names:
        return READERS[names.index(name)]
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise RunError(f"--format {name}: no such format; {hint}there are {', '.join(names)}")


def _check(path: Path) -> None:
    if "\0" in str(path):
        raise RunError(f"{str(path)!r}: a path can't hold a NUL character")
    if path.is_symlink() and not path.exists():
        raise RunError(f"{path}: a link that leads nowhere; give the file it was meant for")
    if not path.exists():
        near = path.parent
        while not near.exists():
            near = near.parent
        raise RunError(f"{path}: no such file or folder (looked from {near.resolve()}); check the spelling")
    if not path.is_dir() and not path.is_file():
        raise RunError(f"{path}: neither a file nor a folder; save the log to a file first and give that")


def _utf_16(path: Path) -> RunError | None:
    """The error for a log in UTF-16, or None."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(2) not in (b"\xff\xfe", b"\xfe\xff"):
            return None
    return RunError(
        f"{path}: text in UTF-16, which no trainer writes (Windows' PowerShell does, with `>`); make it UTF-8 first:"
        " iconv -f UTF-16 -t UTF-8"
    )


def _unknown(path: Path) -> RunError:
    known = ", ".join(reader.name for reader in READERS)
    if path.is_dir():
        if runs := list_runs(path):
            return RunError(f"{path}: not a run but a folder of runs ({len(runs)}); give one of them, e.g. {runs[0]}")
        if not any(path.iterdir()):
            return RunError(f"{path}: an empty folder; give the file or folder that the trainer wrote")
        what = "a folder in which no known log was found"
    elif path.stat().st_size == 0:
        return RunError(f"{path}: the file is empty; was the trainer stopped before its first log or checkpoint?")
    else:
        what = "not a log in a known format"
    consoles = [path] if path.is_file() else [file for file in sorted(path.iterdir()) if file.suffix in CONSOLES]
    if failed := failed_in(consoles):
        return failed
    for family in FAMILIES:
        if family.explain and (error := family.explain(path)):
            return error
    if path.is_file() and path.suffix.lower() in console.DOCUMENTS and b"\0" not in console.head(path)[:4096]:
        said = f"{path}: a document and not a log; give the file or folder that the trainer wrote"
        return NoMetrics(said, console.document(path))
    return RunError(f"{path}: {what}. Known are {known}. If it is one of them, name it with --format NAME")


def failed_in(consoles: list[Path]) -> NoMetrics | None:
    """The first of some logs in which training failed before its first number."""
    for file in consoles:
        if file.is_file() and (failed := console.failed_run(file, _PACKAGES)):
            failure = failed.history.events[-1]
            return NoMetrics(f"{file}: no step of training in it; it ended with {failure.text}", failed)
    return None
