"""Bounds for configurations of unknown origin: a few hundred bytes may nest or repeat themselves without end."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

MAX_CHARS = 4 * 2**20
"""Characters of one configuration. A larger file is something else."""
MAX_BYTES = 4 * MAX_CHARS
"""Of its file: a character of UTF-8 has at most four."""
MAX_DEPTH = 64
"""Levels of nesting. A configuration has five or six."""

_DOTTED = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){%d}""" % MAX_DEPTH  # noqa: UP031 (braces)
)
"""A TOML key of too many parts. The parser takes quadratic time for it."""


class TooMuch(ValueError):
    """A document beyond a bound. The message says which one."""


def check_size(text: str) -> None:
    """TooMuch where a text is too long for a configuration."""
    if len(text) > MAX_CHARS:
        raise TooMuch(
            f"{len(text) / 2**20:.1f} MiB of text, more than the {MAX_CHARS // 2**20} MiB of a configuration;"
            " is this the right file?"
        )


def check_depth(value: Any) -> Any:
    """The same value, TooMuch where it is nested too deeply for code that recurses."""
    level = [value] if isinstance(value, (Mapping, list)) else []
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
            if isinstance(inner, (Mapping, list))
        ]
        if not level:
            return value
    raise too_deep()


def too_deep() -> TooMuch:
    """The error for a document that is nested too deeply."""
    return TooMuch(f"nested more than {MAX_DEPTH} levels deep; is this the right file?")


def load_toml(text: str) -> dict[str, Any]:
    """What a TOML text says. TooMuch where it is too long or nested too deeply."""
    check_size(text)
    if _DOTTED.search(text):
        raise too_deep()
    try:
        return check_depth(tomllib.loads(text))
    except RecursionError:
        raise too_deep() from None
