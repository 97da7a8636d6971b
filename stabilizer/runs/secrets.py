"""Secrets are kept out of the run directory: values of keys and flags whose name looks secret are hidden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "***"
"""Written in place of the value of a key whose name matches `_SECRET`."""

_SECRET = re.compile(r"token$|api_?key|secret|password", re.IGNORECASE)


def redacted(value: Any, key: str = "") -> Any:
    """The same structure with values of secret-looking keys hidden."""
    if isinstance(value, Mapping):
        return {str(inner): redacted(item, str(inner)) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    return HIDDEN if _SECRET.search(key) and value else value


def hidden_keys(value: Any, key: str = "") -> list[str]:
    """Dotted keys of the values that `redacted` hid."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = [name for part, item in inner for name in hidden_keys(item, f"{key}.{part}" if key else str(part))]
    return [key] if value == HIDDEN else found


def redacted_words(words: Sequence[str]) -> list[str]:
    """A command line with the values of secret-looking flags and `key=value` pairs hidden."""
    shown: list[str] = []
    for word in words:
        key, equals, _ = word.partition("=")
        before = shown[-1] if shown else ""
        if before.startswith("--") and "=" not in before and _SECRET.search(before):
            shown.append(HIDDEN)
        else:
            shown.append(f"{key}={HIDDEN}" if equals and _SECRET.search(key) else word)
    return shown
