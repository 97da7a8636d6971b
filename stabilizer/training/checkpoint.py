"""Checkpoints on disk: complete or absent, and verified before any of their content is used.

    step-<n>-a<attempt>/
        model.safetensors  optimizer.safetensors  state.json    written by the trainer
        manifest.json                                           size and sha256 of each, written last

A state is written into a temporary folder next to its place, synced, and renamed. It contains no pickle, and no state
of a random generator: every random number of the trainer is a function of integers in `state.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from stabilizer.core import json_text
from stabilizer.core.knobs import Checkpoint

SCHEMA = 2
MANIFEST = "manifest.json"
MOST_OF_MANIFEST = 16 * 1024 * 1024
"""Bytes of a manifest that are read: room for 100,000 files."""
_NAME = re.compile(r"step-(\d+)-a(\d+)")


class CheckpointDamaged(OSError):
    """A checkpoint does not match its manifest."""


class Content(Protocol):
    """A file that is produced while it is written."""

    def chunks(self) -> Iterable[bytes | memoryview]:
        """The content in order."""


def write(folder: Path, step: int, attempt: int, files: Mapping[str, bytes | Content]) -> Checkpoint:
    """Put a state in place durably, replacing one of the same name. Raises OSError when that fails."""
    place = folder / f"step-{step}-a{attempt}"
    fresh, old = place.with_name(f"{place.name}.new"), place.with_name(f"{place.name}.old")
    folder.mkdir(parents=True, exist_ok=True)
    _tidy(folder)
    fresh.mkdir()
    try:
        entries = {name: _write_synced(fresh / name, content) for name, content in files.items()}
        manifest = {"schema": SCHEMA, "step": step, "attempt": attempt, "files": entries}
        _write_synced(fresh / MANIFEST, json.dumps(manifest, indent=1).encode())
        _sync_folder(fresh)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)  # half a state is useless, and takes space on a disk that may be full
        raise
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)  # `scan` undoes this if we die before the next line
    fresh.rename(place)
    _sync_folder(folder)
    shutil.rmtree(old, ignore_errors=True)
    return Checkpoint(step, attempt, place)


def read(checkpoint: Checkpoint, most: int | None = None) -> dict[str, bytes]:
    """The files of a state, each checked against the manifest; CheckpointDamaged names the file that does not match.

    With more than `most` bytes none is read.
    """
    entries = _entries(checkpoint)
    size = sum(size for _, size, _ in entries)
    if most is not None and size > most:
        raise CheckpointDamaged(f"{checkpoint.path}: {size:,} bytes, but this model's states have at most {most:,}")
    files = {}
    for path, size, digest in entries:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointDamaged(f"{path}: {error}") from error
        if _digest(data) != digest:
            raise CheckpointDamaged(f"{path}: {size} bytes that differ from those written")
        files[path.name] = data
    return files


def verified(checkpoint: Checkpoint) -> dict[str, Path]:
    """The files of a state, each checked against the manifest without holding it in memory; CheckpointDamaged names
    the file that does not match."""
    entries = _entries(checkpoint)
    for path, size, wanted in entries:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CheckpointDamaged(f"{path}: {error}") from error
        if digest != wanted:
            raise CheckpointDamaged(f"{path}: {size} bytes that differ from those written")
    return {path.name: path for path, *_ in entries}


def _entries(checkpoint: Checkpoint) -> list[tuple[Path, int, object]]:
    """(file, size, digest) of each file of a state. CheckpointDamaged where it is not there in that size, or lies
    outside of the state's folder."""
    found = []
    for name, entry in _manifest(checkpoint)["files"].items():
        path = checkpoint.path / name
        try:
            size = path.stat().st_size if path.parent == checkpoint.path and path.is_file() else None
        except (OSError, ValueError) as error:
            raise CheckpointDamaged(f"{checkpoint.path}: {error}") from error
        if size is None:
            raise CheckpointDamaged(f"{checkpoint.path / MANIFEST}: {name!r} is no file of this state")
        if not isinstance(entry, dict) or size != entry.get("size"):
            raise CheckpointDamaged(f"{path}: {size} bytes that differ from those written")
        found.append((path, size, entry.get("sha256")))
    return found


def _manifest(checkpoint: Checkpoint) -> dict[str, Any]:
    """The manifest of a state; CheckpointDamaged when it can't be used."""
    try:
        with (checkpoint.path / MANIFEST).open("rb") as file:
            manifest = json_text.loads(file.read(MOST_OF_MANIFEST))
    except (OSError, ValueError) as error:
        raise CheckpointDamaged(f"{checkpoint.path}: {error}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise CheckpointDamaged(f"{checkpoint.path}: its manifest names no files")
    if manifest.get("schema") != SCHEMA:
        raise CheckpointDamaged(f"{checkpoint.path}: schema {manifest.get('schema')}, but this version reads {SCHEMA}")
    is_of = manifest.get("step"), manifest.get("attempt")
    if is_of != (checkpoint.step, checkpoint.attempt):
        raise CheckpointDamaged(f"{checkpoint.path}: its manifest is of step {is_of[0]}, attempt {is_of[1]}")
    return manifest


def scan(folder: Path) -> list[Checkpoint]:
    """The states in a folder, oldest attempt first, then by step; a state's content is checked when it is read."""
    if not folder.is_dir():
        return []
    for old in folder.glob("step-*.old"):
        if not (place := old.with_suffix("")).exists():
            old.rename(place)
    found = [(int(m[2]), int(m[1]), path) for path in folder.iterdir() if (m := _NAME.fullmatch(path.name))]
    return [Checkpoint(step, attempt, path) for attempt, step, path in sorted(found) if (path / MANIFEST).is_file()]


def remove(checkpoint: Checkpoint) -> None:
    """Delete a state, its manifest first, so that a crash cannot leave a partial state that looks complete."""
    with contextlib.suppress(FileNotFoundError):
        (checkpoint.path / MANIFEST).unlink()
    shutil.rmtree(checkpoint.path, ignore_errors=True)


def worth_keeping(steps: Iterable[int], keep: int, also: Iterable[int] = ()) -> set[int]:
    """The steps to keep: the newest `keep`, the first, one for each doubling of age between them, and `also`.

    A rollback needs a state older than the onset of the trouble, which may be long ago. Within a doubling the oldest is
    kept; if a younger one were kept, no state would ever grow old.
    """
    newest_first = sorted(set(steps), reverse=True)
    kept = set(newest_first[:keep]) | set(newest_first[-1:])
    by_age: dict[int, int] = {}
    for step in newest_first[keep:]:
        by_age[(newest_first[0] - step).bit_length()] = step
    return kept | set(by_age.values()) | set(also)


def most_kept(steps: int, every: int, keep: int) -> int:
    """How many states a run of so many steps has on disk at most, with the one that is being written."""
    saves = steps // every + 1 if every else 1
    oldest, old = (saves - 1) * every, keep * every
    doublings = oldest.bit_length() - old.bit_length() + 1
    return min(saves, keep + doublings + 1) if saves > keep else saves


def _tidy(folder: Path) -> None:
    """Delete what interrupted calls of `write` and `remove` left: it is as large as a state and never read."""
    whole = {checkpoint.path.name for checkpoint in scan(folder)}
    for path in folder.glob("step-*"):
        if path.name not in whole and _NAME.match(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_synced(path: Path, content: bytes | Content) -> dict[str, int | str]:
    """Write a file durably; returns its entry in the manifest."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in (content,) if isinstance(content, bytes) else content.chunks():
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return {"size": size, "sha256": digest.hexdigest()}


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
