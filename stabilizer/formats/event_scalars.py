"""The scalars in TensorBoard's events, a protobuf message each: step and a summary of named values.

Nearly all events hold one value in the usual layout. All that have the same length and the same length of step have
every field at the same place, so they are read as one table of bytes. Other events (several values, long names,
tensors of TensorFlow 2, images) are read one by one.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stabilizer.formats.event_frames import words
from stabilizer.formats.protobuf import Fields, fields, parsed

_TOGETHER = 1 << 16
"""Events read at once, which bounds the memory this takes."""
_SIMPLE = 0x15


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


class _Found(NamedTuple):
    """Values, each with the number of its event, in the order they were written."""

    event: np.ndarray
    tag: np.ndarray
    step: np.ndarray
    value: np.ndarray
    damaged: int = 0
    other: int = 0


def scalars_in(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, damaged: int) -> Points:
    """The scalars of all events; `damaged` counts on from the frames that are none."""
    tags: dict[bytes, int] = defaultdict(lambda: len(tags))
    parts = []
    for first in range(0, len(starts), _TOGETHER):
        begin, end = starts[first : first + _TOGETHER], ends[first : first + _TOGETHER]
        alike = _alike(data, begin, end, tags)
        left = np.ones(len(begin), bool)
        left[alike.event] = False
        rest = np.flatnonzero(left)
        parts.append(_merged(alike, _any(data, begin[rest], end[rest], tags), rest) if len(rest) else alike)
    tag, step, value = (
        np.concatenate([getattr(part, name) for part in parts] or [np.empty(0, kind)])
        for name, kind in (("tag", np.int64), ("step", np.int64), ("value", float))
    )
    names, tag = _by_appearance(list(tags), tag)
    damaged += sum(part.damaged for part in parts)
    texts = [name.decode("utf-8", "replace") for name in names]
    return Points(texts, tag, step, value, damaged, sum(part.other for part in parts))


def _merged(alike: _Found, others: _Found, rest: np.ndarray) -> _Found:
    """Both in the order of their events; `others` counts only the events of `rest`."""
    event = np.concatenate([alike.event, rest[others.event]])
    order = np.argsort(event, kind="stable")
    tag, step, value = (
        np.concatenate([getattr(alike, name), getattr(others, name)])[order] for name in ("tag", "step", "value")
    )
    return _Found(event[order], tag, step, value, others.damaged, others.other)


def _by_appearance(names: list[bytes], tag: np.ndarray) -> tuple[list[bytes], np.ndarray]:
    """Names numbered in the order in which they come first."""
    first = np.full(len(names), len(tag))
    first[tag[::-1]] = np.arange(len(tag) - 1, -1, -1)
    order = np.argsort(first, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return [names[place] for place in order.tolist()], number[tag] if len(names) else tag


# --- events with one value, all fields in the usual order ------------------------------------------------------------
# time (1 + 8 bytes), step (1 + 1 to 4), summary (1 + 1), value (1 + 1), name (1 + 1 + its length), number (1 + 4)

_LONGEST = 255


def _alike(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, tags: dict[bytes, int]) -> _Found:
    """The events that are written as PyTorch's SummaryWriter does."""
    lengths = ends - starts
    short = np.where(lengths <= _LONGEST, lengths, 0).astype(np.uint8)
    order = np.argsort(short, kind="stable")
    bounds = np.cumsum(np.bincount(short, minlength=_LONGEST + 1)).tolist()
    step, value, tag = np.zeros(len(starts), np.int64), np.zeros(len(starts)), np.full(len(starts), -1)
    for length in range(23, _LONGEST + 1):
        if bounds[length - 1] == bounds[length]:
            continue
        event = order[bounds[length - 1] : bounds[length]]
        rows = words(data, f"V{length}")[starts[event]].view(np.uint8).reshape(-1, length)
        for wide in range(1, 5):
            fits = _usual(rows, wide)
            if not fits.any():
                continue
            some, chosen = (event, rows) if fits.all() else (event[fits], rows[fits])
            step[some] = sum((chosen[:, 10 + k].astype(np.int64) & 0x7F) << 7 * k for k in range(wide))
            value[some] = _doubles(chosen[:, -4:])
            tag[some] = _numbered(chosen[:, 16 + wide : -5], tags)
            if some is event:
                break
    known = np.flatnonzero(tag >= 0)
    return _Found(known, *((tag, step, value) if len(known) == len(tag) else (tag[known], step[known], value[known])))


def _usual(rows: np.ndarray, wide: int) -> np.ndarray:
    """Which events of one length have a step of so many bytes, and every field where it then belongs."""
    length = rows.shape[1]
    must = (0x2A, length - 12 - wide, 0x0A, length - 14 - wide, 0x0A, length - 21 - wide)
    fits = rows[:, 9 + wide] < 0x80
    if must[1] >= 0x80 or must[5] < 1 or not fits.any():
        return np.zeros(len(rows), bool)
    for place in range(10, 9 + wide):
        fits &= rows[:, place] >= 0x80
    for place, byte in ((0, 0x09), (9, 0x10), *enumerate(must, 10 + wide), (length - 5, _SIMPLE)):
        fits &= rows[:, place] == byte
    return fits


def _numbered(names: np.ndarray, tags: dict[bytes, int]) -> np.ndarray:
    """The number of each name, a row of bytes a name. Each is compared with one of the same hash, and only the names
    that differ from that one are looked up singly."""
    count, length = names.shape
    padded = np.zeros((count, -(-length // 8) * 8), np.uint8)
    padded[:, :length] = names
    parts = padded.view("<u8")
    mixed = np.zeros(count, np.uint64)
    for part in parts.T:
        mixed = (mixed ^ (mixed >> np.uint64(29)) ^ part) * np.uint64(0x9E3779B97F4A7C15)
    slot = (mixed >> np.uint64(48)).astype(np.int64)
    one_of = np.zeros(1 << 16, np.int64)
    one_of[slot] = np.arange(count)
    like = one_of[slot]
    same = (parts == parts[like]).all(axis=1)
    number = np.empty(count, np.int64)
    for place in (*np.flatnonzero(like == np.arange(count)).tolist(), *np.flatnonzero(~same).tolist()):
        number[place] = tags[names[place].tobytes()]
    return np.where(same, number[like], number)


# --- events written in any other way ---------------------------------------------------------------------------------


def _any(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, tags: dict[bytes, int]) -> _Found:
    """The scalars of all events, one event after the other."""
    found: list[tuple[int, int, int, float]] = []
    damaged = other = 0
    for number, (first, last) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        event, whole = parsed(data[first:last].tobytes())
        step = next((value for field, value in event if field == 2 and isinstance(value, int)), 0)
        for summary in _messages(event, 5):
            values, unhurt = parsed(summary)
            whole = whole and unhurt
            for value in map(_value, _messages(values, 1)):
                if value is None:
                    other += 1
                else:
                    found.append((number, tags[value[0]], step if step < 2**63 else -1, value[1]))
        damaged += not whole
    *places, numbers = zip(*found, strict=True) if found else ((), (), (), ())
    owner, tag, step_of = (np.array(column, np.int64) for column in places)
    return _Found(owner, tag, step_of, np.array(numbers, float), damaged, other)


def _messages(message: Fields, number: int) -> Iterator[bytes]:
    """The messages in a field."""
    return (value for field, value in message if field == number and isinstance(value, bytes))


def _doubles(rows: np.ndarray) -> np.ndarray:
    """The single-precision number in each row of four bytes."""
    with np.errstate(invalid="ignore"):  # a NaN that is not the usual one
        return np.ascontiguousarray(rows).view("<f4")[:, 0].astype(float)


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
    code, shape = parts.get(1, 0), parts.get(2)
    if not isinstance(code, int) or code not in _TENSOR_TYPES:
        return None
    kind, listed = _TENSOR_TYPES[code]
    if isinstance(shape, bytes) and any(field == 2 for field, _ in fields(shape)):
        return None  # it has a dimension, so it is no scalar
    content = parts.get(4)
    value = content if isinstance(content, bytes) and content else parts.get(listed)
    if isinstance(value, int):
        return float(value)
    if not isinstance(value, bytes) or len(value) != np.dtype(kind).itemsize:
        return None
    return float(np.frombuffer(value, kind)[0])
