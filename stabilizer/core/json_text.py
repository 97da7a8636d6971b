"""JSON of unknown origin, bounded in depth so that recursive code can walk it. The bound holds for YAML and TOML too.
So is the number of values, because a short text such as `[],` takes 60 bytes of memory.

orjson reads about a thousand levels of nesting, which is also Python's limit of nested calls. Code that walks such a
value (a copy, a search for secrets, a message that quotes it) would fail far from where it was read.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

MAX_NESTING = 100
"""Levels of lists and objects within each other. Configurations have about ten. Code that walks a value may need
several calls for each level, and Python allows 1,000."""

MAX_VALUES = 5_000_000
"""Values of one text, which take 100 to 200 bytes of memory each: names, numbers, texts and groups."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.S)
_MARKS = (b",", b"[", b"{")

_OUTER = frozenset({dict, list})


class NestedTooDeep(ValueError):
    """Lists or objects are nested more than `MAX_NESTING` levels deep."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {MAX_NESTING} levels deep")


class TooManyValues(ValueError):
    """A text holds more than `MAX_VALUES` values."""

    def __init__(self) -> None:
        super().__init__(f"more than {MAX_VALUES:,} values")


def loads(text: bytes | str) -> Any:
    """The value of a JSON text. ValueError when the text is not JSON; NestedTooDeep and TooManyValues are such."""
    _check_values(text)
    return _walkable(orjson.loads(text))


def loads_python(text: bytes | str, *, walked: bool = True) -> Any:
    """The same for JSON as Python writes it, with NaN and Infinity.

    Measuring the depth adds a quarter to the time. Callers that walk only a few levels can turn it off (`walked`).
    """
    _check_values(text)
    try:
        value = orjson.loads(text)  # three times as fast as Python's own parser
    except orjson.JSONDecodeError:
        try:
            value = json.loads(text)
        except RecursionError:
            raise NestedTooDeep from None
    return _walkable(value) if walked else value


def _check_values(text: bytes | str) -> None:
    """TooManyValues where the values would fill the memory."""
    if len(text) <= MAX_VALUES:
        return
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    marks = sum(raw.count(mark) for mark in _MARKS)
    for string in _STRING.finditer(raw) if marks > MAX_VALUES else ():  # marks inside texts are not values
        marks -= sum(raw.count(mark, *string.span()) for mark in _MARKS)
        if marks <= MAX_VALUES:
            return
    if marks > MAX_VALUES:
        raise TooManyValues


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
