"""Event files made by hand: frames with their checksums around protobuf messages, one field at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, as its definition has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The checksum as TFRecord stores it."""
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(event: bytes) -> bytes:
    """An event in its frame."""
    length = struct.pack("<Q", len(event))
    return length + masked(length) + event + masked(event)


def varint(value: int) -> bytes:
    """A whole number, seven bits a byte."""
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def part(field: int, body: bytes) -> bytes:
    """A field that holds bytes."""
    return varint(field << 3 | 2) + varint(len(body)) + body


def scalar(tag: str, value: float) -> bytes:
    """A summary value as PyTorch writes it."""
    return part(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag: str, value: float, dimension: int | None = None) -> bytes:
    """A summary value as TensorFlow 2 writes it: float32 in `tensor_content`, scalar unless a dimension is given."""
    shape = b"" if dimension is None else part(2, b"\x08" + varint(dimension))
    content = struct.pack("<f", value) * (dimension or 1)
    return part(1, tag.encode()) + part(8, b"\x08\x01" + part(2, shape) + part(4, content))


def event(step: int, values: Iterable[bytes], wall: float = 1.7e9) -> bytes:
    """One event; a step of 0 is left out, as protobuf does with zeros."""
    at = b"\x10" + varint(step) if step else b""
    return frame(b"\x09" + struct.pack("<d", wall) + at + part(5, b"".join(part(1, value) for value in values)))


VERSION = frame(b"\x09" + struct.pack("<d", 1.7e9) + part(3, b"brain.Event:2"))


def log(rows: Iterable[tuple[int, Mapping[str, float]]], together: bool = False) -> bytes:
    """A whole file: one event a value, or one a row."""
    out = VERSION
    for step, row in rows:
        values = [scalar(tag, value) for tag, value in row.items()]
        out += event(step, values) if together else b"".join(event(step, [value]) for value in values)
    return out
