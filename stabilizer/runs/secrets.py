"""Secrets are kept out of the run directory: values of secret-looking keys and flags, and secrets inside of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "***"
"""Written in place of the value of a key whose name matches `_SECRET`."""
HIDDEN_PART = "<hidden>"
"""Written in place of a secret that is part of a longer text, such as the password of an address."""

_NAMES = (
    r"api[_-]?key|access[_-]?key|private[_-]?key|secret|passwd|password|passphrase|credentials?|authorization"
    r"|(?<!pad[_-])(?<!eos[_-])(?<!bos[_-])(?<!unk[_-])(?<!sep[_-])(?<!cls[_-])(?<!mask[_-])(?<!stop[_-])(?<!image[_-])"
    r"token(?=$|[\"'\s:=])"
)
"""Words of names whose values are secrets. Names of special tokens, such as `pad_token`, are none."""
_SECRET = re.compile(_NAMES, re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^\s/@:'\"]{0,200}:[^\s/@'\"]{1,200}(?=@)")
_IN_HEADER = re.compile(r"\b((?:bearer|basic)\s+)[A-Za-z0-9+/=._~-]{8,500}", re.IGNORECASE)
_IN_ASSIGNMENT = re.compile(
    rf"((?:{_NAMES})[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?)([^\s\"',;&}}\]]{{1,500}})", re.IGNORECASE
)
"""`api_key=...`, `"password": "..."` and the like inside of a text. `{1,500}` bounds the search."""


def redacted(value: Any, key: str = "") -> Any:
    """The same structure with secrets hidden."""
    if isinstance(value, Mapping):
        return {str(inner): redacted(item, str(inner)) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    if value and _SECRET.search(key) and not isinstance(value, bool):
        return HIDDEN
    return redacted_text(value) if isinstance(value, str) else value


def redacted_text(text: str) -> str:
    """The text with the secrets in it hidden: passwords in addresses, authorization headers, assignments."""
    text = _IN_ADDRESS.sub(HIDDEN_PART, text)
    text = _IN_HEADER.sub(rf"\1{HIDDEN_PART}", text)
    return _IN_ASSIGNMENT.sub(lambda found: found[1] + _hidden_value(found[2]), text)


def _hidden_value(value: str) -> str:
    return value if value.lower() in ("bearer", "basic", HIDDEN_PART) else HIDDEN_PART


def hidden_keys(value: Any, key: str = "") -> list[str]:
    """Dotted keys of the values in which `redacted` hid something."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = [name for part, item in inner for name in hidden_keys(item, f"{key}.{part}" if key else str(part))]
    return [key] if isinstance(value, str) and (value == HIDDEN or HIDDEN_PART in value) else found


def redacted_words(words: Sequence[str]) -> list[str]:
    """A command line with the secrets in it hidden."""
    shown: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        before = shown[-1] if shown else ""
        if before.startswith("--") and "=" not in before and _SECRET.search(before):
            shown.append(HIDDEN)
        elif equals and value and _SECRET.search(key):
            shown.append(f"{key}={HIDDEN}")
        else:
            shown.append(redacted_text(word))
    return shown
