"""Bounds for configurations of unknown origin: a few hundred bytes may nest or repeat themselves without end."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from stabilizer.core.json_text import MAX_NESTING, too_deep

MAX_CHARS = 4 * 2**20
"""Characters of one configuration. A larger file is something else."""
MAX_BYTES = 4 * MAX_CHARS
"""Bytes of its file: a character of UTF-8 has at most four."""
TOO_DEEP = f"nested more than {MAX_NESTING} levels deep; is this the right file?"
"""What `TooMuch` says of a document with too many levels."""

_DOTTED = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){""" + str(MAX_NESTING) + "}")
"""A TOML key of too many parts. The parser takes quadratic time for it."""


class TooMuch(ValueError):
    """A document exceeds a bound. The message says which one."""


def check_size(text: str) -> None:
    """Raise TooMuch where a text is too long for a configuration."""
    if len(text) > MAX_CHARS:
        raise TooMuch(
            f"{len(text) / 2**20:.1f} MiB of text, more than the {MAX_CHARS // 2**20} MiB of a configuration;"
            " is this the right file?"
        )


def load_toml(text: str) -> dict[str, Any]:
    """The value of a TOML text. TooMuch where it is too long or nested too deeply."""
    check_size(text)
    if _DOTTED.search(text):
        raise TooMuch(TOO_DEEP)
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise TooMuch(TOO_DEEP) from None
    if too_deep(value):
        raise TooMuch(TOO_DEEP)
    return value
