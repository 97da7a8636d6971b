"""TensorBoard event files (`events.out.tfevents...`) and folders of them, whichever trainer wrote them.

A file is a chain of frames (length, checksum of the length, event, checksum of the event); an event is a protobuf
message with a step and a summary of named values. Both are read by hand with numpy, all events at once: no TensorBoard
or protobuf is needed, and a million points take about a second. Traps:

- A file that is still being written, or whose writer was killed, ends inside a frame: what is whole counts.
- A frame whose length contradicts its checksum is damaged; reading goes on at the next frame that is sound. The
  checksum of the event itself is not verified: it would take longer than all the rest.
- Scalars stand as `simple_value` (PyTorch, tensorboardX) or as a tensor of one number (TensorFlow 2); images, texts
  and histograms are passed over, and counted.
- One training leaves several files in a folder: one per restart, and one more for an evaluation. In the order of the
  times in their names they are one log; where a metric's step goes back, a new attempt begins.
- Sub-folders are runs of their own, or one metric each (`add_scalars`): the one with the most numbers is read.
"""

from __future__ import annotations

import os
import re
import struct
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stabilizer.readers.names import Row, named_log
from stabilizer.readers.protobuf import fields
from stabilizer.readers.rows import check_names
from stabilizer.runs.history import Series
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError

NAME = "tensorboard"
WHAT = "a TensorBoard event file (events.out.tfevents...), or a folder with such files"

MAX_BYTES = 2**32
MAX_FOLDERS = 2_000
ROUNDS = 512
"""Values of one event that are read side by side with those of all others; what is beyond is read one by one."""
MAX_RESTARTS = 100

_FILE = re.compile(r"tfevents\.(\d+)")
_FRAME = re.compile(rb"(?=[\s\S]{3}\0{5}[\s\S]{4}[\x09\x10])")
_SIMPLE, _TENSOR = 0x15, 0x42


class Points(NamedTuple):
    """All scalars of a file in the order they were written."""

    tags: list[str]
    tag: np.ndarray
    """Index into `tags`."""
    step: np.ndarray
    value: np.ndarray
    damaged: int
    """Frames or events that could not be read."""
    other: int
    """Values that are no scalars."""


def recognises(path: Path) -> bool:
    """By the first frame: a sound checksum over a short length, and an event with a time in it."""
    return bool(_folders(path)) if path.is_dir() else _is_events(path)


def read(path: Path, *, mapping: dict[str, str], config: Path | None) -> LoadedRun:
    """The run in a file, or in the folder with the most numbers below a folder."""
    notes: list[str] = []
    files = [path]
    if path.is_dir():
        folders = _folders(path)
        if not folders:
            raise RunError(f"{path}: no TensorBoard event file in it or below; give the folder that holds them")
        folder, *others = sorted(folders, key=lambda key: (-_size(folders[key]), str(key)))
        files = folders[folder]
        if others:
            notes.append(
                f"{len(others)} other folders of event files set aside, e.g. {others[0].relative_to(path)}: "
                f"{folder.relative_to(path)} has the most in it; give another to read that one"
            )
    elif not path.is_file():
        raise RunError(f"{path}: not a file; give an event file, or the folder that holds it")
    points = _joined([scalars(file) for file in files])
    check_names(len(points.tags), path)
    if not len(points.step):
        held = f"{points.other} images, texts or histograms but no scalars" if points.other else "no events"
        raise RunError(f"{path}: {held} in it; was the trainer stopped before its first log?")
    rows, restarts = _rows(points)
    if restarts > MAX_RESTARTS:
        notes.append("steps come in no order, so there is no telling restarts: read as one attempt, sorted by step")
    if len(files) > 1:
        notes.append(f"{len(files)} event files of one folder read as one log, in the order of their times")
    if points.damaged:
        notes.append(f"{points.damaged} damaged or torn records left out")
    if points.other:
        notes.append(f"{points.other} values that are no scalars (images, texts, histograms) passed over")
    return named_log(
        (path if path.is_dir() else path.resolve().parent).resolve().name or "run",
        rows,
        format=NAME,
        files=files,
        mapping=mapping,
        config=config,
        skipped=points.damaged,
        notes=notes,
    )


def columns(path: Path) -> dict[str, Series]:
    """Every tag's steps and values in a file, in the order they were written."""
    points = scalars(path)
    order = np.argsort(points.tag, kind="stable")
    ends = np.cumsum(np.bincount(points.tag, minlength=len(points.tags)))
    step, value = points.step[order], points.value[order]
    starts = [0, *ends[:-1].tolist()]
    return {tag: Series(step[a:b], value[a:b]) for tag, a, b in zip(points.tags, starts, ends.tolist(), strict=True)}


# --- files ---------------------------------------------------------------------------------------------------------


def _is_events(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    if len(head) < 22 or head[12] not in (0x09, 0x10):
        return False
    length, crc = struct.unpack_from("<QI", head)
    return length < 2**31 and crc == masked_crc(head[:8])


def _folders(root: Path) -> dict[Path, list[Path]]:
    """Folders from `root` down that hold event files, each with its files in the order of their times."""
    found: dict[Path, list[Path]] = {}
    for count, (folder, below, names) in enumerate(os.walk(root)):
        below.sort()
        if count >= MAX_FOLDERS:
            break
        files = [Path(folder) / name for name in names if "tfevents" in name]
        if files := [file for file in files if _is_events(file)]:
            found[Path(folder)] = sorted(files, key=_written)
    return found


def _written(file: Path) -> tuple[int, str]:
    match = _FILE.search(file.name)
    return (int(match[1]) if match else 0), file.name


def _size(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


# --- frames --------------------------------------------------------------------------------------------------------


def scalars(path: Path) -> Points:
    """All scalars of one event file."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise RunError(f"{path}: {size / 2**30:.1f} GiB is more than the {MAX_BYTES // 2**30} GiB this reader takes")
    raw = path.read_bytes()
    starts, ends, damaged = _frames(raw)
    return _events(raw, starts, ends, damaged)


def _frames(raw: bytes) -> tuple[np.ndarray, np.ndarray, int]:
    """Where each event starts and ends, and how many stretches of the file are no sound frame."""
    data = np.frombuffer(raw, np.uint8)
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    offset = damaged = 0
    while offset < len(raw):
        begins, stop = _walk(raw, offset)
        first = np.array(begins, np.int64)
        sound = _length_crc_holds(data, first)
        good = len(first) if sound.all() else int(np.argmin(sound))
        lengths = _lengths(data, first[:good])
        starts.append(first[:good] + 12)
        ends.append(first[:good] + 12 + lengths)
        if good == len(first) and stop == len(raw):
            break
        damaged += 1
        bad = stop if good == len(first) else int(first[good])
        offset = _next_frame(raw, bad + 1)
    if not starts:
        return np.empty(0, np.int64), np.empty(0, np.int64), damaged
    return np.concatenate(starts), np.concatenate(ends), damaged


def _walk(raw: bytes, offset: int) -> tuple[list[int], int]:
    """Frames from `offset` as their lengths tell, and where the chain ends: the end of the file if it is whole."""
    begins: list[int] = []
    add, unpack, last = begins.append, struct.Struct("<Q").unpack_from, len(raw) - 16
    while offset <= last:
        after = offset + 16 + unpack(raw, offset)[0]
        if after > len(raw):
            break
        add(offset)
        offset = after
    return begins, offset


def _next_frame(raw: bytes, offset: int) -> int:
    for match in _FRAME.finditer(raw, offset):
        place = match.start()
        length, crc = struct.unpack_from("<QI", raw, place)
        if place + 16 + length <= len(raw) and crc == masked_crc(raw[place : place + 8]):
            return place
    return len(raw)


def _lengths(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    total = np.zeros(len(offsets), np.int64)
    for place in range(5):
        total |= data[offsets + place].astype(np.int64) << (8 * place)
    return total


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table


_TABLE = _crc_table()
_LIST: list[int] = _TABLE.tolist()


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as TFRecord stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _LIST[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _length_crc_holds(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Whether each frame's length agrees with its checksum (CRC-32C, rotated and shifted as TFRecord has it)."""
    crc = np.full(len(offsets), 0xFFFFFFFF, np.uint32)
    for place in range(8):
        crc = (crc >> np.uint32(8)) ^ _TABLE[(crc ^ data[offsets + place]) & np.uint32(0xFF)]
    crc = ~crc
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)
    stored = np.zeros(len(offsets), np.uint32)
    for place in range(4):
        stored |= data[offsets + 8 + place].astype(np.uint32) << np.uint32(8 * place)
    return masked == stored


# --- events --------------------------------------------------------------------------------------------------------


def _events(raw: bytes, starts: np.ndarray, ends: np.ndarray, damaged: int) -> Points:
    """The scalars of all events. In each round the next value of every event that has one left is read."""
    data = np.frombuffer(raw + b"\0" * 32, np.uint8)  # so that looking a little ahead never leaves the file
    event = np.arange(len(starts))
    place = starts.copy()
    place += np.where(data[place] == 0x09, 9, 0)  # the wall time
    has_step = data[place] == 0x10
    step, after = _varint(data, place + 1)
    step = np.where(has_step, step, 0)
    place = np.where(has_step, after, place)
    is_summary = (data[place] == 0x2A) & (place < ends)
    event, place, ends = event[is_summary], place[is_summary], ends[is_summary]
    length, place = _varint(data, place + 1)
    whole = (length >= 0) & (place + length <= ends)
    damaged += int((~whole).sum())
    event, place, ends = event[whole], place[whole], (place + length)[whole]
    tags: dict[bytes, int] = defaultdict(lambda: len(tags))
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray, int]] = []
    other = 0
    for turn in range(ROUNDS):
        if not len(event):
            break
        size, body = _varint(data, place + 1)
        good = (data[place] == 0x0A) & (size >= 0) & (body + size <= ends)
        damaged += int((~good).sum())
        event, body, size, ends = event[good], body[good], size[good], ends[good]
        stop = body + size
        long, name = _varint(data, body + 1)
        named = (data[body] == 0x0A) & (long >= 0) & (name + long < stop)
        rest = np.where(named, name + long, body)
        simple = named & (data[rest] == _SIMPLE) & (rest + 5 <= stop)
        kept = np.flatnonzero(simple)
        labels = [tags[raw[a:b]] for a, b in zip(name[kept].tolist(), (name + long)[kept].tolist(), strict=True)]
        found.append((event[kept], np.array(labels, np.int64), _floats(data, rest[kept] + 1), turn))
        unusual = [(index, _value(raw[body[index] : stop[index]])) for index in np.flatnonzero(~simple).tolist()]
        other += sum(value is None for _, value in unusual)
        found.append(_listed([(event[index], tags[v[0]], v[1]) for index, v in unusual if v is not None], turn))
        more = stop < ends
        event, place, ends = event[more], stop[more], ends[more]
    late: list[tuple[int, int, float]] = []
    for owner, first, last in zip(event.tolist(), place.tolist(), ends.tolist(), strict=True):
        values = [_value(part) for field, part in fields(raw[first:last]) if field == 1 and isinstance(part, bytes)]
        other += values.count(None)
        late += [(owner, tags[v[0]], v[1]) for v in values if v is not None]
    found.append(_listed(late, ROUNDS))
    owners, labels, numbers = (np.concatenate([part[k] for part in found]) for k in range(3))
    turns = np.concatenate([np.full(len(part[0]), part[3]) for part in found])
    if turns.any() or (np.diff(owners) < 0).any():
        order = np.lexsort((turns, owners))
        owners, labels, numbers = owners[order], labels[order], numbers[order]
    names = [tag.decode("utf-8", "replace") for tag in tags]
    return Points(names, labels, step[owners], numbers, damaged, other)


def _listed(found: list[tuple[int, int, float]], turn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    owners, labels, numbers = zip(*found, strict=True) if found else ((), (), ())
    return np.array(owners, np.int64), np.array(labels, np.int64), np.array(numbers, float), turn


def _varint(data: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A variable-length integer at each place, and where it ends; -1 for what is none or beyond 63 bits."""
    value = np.zeros(len(place), np.int64)
    after = place.copy()
    going = np.ones(len(place), bool)
    for shift in range(0, 63, 7):
        byte = data[np.minimum(after, len(data) - 1)].astype(np.int64)
        value = np.where(going, value | ((byte & 0x7F) << shift), value)
        after = np.where(going, after + 1, after)
        going &= byte >= 0x80
        if not going.any():
            return value, after
    return np.where(going, -1, value), after


def _floats(data: np.ndarray, place: np.ndarray) -> np.ndarray:
    four = np.stack([data[place + k] for k in range(4)], axis=1) if len(place) else np.empty((0, 4), np.uint8)
    return np.ascontiguousarray(four).view("<f4")[:, 0].astype(float)


# --- what is not in the common order -------------------------------------------------------------------------------

_TENSOR_TYPES = {1: ("<f4", 5), 2: ("<f8", 6), 3: ("<i4", 7), 9: ("<i8", 10)}
"""TensorFlow's number of a type -> how its bytes read, and the field in which it may stand as a list."""


def _value(message: bytes) -> tuple[bytes, float] | None:
    """Tag and number of one summary value in any order of its fields; None when it is no scalar."""
    tag, found = b"", None
    for field, value in fields(message):
        if field == 1 and isinstance(value, bytes):
            tag = value
        elif field == 2 and isinstance(value, bytes) and len(value) == 4:
            found = struct.unpack("<f", value)[0]
        elif field == 8 and isinstance(value, bytes):
            found = _tensor(value)
    return (tag, found) if tag and found is not None else None


def _tensor(message: bytes) -> float | None:
    """The number in a tensor of one element."""
    parts = dict(fields(message))
    kind, listed = _TENSOR_TYPES.get(parts.get(1, 0), ("", 0))
    if not kind:
        return None
    if any(field == 2 for field, _ in fields(parts.get(2, b"") if isinstance(parts.get(2), bytes) else b"")):
        return None  # it has a dimension, so it is no scalar
    content = parts.get(4)
    value = content if isinstance(content, bytes) and content else parts.get(listed)
    if isinstance(value, int):
        return float(value)
    if not isinstance(value, bytes) or len(value) != np.dtype(kind).itemsize:
        return None
    return float(np.frombuffer(value, kind)[0])


# --- points to rows ------------------------------------------------------------------------------------------------


def _joined(parts: list[Points]) -> Points:
    """The points of several files one after the other."""
    if len(parts) == 1:
        return parts[0]
    numbers: dict[str, int] = {}
    labels = []
    for part in parts:
        own = np.array([numbers.setdefault(tag, len(numbers)) for tag in part.tags], np.int64)
        labels.append(own[part.tag] if len(own) else part.tag)
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in ("step", "value"))
    damaged, other = sum(part.damaged for part in parts), sum(part.other for part in parts)
    return Points(list(numbers), np.concatenate(labels), *joined, damaged, other)


def _rows(points: Points) -> tuple[list[Row], int]:
    """One row a step, attempt after attempt, and how many restarts there are."""
    cuts = _restarts(points)
    bounds = [0, *(cuts if len(cuts) <= MAX_RESTARTS else []), len(points.step)]
    rows: list[Row] = []
    tags, labels, values = points.tags, points.tag.tolist(), points.value.tolist()
    for first, last in zip(bounds, bounds[1:], strict=False):
        steps = points.step[first:last]
        order = first + np.argsort(steps, kind="stable")
        current, row = -1, {}
        for index, step in zip(order.tolist(), points.step[order].tolist(), strict=True):
            if step != current:
                current, row = step, {}
                rows.append((step, row))
            row[tags[labels[index]]] = values[index]
    return rows, len(cuts)


def _restarts(points: Points) -> list[int]:
    """Where a new attempt begins: at a value whose metric was further on before, at the first one of its row."""
    order = np.argsort(points.tag, kind="stable")
    before = np.full(len(order), -1)
    same = points.tag[order][1:] == points.tag[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    back = np.flatnonzero((before >= 0) & (points.step < points.step[before]))
    cuts: list[int] = []
    for index in back.tolist():
        if not cuts or before[index] >= cuts[-1]:
            step, first = points.step[index], index
            while first and points.step[first - 1] == step:
                first -= 1
            cuts.append(first)
    return cuts
