"""The frames of a TensorBoard event file: length (8 bytes), its checksum (4), the event, the event's checksum (4).

Walking a million frames one by one is too slow. So all places that may be the head of a frame are found at once: a
length below 16 MiB (five zero bytes) and an event that begins with its time or its step. Those with a valid checksum
are frames. The chain is followed only where one frame does not lead to the next; larger and unusual frames are read
there, one at a time.
"""

from __future__ import annotations

import numpy as np

_BLOCK = 1 << 18
"""Bytes searched at once: what fits into a processor's cache."""
_SHORT = 24
"""Bits of a length that the quick search finds."""


def frames(data: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Start and end of each event in the first `size` bytes, and the number of damaged stretches."""
    heads, ends = _sound(data, size)
    breaks = np.flatnonzero(np.append(ends[:-1] + 4 != heads[1:], True)) if len(heads) else heads
    chain: list[tuple[np.ndarray, np.ndarray]] = []
    offset = damaged = 0
    while offset < size:
        place = int(heads.searchsorted(offset))
        if place < len(heads) and heads[place] == offset:
            last = int(breaks[breaks.searchsorted(place)]) + 1
            chain.append((heads[place:last] + 12, ends[place:last]))
            offset = int(ends[last - 1]) + 4
        elif end := _single(data, size, offset):
            chain.append((np.array([offset + 12]), np.array([end])))
            offset = end + 4
        else:
            damaged += 1
            offset = int(heads[place]) if place < len(heads) else size
    if not chain:
        return np.empty(0, np.int64), np.empty(0, np.int64), damaged
    return np.concatenate([part[0] for part in chain]), np.concatenate([part[1] for part in chain]), damaged


def words(data: np.ndarray, kind: str) -> np.ndarray:
    """The number of some bytes that begins at every byte, aligned or not: a view."""
    wide = np.dtype(kind).itemsize
    return np.ndarray((max(0, len(data) - wide + 1),), kind, data, strides=(1,))


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as TFRecord stores it."""
    crc = _crc(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _sound(data: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Heads whose checksum holds, with the end of their events, all within the first `size` bytes."""
    found = [_heads(data[first : min(first + _BLOCK + 12, size)]) + first for first in range(0, size, _BLOCK)]
    heads = np.concatenate(found) if found else np.empty(0, np.int64)
    length = words(data, "<u4")[heads].astype(np.int64)
    keep = (heads + 16 + length <= size) & (words(data, "<u4")[heads + 8] == _masked_crc_of_lengths(length))
    return heads[keep], (heads + 12 + length)[keep]


def _heads(block: np.ndarray) -> np.ndarray:
    """Places in a block that look like the head of a frame."""
    count = max(0, len(block) - 12)
    zero = block == 0
    likely = zero[3 : 3 + count]
    for place in range(4, 8):
        likely = likely & zero[place : place + count]
    first = block[12 : 12 + count]
    return np.flatnonzero(likely & ((first == 0x09) | (first == 0x10)))


def _single(data: np.ndarray, size: int, offset: int) -> int:
    """The end of the event in the frame at `offset`; 0 when there is no sound one."""
    head = data[offset : min(offset + 12, size)].tobytes()
    if len(head) < 12 or masked_crc(head[:8]) != int.from_bytes(head[8:], "little"):
        return 0
    end = offset + 12 + int.from_bytes(head[:8], "little")
    return end if end + 4 <= size else 0


# --- checksums -------------------------------------------------------------------------------------------------------


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table


_TABLE = _crc_table()
_LIST: list[int] = _TABLE.tolist()


def _crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _LIST[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _tables() -> np.ndarray:
    """What each of a length's three low bytes does to its checksum, which is linear in the bits."""
    tables = np.empty((_SHORT // 8, 256), np.uint32)
    for place in range(len(tables)):
        value = np.arange(256, dtype=np.uint32)
        crc = np.zeros(256, np.uint32)
        for turn in range(8):
            crc = (crc >> np.uint32(8)) ^ _TABLE[(crc ^ (value if turn == place else 0)) & np.uint32(0xFF)]
        tables[place] = crc
    return tables


_OF_LENGTHS = _tables()
_OF_ZERO = np.uint32(_crc(bytes(8)))


def _masked_crc_of_lengths(length: np.ndarray) -> np.ndarray:
    """The checksum as a frame has it for each of many lengths below 2**24."""
    crc = np.full(len(length), _OF_ZERO)
    for place, table in enumerate(_OF_LENGTHS):
        crc ^= table[(length >> 8 * place) & 0xFF]
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)
