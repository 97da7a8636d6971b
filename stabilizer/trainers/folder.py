"""A folder with several logs of one training: each is read, the richest is used, and notes name the others.

Trainers write the same numbers to several places (a state file, event files, W&B, the console). Which of them is the
richest is decided by the number of values; ties go to the reader that comes first in `READERS`. Dumps of completions
are another part of the same training and are joined to it (`joined`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.all import FAMILIES
from stabilizer.trainers.joined import belongs, joined
from stabilizer.trainers.reader import Reader

MAX_FOLDERS = 500
MAX_LOGS = 20
MAX_BYTES = 512 * 2**20
"""Larger files are read only when they are named themselves."""

PASSED_OVER = {".git", "__pycache__", "node_modules", ".venv", "venv", "site-packages"}
_NO_LOGS = {
    ".py", ".yaml", ".yml", ".toml", ".md", ".safetensors", ".bin", ".pt", ".pth", ".parquet", ".png", ".html", ".lock",
}  # fmt: skip
_NO_LOG_NAMES = {
    "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
    "vocab.json", "added_tokens.json", "wandb-summary.json", "wandb-metadata.json", "package.json",
    "adapter_config.json", "experiment_config.json", "checkpoint_tracker.json", "requirements.txt",
    "arms.json",  # measurements of our case studies
}  # fmt: skip

_OF_TRAINERS = [reader for family in FAMILIES for reader in family.readers]
_HELD_OUT = {reader.held_out for reader in _OF_TRAINERS if reader.held_out}
_SPEAKING = ("tfevents", ".wandb", *(name for reader in _OF_TRAINERS for name in reader.file_names))
"""Parts of file names that only logs have."""

Recognised = Callable[[Path], Reader | None]


def search(root: Path, recognised: Recognised) -> list[tuple[Path, Reader]]:
    """The readable logs in a folder and below.

    A folder that a reader takes as a whole is not searched further; the reader that takes `root` is not asked again."""
    whole = recognised(root)
    found: list[tuple[Path, Reader]] = [(root, whole)] if whole else []
    for count, (name, below, files) in enumerate(os.walk(root)):
        if count >= MAX_FOLDERS or len(found) >= MAX_LOGS:
            break
        folder = Path(name)
        below[:] = sorted(set(below) - PASSED_OVER)
        if folder != root and (reader := recognised(folder)):
            below[:] = []
            if reader is not whole:
                found.append((folder, reader))
            continue
        of_whole = whole.step_file if whole and folder == root else None
        for file in sorted(folder / name for name in files):
            if not may_be_log(file) or (of_whole and of_whole.fullmatch(file.name)):
                continue
            if file.stat().st_size <= MAX_BYTES and (reader := recognised(file)) not in (None, whole):
                found.append((file, reader))
    return found[:MAX_LOGS]


def may_be_log(file: Path) -> bool:
    """Whether a file is worth looking into: a plain one whose name doesn't say that it is something else."""
    return file.suffix.lower() not in _NO_LOGS and file.name not in _NO_LOG_NAMES and file.is_file()


def closed(root: Path) -> list[str]:
    """A note on files and folders that this user may not read. RunError where one of them is a log by its name,
    because the readable ones may then belong to another training."""
    found: list[Path] = []
    for count, (name, below, files) in enumerate(os.walk(root)):
        below[:] = sorted(set(below) - PASSED_OVER)
        folder = Path(name)
        found += [folder / inner for inner in below if not os.access(folder / inner, os.R_OK | os.X_OK)]
        found += [
            file for file in map(folder.joinpath, sorted(files)) if may_be_log(file) and not os.access(file, os.R_OK)
        ]
        if count >= MAX_FOLDERS or len(found) >= MAX_LOGS:
            break
    for file in found:
        if any(word in file.name for word in _SPEAKING):
            raise RunError(f"{file}: Permission denied; check its rights, or give one of the other files by its name")
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"not read for want of rights: {_below(found[0], root)}{more}"] if found else []


def richest(
    root: Path, found: list[tuple[Path, Reader]], *, mapping: dict[str, str], config: Mapping[str, Any] | None
) -> LoadedRun:
    """The run with the most values among those found; its notes name the others."""
    runs: list[tuple[Path, LoadedRun]] = []
    errors: list[RunError] = []
    for path, reader in found:
        try:
            runs.append((path, reader.read(path, mapping=mapping, config=config)))
        except RunError as error:
            errors.append(error)
    if not runs:
        raise errors[0]
    _refuse_several(root, runs)
    path, run = max(runs, key=lambda pair: (_part(pair[1]), _values(pair[1])))
    if len(found) == 1:
        return run
    for other, dump in runs:
        if other != path and dump.texts.steps and belongs(dump, run):
            run = joined(run, dump, _below(other, root))
    aside = [
        f"{_below(other, root)} ({kept.source.format})"
        for other, kept in runs
        if other != path and not (kept.texts.steps and belongs(kept, run))
    ]
    notes = [f"read from {path.relative_to(root)}"] if path != root else []
    if aside:
        notes.append(f"not used, because they hold fewer values: {', '.join(aside[:5])}{', ...' * (len(aside) > 5)}")
    notes += [f"skipped: {str(error)[:200]}" for error in errors[:3]]
    return run.noted(notes)


def _refuse_several(root: Path, runs: list[tuple[Path, LoadedRun]]) -> None:
    """RunError for several logs of one format: they are several trainings, and the user must choose one."""
    for name in sorted({run.source.format for _, run in runs}):
        paths = [path for path, run in runs if run.source.format == name]
        if len(paths) > 1:
            names = ", ".join(_below(path, root) for path in paths[:6]) + ", ..." * (len(paths) > 6)
            raise RunError(f"{root}: {len(paths)} logs of the format {name} in it ({names}); give one of them")


def _below(path: Path, root: Path) -> str:
    return "the folder itself" if path == root else str(path.relative_to(root))


def _part(run: LoadedRun) -> int:
    """Rank of a run: a log before a dump of completions, and training before held-out data."""
    return 2 if not run.texts.steps else int(run.source.format not in _HELD_OUT)


def _values(run: LoadedRun) -> int:
    view = run.history.view()
    return sum(len(view.series(name)) for name in view.names())
