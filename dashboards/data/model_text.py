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
"""Words a side up to which two texts are compared word by word, and sentences a side up to which they are compared
sentence by sentence first; the time this takes grows with their product."""
MAX_PASSAGE = 3_000
"""Characters of two passages that differ, up to which they are compared word by word."""
MAX_COMPARED = 200_000
"""Characters of both together up to which they are compared."""
SAME_SHOWN = 200
"""Characters at each end of a long passage that both texts share."""

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
_SENTENCES = re.compile(r"[^.!?\n]{0,400}[.!?\n]\s*|[^.!?\n]{1,400}")


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
    head = spelt_out(" ".join(text[: 4 * longest].split()))
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
    found: list[Piece] = []
    if len(_WORDS.findall(before)) <= MAX_WORDS and len(_WORDS.findall(after)) <= MAX_WORDS:
        _compare(found, before, after, _WORDS)
        return tuple(found)
    if max(len(_SENTENCES.findall(before)), len(_SENTENCES.findall(after))) > MAX_WORDS:
        return None
    _compare(found, before, after, _SENTENCES)
    return tuple(found)


def _compare(found: list[Piece], before: str, after: str, units: re.Pattern[str]) -> None:
    """Add what two texts share and do not share, in units; sentences that differ are compared word by word."""
    old, new = units.findall(before), units.findall(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=units is _SENTENCES)  # sentences that repeat are slow
    for tag, a, b, c, d in matcher.get_opcodes():
        gone, come = "".join(old[a:b]), "".join(new[c:d])
        if tag == "equal":
            _add(found, _shortened(gone) if units is _SENTENCES else gone, "")
        elif units is _SENTENCES and gone and come and len(gone) + len(come) <= MAX_PASSAGE:
            _compare(found, gone, come, _WORDS)
        else:
            _add(found, gone, "gone")
            _add(found, come, "new")


def _shortened(same: str) -> str:
    """The ends of a long passage that both texts share."""
    left_out = len(same) - 2 * SAME_SHOWN
    if left_out <= SAME_SHOWN:
        return same
    return f"{same[:SAME_SHOWN]} [… {left_out:,} characters the same …] {same[-SAME_SHOWN:]}"


def _add(found: list[Piece], text: str, kind: Kind) -> None:
    if kind or not _ODD.search(text) or len(found) >= MAX_PIECES:
        if text:
            found.append(Piece(spelt_out(text), kind))
        return
    place = 0
    for match in _ODD.finditer(text):
        if len(found) >= MAX_PIECES:
            break
        if match.start() > place:
            found.append(Piece(text[place : match.start()], ""))
        found.append(Piece(spelt_out(match[0]), "odd"))
        place = match.end()
    if place < len(text):
        found.append(Piece(spelt_out(text[place:]), ""))


def spelt_out(text: str) -> str:
    """A text with each character that a screen would hide or obey as a visible name."""
    return _ODD.sub(lambda match: "".join(map(spelt, match[0])), text)
