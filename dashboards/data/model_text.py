"""Text a model wrote, cut into pieces that can be shown as they are: what a screen would hide or obey is spelt out.

A completion may hold terminal colours, a character that turns the reading direction around, or no visible character
at all. Each such character becomes a piece of its own that names it; everything else stays exactly as it was written.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["", "odd", "hit", "gone", "new"]

MAX_PIECES = 600
"""Pieces of one text; beyond, odd characters are still spelt out, but in the running text."""
MAX_WORDS = 700
"""Words a side up to which two texts are compared; the time this takes grows with their product."""
MAX_COMPARED = 12_000
"""Characters of both together up to which they are: a difference is shown whole."""

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_CONTROL = (
    "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI "
    "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
).split()
_NAMED = {
    0x7F: "DEL",
    0x200B: "ZWSP",
    0xFEFF: "BOM",
    0x061C: "ALM",
    0x200E: "LRM",
    0x200F: "RLM",
    0x202A: "LRE",
    0x202B: "RLE",
    0x202C: "PDF",
    0x202D: "LRO",
    0x202E: "RLO",
    0x2066: "LRI",
    0x2067: "RLI",
    0x2068: "FSI",
    0x2069: "PDI",
}
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


class Piece(NamedTuple):
    """A stretch of text of one kind: as written, spelt out, found by a search, or only in one of two texts."""

    text: str
    kind: Kind = ""


class Excerpt(NamedTuple):
    """A part of a text, and how many characters before and after it are left out."""

    pieces: tuple[Piece, ...]
    before: int
    after: int


def spelt(character: str) -> str:
    """A character nobody would see, as something everybody does."""
    code = ord(character)
    if code < len(_CONTROL):
        return f"⟨{_CONTROL[code]}⟩"
    return f"⟨{_NAMED[code]}⟩" if code in _NAMED else f"⟨U+{code:04X}⟩"


def one_line(text: str, longest: int) -> str:
    """The beginning of a text for a label: one line, nothing hidden."""
    head = _spell(" ".join(text[: 4 * longest].split()))
    return head[:longest] + "…" if len(head) > longest else head


def pieces(text: str, hits: Sequence[tuple[int, int]] = ()) -> tuple[Piece, ...]:
    """A text as pieces, with the stretches `hits` (ascending) marked."""
    found: list[Piece] = []
    place = 0
    for start, end in hits:
        start = max(start, place)
        if end > start:
            _add(found, text[place:start], "")
            _add(found, text[start:end], "hit")
            place = end
    _add(found, text[place:], "")
    return tuple(found)


def excerpt(text: str, most: int, hits: Sequence[tuple[int, int]] = ()) -> Excerpt:
    """At most `most` characters: from the beginning, or from just before the first hit when that lies further on."""
    start = 0
    if hits and hits[0][0] > most - 80:
        start = max(0, min(hits[0][0] - 80, len(text) - most))
    end = min(len(text), start + most)
    inside = [(max(a, start) - start, min(b, end) - start) for a, b in hits if a < end and b > start]
    return Excerpt(pieces(text[start:end], inside), start, len(text) - end)


def word_diff(before: str, after: str) -> tuple[Piece, ...] | None:
    """The word-by-word difference of two texts; None when they are too long for it."""
    if len(before) + len(after) > MAX_COMPARED:
        return None
    old, new = _words(before), _words(after)
    if old is None or new is None:
        return None
    found: list[Piece] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            _add(found, "".join(old[a:b]), "")
            continue
        _add(found, "".join(old[a:b]), "gone")
        _add(found, "".join(new[c:d]), "new")
    return tuple(found)


def _words(text: str) -> list[str] | None:
    words: list[str] = []
    for match in _WORDS.finditer(text):
        if len(words) == MAX_WORDS:
            return None
        words.append(match[0])
    return words


def _add(found: list[Piece], text: str, kind: Kind) -> None:
    if kind or not _ODD.search(text) or len(found) >= MAX_PIECES:
        if text:
            found.append(Piece(_spell(text), kind))
        return
    place = 0
    for match in _ODD.finditer(text):
        if len(found) >= MAX_PIECES:
            break
        if match.start() > place:
            found.append(Piece(text[place : match.start()], ""))
        found.append(Piece(_spell(match[0]), "odd"))
        place = match.end()
    if place < len(text):
        found.append(Piece(_spell(text[place:]), ""))


def _spell(text: str) -> str:
    return _ODD.sub(lambda match: "".join(map(spelt, match[0])), text)
