"""JSON that is nested as deep as a test wants it."""

from __future__ import annotations

DEPTHS = (150, 300, 990, 100_000)
"""Levels beyond the bound: taken by both parsers, too deep for orjson to write, for Python to walk, and to be read."""


def nested(levels: int, kind: str = "object") -> str:
    """A JSON text of so many objects, or lists, within each other."""
    return '{"a":' * levels + "1" + "}" * levels if kind == "object" else "[" * levels + "]" * levels
