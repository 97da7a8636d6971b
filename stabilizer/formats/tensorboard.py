"""TensorBoard event files (`events.out.tfevents...`) and folders of them, whichever trainer wrote them.

A file is a chain of frames (length, checksum of the length, event, checksum of the event); an event is a protobuf
message with a step and a summary of named values. numpy decodes all events at once, without TensorBoard or protobuf: a
million points take a third of a second. Traps:

- A file that is still being written, or whose writer was killed, ends inside a frame; whole frames count.
- A frame whose length contradicts its checksum is damaged; reading goes on at the next frame that is sound. The
  checksum of the event itself is not verified: it would take longer than all the rest.
- Scalars are `simple_value` (PyTorch, tensorboardX) or a tensor of one number (TensorFlow 2). Images, texts and
  histograms are skipped and counted.
- One training leaves several files in a folder: one per restart, and one more for an evaluation. In the order of the
  times in their names they are one log; where a metric's step goes back, a new attempt begins.
- Sub-folders are runs of their own, or one metric each (`add_scalars`): the one with the most numbers is read.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import numpy as np

from stabilizer.formats.event_frames import frames, masked_crc
from stabilizer.formats.event_scalars import Points, scalars_in
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import Row, check_names
from stabilizer.runs.history import Series
from stabilizer.runs.reader import RunError

NAME = "tensorboard"
WHAT = "a TensorBoard event file (events.out.tfevents...), or a folder with such files"

MAX_BYTES = 2**32
MAX_FOLDERS = 2_000
MAX_RESTARTS = 100

_FILE = re.compile(r"tfevents\.(\d+)")


def recognises(path: Path) -> bool:
    """By the first frame: a sound checksum over a short length, and an event with a time in it."""
    return bool(_folders(path)) if path.is_dir() else _is_events(path)


def read(path: Path) -> NumberLog:
    """The numbers in a file, or in the largest folder of event files below a folder."""
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
                f"{len(others)} other folders of event files not used, e.g. {others[0].relative_to(path)}: "
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
        notes.append(f"{points.other} values that are not scalars (images, texts, histograms) skipped")
    return NumberLog(
        name=(path if path.is_dir() else path.resolve().parent).resolve().name or "run",
        rows=rows,
        format=NAME,
        files=files,
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
    return bool(length < 2**31 and crc == masked_crc(head[:8]))


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


# --- events --------------------------------------------------------------------------------------------------------


def scalars(path: Path) -> Points:
    """All scalars of one event file."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise RunError(f"{path}: {size / 2**30:.1f} GiB is more than the {MAX_BYTES // 2**30} GiB this reader takes")
    data = np.zeros(size, np.uint8)
    with path.open("rb", buffering=0) as file:
        read = 0
        while read < size and (count := file.readinto(data.data[read:size])):
            read += count
    return scalars_in(data, *frames(data, read))


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
    step = np.concatenate([part.step for part in parts])
    value = np.concatenate([part.value for part in parts])
    damaged, other = sum(part.damaged for part in parts), sum(part.other for part in parts)
    return Points(list(numbers), np.concatenate(labels), step, value, damaged, other)


def _rows(points: Points) -> tuple[list[Row], int]:
    """One row a step, attempt by attempt, and the number of restarts."""
    cuts = _restarts(points)
    bounds = [0, *(cuts if len(cuts) <= MAX_RESTARTS else []), len(points.step)]
    rows: list[Row] = []
    tags, labels, values = points.tags, points.tag.tolist(), points.value.tolist()
    for first, last in zip(bounds, bounds[1:], strict=False):
        steps = points.step[first:last]
        order = first + np.argsort(steps, kind="stable")
        current = -1
        row: dict[str, float] = {}
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
