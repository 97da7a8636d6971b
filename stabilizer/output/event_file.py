"""Writes event files of TensorBoard: numbers by step, texts, and a table of settings.

TensorBoard itself is not needed. Each record is written with one call and flushed, so that a viewer sees it at once.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from stabilizer.formats.event_frames import masked_crc


class EventFile:
    """One event file in a folder."""

    def __init__(self, folder: Path, t: float):
        self._file = (folder / f"events.out.tfevents.{int(t):010d}.stabilizer").open("ab")
        if not self._file.tell():
            self._write(_double(1, t) + _bytes(3, b"brain.Event:2"))

    def settings(self, config: Mapping[str, Any], t: float) -> None:
        """A table of settings, on TensorBoard's text page."""
        lines = {"key": "value", "-": "-"} | {_cell(key): _cell(value) for key, value in config.items()}
        self.text(0, t, "settings", "".join(f"| {key} | {value} |\n" for key, value in lines.items()))

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        """The numbers of a step."""
        numbers = b"".join(
            _bytes(1, _bytes(1, metric.encode("utf-8", "replace")) + b"\x15" + struct.pack("<f", _single(value)))
            for metric, value in values.items()
        )
        self._write(_double(1, t) + b"\x10" + _whole(step) + _bytes(5, numbers))

    def text(self, step: int, t: float, tag: str, text: str) -> None:
        """A text of a step, in Markdown."""
        at = b"\x10" + _whole(step) if step else b""
        self._write(_double(1, t) + at + _bytes(5, _bytes(1, _text(tag, text))))

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def _write(self, event: bytes) -> None:
        self._file.write(_frame(event))
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _cell(value: Any) -> str:
    """A value as a cell of a table holds it."""
    return " ".join(str(value).split()).replace("|", "\\|")


def _single(value: float) -> float:
    """The value as four bytes can hold it: what is too large for them is infinite."""
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
        return single
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _text(tag: str, text: str) -> bytes:
    """Words as TensorBoard's text page takes them: a tensor of one string, marked for that plugin."""
    plugin = _bytes(1, _bytes(1, b"text"))
    tensor = b"\x08\x07" + _bytes(2, _bytes(2, b"\x08\x01")) + _bytes(8, text.encode("utf-8", "replace"))
    return _bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, plugin)


def _frame(event: bytes) -> bytes:
    head = struct.pack("<Q", len(event))
    return head + struct.pack("<I", masked_crc(head)) + event + struct.pack("<I", masked_crc(event))


def _double(number: int, value: float) -> bytes:
    return bytes([number << 3 | 1]) + struct.pack("<d", value)


def _bytes(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _whole(len(value)) + value


def _whole(value: int) -> bytes:
    """A whole number in sevens of bits, the lowest first; one below 0 as its 64 bits."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
