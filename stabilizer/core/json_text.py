"""JSON that anybody may have written, as values that code can walk without running out of stack.

orjson takes about a thousand levels of nesting, as many as Python takes calls within calls. Code that walks such a
value (a copy, a search for secrets, a message that quotes it) would die of it far from where it was read.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

MAX_NESTING = 100
"""Levels of lists and objects within each other. Configurations have about ten; code that walks a value may take a few
calls for each level, and Python allows 1,000."""


_OUTER = frozenset({dict, list})


class NestedTooDeep(ValueError):
    """Lists or objects lie more than `MAX_NESTING` levels within each other."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {MAX_NESTING} levels deep")


def loads(text: bytes | str) -> Any:
    """The value of a JSON text. ValueError when it is none, `NestedTooDeep` among them."""
    return _walkable(orjson.loads(text))


def loads_python(text: bytes | str, *, walked: bool = True) -> Any:
    """The same for JSON as Python writes it, with NaN and Infinity.

    To measure the depth adds a quarter to the time. Who walks only so many levels down can do without (`walked`).
    """
    try:
        value = orjson.loads(text)  # three times as fast as Python's own parser
    except orjson.JSONDecodeError:
        try:
            value = json.loads(text)
        except RecursionError:
            raise NestedTooDeep from None
    return _walkable(value) if walked else value


def too_deep(value: Any) -> bool:
    """Whether a value is nested more than `MAX_NESTING` levels deep, or holds itself."""
    level = [value] if type(value) in _OUTER else []
    for _ in range(MAX_NESTING):
        if not level:
            return False
        inner: dict[int, Any] = {}  # by identity: YAML may refer to one value many times
        for outer in level:
            items = outer.values() if type(outer) is dict else outer
            if not _OUTER.isdisjoint(map(type, items)):  # most hold plain values alone
                inner |= {id(item): item for item in items if type(item) in _OUTER}
        level = list(inner.values())
    return bool(level)


def _walkable(value: Any) -> Any:
    if too_deep(value):
        raise NestedTooDeep
    return value
