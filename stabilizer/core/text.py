"""Values, durations and foreign text for people: one line, no control characters, bounded length."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
GROUPED_BELOW = 10**9
"""Numbers with a fraction are written out up to this size; larger ones get an exponent."""
_UNITS = ((86_400, "days"), (3600, "h"), (60, "min"))
"""Units of a duration with their seconds, the largest first."""
LONGEST = 600
"""Characters of any single piece of foreign text that are shown."""


def plain(text: object, longest: int = LONGEST) -> str:
    """Text of unknown origin on one line, without control characters, escape sequences or invisible characters."""
    clean = _INVISIBLE.sub(" ", _ESCAPES.sub("", str(text))).strip()
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"


def cut(text: str, most: int) -> str:
    """A text cut to a number of characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def short(value: Any) -> str:
    """A value in few characters: 4 significant digits, thousands grouped, NaN and Inf by name."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else f"{float(value):.4g}"
    if isinstance(value, float):
        return _short_float(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {short(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(short(inner) for inner in value)
    return str(value)


def rounded(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, never as a power of ten where it is a plain size: 1,020, 0.0133."""
    return short(float(f"{value:.{digits}g}"))


def _short_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "−Inf"
    if abs(value) >= GROUPED_BELOW:
        return f"{value:.4g}"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def spoken(seconds: float) -> str:
    """A duration in the largest unit that fits twice: `20 ms`, `1.5 s`, `90 s`, `5 min`, `2.5 h`, `3 days`."""
    size = abs(seconds)
    for unit_s, unit in _UNITS:
        if size >= 2 * unit_s:
            return f"{seconds / unit_s:,.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.3g} s" if size >= 0.1 or not size else f"{1000 * seconds:.3g} ms"


def age_words(seconds: float) -> str:
    """An age in whole units, the largest that fits: `40 s`, `3 min`, `2 h`, `5 d`."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts numbers in names by size: layers/2 before layers/12."""
    parts = re.split(r"([0-9]{1,18})", name.casefold())
    return tuple((int(part), "") if part.isascii() and part.isdecimal() else (-1, part) for part in parts)
