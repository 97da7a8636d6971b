"""Finds known troubles in the lines of a log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from stabilizer.troubles.all import TROUBLES
from stabilizer.troubles.places import PLACES, by_place
from stabilizer.troubles.trouble import CERTAINTY, WORD, Trouble

MAX_LINE = 4_000
"""Characters of a line that are searched. Messages are shorter; lines of metrics and texts are not messages."""


MOST_WORDS = 24
"""Words of known messages in a line from which it is a text and no message; the messages have 11 at most."""
PER_PATTERN = 300
"""Characters that are searched in the time that a pattern takes before its search begins (measured, Python 3.11)."""
FRAME_WORTH = 40
"""Characters of a message that a known place in the program is worth as evidence."""


class Found(NamedTuple):
    """A trouble that shows in a line."""

    trouble: Trouble
    values: dict[str, str]

    @property
    def rank(self) -> tuple[bool, bool, float, int]:
        """The best explanation has the lowest: causes before consequences, then the particular, the surer, the longer message
        and known place."""
        length = max(map(len, self.trouble.shows)) + (FRAME_WORTH if self.trouble.frames or self.trouble.code else 0)
        return self.trouble.consequence, self.trouble.general, -CERTAINTY[self.trouble.certainty], -length


@cache
def by_id() -> dict[str, Trouble]:
    """Every trouble by its id, and every place."""
    return {trouble.id: trouble for trouble in (*PLACES, *TROUBLES)}


@cache
def _by_anchor() -> dict[str, list[Trouble]]:
    known: dict[str, list[Trouble]] = defaultdict(list)
    for trouble in TROUBLES:
        for anchor in trouble.anchors:
            known[anchor].append(trouble)
    return dict(known)


def in_line(line: str, frames: tuple[str, ...] = ()) -> Found | None:
    """The best explanation of a line; None if no known trouble shows in it."""
    return look(line, frames)[0]


def look(line: str, frames: tuple[str, ...] = ()) -> tuple[Found | None, int]:
    """The best explanation of a line, and what the search cost: characters times patterns, with their overhead."""
    known = _by_anchor()
    text = line[:MAX_LINE]
    words = known.keys() & set(WORD.findall(text))
    if not words or len(words) > MOST_WORDS:
        return None, 0
    asked = {trouble.id: trouble for word in words for trouble in known[word]}
    found = best(
        Found(trouble, values) for trouble in asked.values() if (values := trouble.found_in(text, frames)) is not None
    )
    return found, len(asked) * (len(text) + PER_PATTERN)


def best(found: Iterable[Found]) -> Found | None:
    """The best explanation of several."""
    return min(found, key=lambda one: one.rank, default=None)


def at_place(frames: tuple[str, ...], own: str) -> Found | None:
    """The part of the program in which an exception of no known message was raised."""
    found = by_place(frames, own)
    return Found(*found) if found else None
