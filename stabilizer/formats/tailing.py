"""Incremental reading of logs that grow: each read continues where the last one stopped.

A reader of lines hands a parser to `gather`, which feeds it. Inside `with tails:`, `gather` keeps the parser of each
file and its offset, and feeds it only the lines added since. Otherwise it reads the whole file. The parser ends up the
same either way. An unfinished last line goes to a copy of the parser. Reading starts over when the file was replaced,
became shorter, or differs at either end of what was read. UTF-16 text and consoles wrapped in JSON are always read
from the beginning.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from stabilizer.formats.console import MAX_LINE, WRAPPED, Line, lines, pieces

_CHUNK = 1 << 20
_SAMPLE = 1024
"""Bytes at either end of what was read that must still be the same."""


class Parser(Protocol):
    """Fed line by line. Asking it for results does not change it, so that it can be fed further."""

    def see(self, line: Line) -> None:
        """The next line of the log."""

    def fork(self) -> Self:
        """A copy that can be fed without changing this one."""


P = TypeVar("P", bound=Parser)


class Tails:
    """The state of files that grow. Readers called inside `with tails:` continue where they stopped."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, Any], _Tail] = {}
        self._formats: dict[Path, tuple[int, int, Any]] = {}

    def __enter__(self) -> None:
        self._outer = _CURRENT.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _CURRENT.reset(self._outer)

    def format(self, path: Path, ask: Callable[[Path], Any], settles: Callable[[Any], bool]) -> Any:
        """The format of a path. It is not determined again for a file that only grows."""
        status = path.stat()
        inode, size, known = self._formats.get(path, (0, 0, None))
        if known is not None and inode == status.st_ino and size <= status.st_size:
            return known
        found = ask(path)
        if path.is_file() and settles(found):
            self._formats[path] = status.st_ino, status.st_size, found
        return found

    def gather(self, path: Path, make: Callable[[], P]) -> P:
        """The parser fed with all of a file, read from where the last look stopped."""
        tail = self._known.pop((path, make), None)  # removed first, in case of an exception below
        if tail is None or not tail.goes_on():
            tail = _Tail(path, make())
        if not tail.advance():
            return _fresh(path, make)
        self._known[path, make] = tail
        parser: P = tail.whole()
        return parser


_CURRENT: ContextVar[Tails | None] = ContextVar("tails", default=None)


def current() -> Tails | None:
    """The `Tails` in force, or None."""
    return _CURRENT.get()


def gather(path: Path, make: Callable[[], P]) -> P:
    """A parser that was fed with all lines of a file."""
    tails = _CURRENT.get()
    return tails.gather(path, make) if tails else _fresh(path, make)


def _fresh(path: Path, make: Callable[[], P]) -> P:
    parser = make()
    for line in lines(path):
        parser.see(line)
    return parser


class _Tail:
    """One file, its parser, and how far it was fed."""

    def __init__(self, path: Path, parser: Any):
        self._path, self._parser = path, parser
        self._offset, self._number = 0, 1
        self._file: tuple[int, int] | None = None
        self._ends: tuple[bytes, bytes] = b"", b""
        self._rest = b""

    def goes_on(self) -> bool:
        """Whether the file still begins with what was read."""
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            return self._file == (status.st_dev, status.st_ino) and self._ends == _ends(file, self._offset)

    def advance(self) -> bool:
        """Feed what was added, up to the last whole line. False when the file needs a full read."""
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            self._file = status.st_dev, status.st_ino
            if not self._offset and file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                return False
            file.seek(self._offset)
            held = b""
            while chunk := file.read(_CHUNK):
                held += chunk
                end = held.rfind(b"\n") + 1
                for line in self._lines(held[:end]):
                    if line.text.startswith(WRAPPED) or len(line.text) > MAX_LINE:
                        return False
                    for piece in pieces(line):
                        self._parser.see(piece)
                self._offset += end
                held = held[end:]
                if len(held) > MAX_LINE:
                    return False
            self._rest = held
            self._ends = _ends(file, self._offset)
        return not self._rest.startswith(tuple(sign.encode() for sign in WRAPPED))

    def whole(self) -> Any:
        """The parser after the unfinished last line as well."""
        text = self._text(self._rest)
        if not text:
            return self._parser
        parser = self._parser.fork()
        for piece in pieces(Line(self._number, text, False)):
            parser.see(piece)
        return parser

    def _lines(self, raw: bytes) -> Iterator[Line]:
        if not raw:
            return
        for text in self._text(raw)[:-1].split("\n"):
            yield Line(self._number, text, True)
            self._number += 1

    def _text(self, raw: bytes) -> str:
        return (raw if self._number > 1 else raw.removeprefix(codecs.BOM_UTF8)).decode("utf-8", "replace")


def _ends(file: Any, offset: int) -> tuple[bytes, bytes]:
    """The first and the last bytes before `offset`."""
    file.seek(0)
    first = file.read(min(_SAMPLE, offset))
    file.seek(max(0, offset - _SAMPLE))
    return first, file.read(min(_SAMPLE, offset))
