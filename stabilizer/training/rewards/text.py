"""Rewards that compare or inspect text. All take time proportional to the length of the text.

The exception is `regex`, whose time depends on the pattern; the deadline of its process limits it.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import deque
from collections.abc import Sequence
from typing import Any


def exact(
    completion: str,
    answer: Any,
    *,
    strip: bool = True,
    ignore_case: bool = False,
    ignore_space: bool = False,
    ignore_punctuation: bool = False,
    within: str = "",
) -> float | None:
    """1 if the completion is the answer, or one of the answers if there is a list; 0 otherwise.

    Unicode is compared in composed form. `ignore_space` treats any run of white space as one blank. `within` names a
    tag: only the content of its last block `<tag>…</tag>` is compared, and a completion without one gets 0.
    """
    given = inside(completion, within)
    if answer is None or given is None:
        return None if answer is None else 0.0

    def plain(text: str) -> str:
        text = unicodedata.normalize("NFC", text)
        text = text.casefold() if ignore_case else text
        text = text.translate(_NO_PUNCTUATION) if ignore_punctuation else text
        text = " ".join(text.split()) if ignore_space else text
        return text.strip() if strip else text

    given = plain(given)
    return float(any(given == plain(one) for one in _answers(answer)))


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def numeric(
    completion: str, answer: Any, *, tolerance: float = 0.0, relative: float = 1e-6, within: str = ""
) -> float | None:
    """1 if the last number of the completion equals the last number of the answer; 0 otherwise, or without a number.

    Numbers may have a sign, thousands separated by commas, a decimal point or an exponent, or be a fraction (3/4) or a
    percentage. They agree within `tolerance`, or within `relative` times the answer's size. If only one side has a
    percent sign, 50% agrees with both 50 and 0.5. `within` names a tag, as in `exact`.
    """
    if answer is None:
        return None
    given = last_number(inside(completion, within) or "")
    for one in _answers(answer):
        wanted = last_number(one)
        if given is None or wanted is None:
            continue
        readings = {(given.value, wanted.value)}
        if given.percent != wanted.percent:
            readings |= {(given.written, wanted.written)}
        for x, y in readings:
            if x == y or abs(x - y) <= max(tolerance, relative * abs(y)):
                return 1.0
    return 0.0


def regex(completion: str, *, pattern: str, full: bool = False, ignore_case: bool = False) -> float:
    """1 if the pattern is found in the completion, or with `full` if it matches all of it; `.` matches a newline."""
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    search = re.fullmatch if full else re.search
    return float(search(pattern, completion, flags) is not None)


def format_tags(completion: str, *, tags: Sequence[str] = ("think", "answer")) -> float:
    """1 if the completion is exactly these blocks in this order, each once: `<think>…</think><answer>…</answer>`.

    Only white space may surround the blocks, and no block may be empty or contain one of the tags.
    """
    rest = completion
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        rest = rest.lstrip()
        if not rest.startswith(opening):
            return 0.0
        block, found, rest = rest[len(opening) :].partition(closing)
        if not found or not block.strip() or any(f"<{t}>" in block or f"</{t}>" in block for t in tags):
            return 0.0
    return float(not rest.strip())


def length(completion: str, *, target: int, unit: str = "characters") -> float:
    """1 at the target length, falling linearly to 0 at length 0 and at twice the target.

    `unit` is characters or words. (The trainer itself has a penalty for running into the token limit.)
    """
    if unit not in ("characters", "words"):
        raise ValueError(f"unit = {unit!r}: must be characters or words")
    count = len(completion) if unit == "characters" else len(completion.split())
    return max(0.0, 1 - abs(count - target) / target)


def code_free(completion: str) -> float:
    """1 if the completion is prose; 0 if it contains a fenced block, or a line that begins like code."""
    return float(_CODE.search(completion) is None)


_CODE = re.compile(
    r"^[ \t]{0,8}(?:```|~~~|#include\b|(?:async )?def \w+\(|class \w+[:({]|import \w+$|from \w+ import |"
    r"function \w+\()",
    re.MULTILINE,
)


# --- parts ----------------------------------------------------------------------------------------------------------


def inside(text: str, tag: str) -> str | None:
    """The content of the last block `<tag>…</tag>`; all of the text without a tag, None without a block."""
    if not tag:
        return text
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, end) if end >= 0 else -1
    return None if start < 0 else text[start + len(tag) + 2 : end]


def _answers(answer: Any) -> list[str]:
    return [str(one) for one in answer] if isinstance(answer, (list, tuple)) else [str(answer)]


class Number:
    """A number found in a text: `value`, with a percentage as a share, and as `written`, without the percent sign."""

    def __init__(self, written: float, percent: bool):
        self.written = written
        self.percent = percent
        self.value = written / 100 if percent else written


_PLAIN = r"(?:\d{1,3}(?:,\d{3}){1,12}(?![\d,])|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)])[-+])?"
    r"(?:\\?[$€£¥] ?)?"
    rf"(?P<top>{_PLAIN})"
    r"(?P<exponent>[eE][-+]?\d{1,4}(?!\w))?"
    r"(?: ?/ ?(?P<bottom>\d+(?:\.\d+)?))?"
    r"(?P<percent> ?\\?%)?"
)


def last_number(text: str) -> Number | None:
    """The last number in a text."""
    found = deque(_NUMBER.finditer(text.replace("\N{MINUS SIGN}", "-")), maxlen=1)
    if not found:
        return None
    (last,) = found
    value = float(last["top"].replace(",", "") + (last["exponent"] or ""))
    if last["bottom"]:
        bottom = float(last["bottom"])
        value = value / bottom if bottom else math.nan
    return Number(-value if last["sign"] == "-" else value, bool(last["percent"]))
