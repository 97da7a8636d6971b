"""The part of the protobuf wire format that event files and W&B files need: fields by number, without a schema."""

from __future__ import annotations

Fields = list[tuple[int, int | bytes]]
"""Number and value of each field: integers as int, the rest as bytes."""


def fields(message: bytes) -> Fields:
    """Fields of a protobuf message up to the first damage."""
    return parsed(message)[0]


def parsed(message: bytes) -> tuple[Fields, bool]:
    """Fields of a protobuf message up to the first damage, and whether there was none."""
    found: Fields = []
    place = 0
    while place < len(message):
        key, place = _integer(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _integer(message, place)
            found.append((key >> 3, value))
            continue
        if kind == 2:
            length, place = _integer(message, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            return found, False
        if length < 0 or place + length > len(message):
            return found, False
        found.append((key >> 3, message[place : place + length]))
        place += length
    return found, True


def _integer(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 70:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    return -1, len(message)
