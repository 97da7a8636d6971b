"""W&B: the `.wandb` file that every run keeps in `wandb/run-...` or `wandb/offline-run-...`, synced or not.

The file is a log of records in LevelDB's format (blocks of 32 KiB, each record whole or in pieces), each a protobuf
message: the run, its configuration, and one `history` record a call of `log()`. This reader does not need wandb. Traps:

- `_step` counts calls of `log()`, not steps of training; the trainer's own step (`train/global_step`,
  `training/global_step`) is taken where it is logged, and calls without it belong to the step before.
- History records lie between console output, system metrics and summaries; a killed run ends in a torn record.
- Values are JSON text, or typed fields since 0.29; NaN and Infinity are written as such.
- The summary (`files/wandb-summary.json`) repeats the last values and is not a log.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as made_by
from pathlib import Path
from typing import Any

from stabilizer.core.json_text import loads_python
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.protobuf import fields
from stabilizer.formats.steps import rows_of
from stabilizer.runs.reader import RunError

NAME = "wandb"
WHAT = "a .wandb file of W&B, or the folder wandb/run-... that holds it"

MAX_BYTES = 2**30
BLOCK = 32768
_MAGIC = b":W&B"
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN = 2, 5, 17


def recognises(path: Path) -> bool:
    """By the file's first bytes; a folder by such a file in it."""
    return bool(_files(path)) if path.is_dir() else _is_wandb(path)


def read(path: Path) -> NumberLog:
    """The run in a file, or in the largest file of a folder."""
    notes: list[str] = []
    file = path
    if path.is_dir():
        files = sorted(_files(path), key=lambda file: (-file.stat().st_size, str(file)))
        if not files:
            raise RunError(f"{path}: no .wandb file in it; give the folder wandb/run-... or the file itself")
        file = files[0]
        if len(files) > 1:
            notes.append(f"{len(files) - 1} smaller .wandb files not used, e.g. {files[1].name}; {file.name} is read")
    if not file.is_file():
        raise RunError(f"{file}: not a file; give the .wandb file itself")
    if file.stat().st_size > MAX_BYTES:
        raise RunError(f"{file}: more than the {MAX_BYTES // 2**30} GiB this reader takes")
    run = _run(file.read_bytes())
    rows, skipped, said = rows_of(run.records, file)
    if run.damaged:
        said.append(f"{run.damaged} damaged or torn records left out")
    if not rows:
        raise RunError(f"{file}: no history in it; was the run stopped before its first log()?")
    return NumberLog(
        name=run.name or file.parent.name,
        rows=rows,
        format=NAME,
        files=[file],
        settings={key: value for key, value in run.settings.items() if not key.startswith("_")},
        skipped=skipped + run.damaged,
        notes=notes + said,
    )


@dataclass
class _Run:
    name: str = ""
    records: list[dict[str, Any]] = made_by(default_factory=list)
    settings: dict[str, Any] = made_by(default_factory=dict)
    damaged: int = 0


def _run(raw: bytes) -> _Run:
    """What the messages of a file say of the run."""
    run = _Run()
    for message in _messages(raw):
        if message is None:
            run.damaged += 1
            continue
        for number, body in fields(message):
            if not isinstance(body, bytes):
                continue
            if number == _HISTORY:
                run.records.append(_history(body))
            elif number == _CONFIG:
                run.settings |= _config(body)
            elif number == _RUN:
                parts = fields(body)
                run.name = next((_text(value) for part, value in parts if part == 8), run.name)
                for part, value in parts:
                    if part == 4 and isinstance(value, bytes):
                        run.settings |= _config(value)
    return run


def _is_wandb(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(4) == _MAGIC
    except OSError:
        return False


def _files(folder: Path) -> list[Path]:
    """The folder's own, those of the runs below it, and those of a `wandb` folder in it."""
    try:
        found = [
            file for pattern in ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb") for file in folder.glob(pattern)
        ]
    except OSError:
        return []
    return [file for file in dict.fromkeys(file.resolve() for file in found) if _is_wandb(file)]


def _messages(raw: bytes) -> Iterator[bytes | None]:
    """The records of the file, None for each that is damaged or torn; reading goes on at the next block."""
    place = 7
    pieces: list[bytes] = []
    while place < len(raw):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        if place + 7 > len(raw):
            yield None
            return
        crc, length, kind = struct.unpack_from("<IHB", raw, place)
        body = raw[place + 7 : place + 7 + length]
        if kind == 0 and length == 0:  # the rest of the block was never written
            place += left
            continue
        if length > left - 7 or len(body) < length or crc != zlib.crc32(body, zlib.crc32(bytes([kind]))):
            pieces = []
            yield None
            place += left
            continue
        place += 7 + length
        if kind == _WHOLE:
            pieces = []
            yield body
        elif kind == _FIRST:
            pieces = [body]
        elif kind in (_MIDDLE, _LAST) and pieces:
            pieces.append(body)
            if kind == _LAST:
                yield b"".join(pieces)
                pieces = []
    if pieces:
        yield None


def _history(body: bytes) -> dict[str, Any]:
    """One call of log(): names and values. Nested names are joined by slashes."""
    values: dict[str, Any] = {}
    for field, item in fields(body):
        if field == 1 and isinstance(item, bytes):
            key, value = _item(item)
            values[key] = value
        elif field == 2 and isinstance(item, bytes):
            values.setdefault("_step", next((part for number, part in fields(item) if number == 1), 0))
    return values


def _config(body: bytes) -> dict[str, Any]:
    return dict(_item(item) for field, item in fields(body) if field == 1 and isinstance(item, bytes))


def _item(body: bytes) -> tuple[str, Any]:
    key, nested, value = "", [], None
    for field, part in fields(body):
        if field == 1:
            key = _text(part)
        elif field == 2:
            nested.append(_text(part))
        elif field in (8, 16) and isinstance(part, bytes):
            value = _json(part)
        elif field == 6 and isinstance(part, bytes) and len(part) == 8:
            value = struct.unpack("<d", part)[0]
        elif field == 5 and isinstance(part, int):
            value = part - 2**64 if part >= 2**63 else part
    return key or "/".join(nested), value


def _json(text: bytes) -> Any:
    try:
        return loads_python(text)
    except ValueError:
        return None


def _text(part: int | bytes) -> str:
    return part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
