"""Searching many texts for a word or a pattern, without letting a pattern hold up anybody else.

A regular expression can take forever on a text it was not made for, and Python's can't be interrupted. So patterns are
tried in a process of their own, which is ended when it takes too long, and no more than a few at once: each holds one
of the server's threads, and those who only look at a run need one too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

from stabilizer.core.text import spoken

SECONDS = 3.0
MAX_PATTERN = 300
HITS = 5
"""Hits that are marked in each text."""

AT_ONCE = threading.BoundedSemaphore(2)
"""Patterns that are tried at the same time."""

Hits = list[tuple[int, int]]

_CHILD = """
import json, re, sys
asked = json.load(sys.stdin)
wanted, out = re.compile(asked["pattern"], re.IGNORECASE | re.MULTILINE), []
for text in asked["texts"]:
    hits = []
    for match in wanted.finditer(text):
        hits.append(match.span())
        if len(hits) == asked["hits"]:
            break
    out.append(hits or None)
json.dump(out, sys.stdout)
"""
_COMMAND = (sys.executable, "-I", "-S", "-c", _CHILD)


class PatternError(ValueError):
    """A pattern that can't be used; the message explains why and what to do."""


def find(words: str, texts: Sequence[str], *, regex: bool = False, seconds: float = SECONDS) -> list[Hits | None]:
    """Where each text has what is looked for, None where it has not. Upper and lower case are the same."""
    if len(words) > MAX_PATTERN:
        raise PatternError(f"search for at most {MAX_PATTERN} characters")
    if regex:
        return _patterned(words, texts, seconds)
    wanted = re.compile(re.escape(words), re.IGNORECASE)
    return [_hits(wanted, text) for text in texts]


def _hits(wanted: re.Pattern[str], text: str) -> Hits | None:
    hits: Hits = []
    for match in wanted.finditer(text):
        hits.append(match.span())
        if len(hits) == HITS:
            break
    return hits or None


def _patterned(pattern: str, texts: Sequence[str], seconds: float) -> list[Hits | None]:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(
            f"{pattern!r} is not a regular expression: {error}. Turn regex off to search for it literally"
        ) from None
    asked = json.dumps({"pattern": pattern, "texts": list(texts), "hits": HITS})
    if not AT_ONCE.acquire(blocking=False):
        raise PatternError("other searches are running; try again in a moment, or search for plain words")
    try:
        answer = subprocess.run(  # noqa: S603 - our own text; the pattern is data on its input
            _COMMAND, input=asked.encode(), capture_output=True, timeout=seconds, check=True
        )
    except subprocess.TimeoutExpired:
        raise PatternError(
            f"{pattern!r} takes more than {spoken(seconds)} on these texts; make it narrower, without .* at its start"
        ) from None
    except subprocess.SubprocessError:
        raise PatternError(f"{pattern!r} could not be run; search for plain words instead") from None
    finally:
        AT_ONCE.release()
    return [None if hits is None else [(a, b) for a, b in hits] for hits in json.loads(answer.stdout)]
