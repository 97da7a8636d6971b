"""TOML, as prime-rl uses it: values from the standard library, places found by searching the lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stabilizer.configs.bounds import TooMuch, load_toml
from stabilizer.configs.config import ConfigError, Parsed, Setting, limited

FORM = "toml"
SUFFIXES = (".toml",)
_TABLE = re.compile(r"^\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?$")
_PAIR = re.compile(r"^\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=\s*(.*)$")
_SIMPLE = re.compile(r"(\"[^\"\\]*\"|'[^']*'|[^\s#\[{\"']+)\s*(?:#.*)?$")


def read(path: Path, text: str) -> Parsed:
    """All leaves of a TOML file. Members of an array of tables are left out: they are not settings of the run."""
    try:
        values = load_toml(text.removeprefix("\ufeff"))
    except TooMuch as error:
        raise ConfigError(f"{path}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not readable as TOML: {error}") from None
    places = _places(text)
    found = (
        Setting(key=key, value=value, written=key, file=str(path), line=line, span=span)
        for key, value in _leaves(values)
        for line, span in [places.get(key, (None, None))]
    )
    return Parsed(form=FORM, path=path, text=text, settings=limited(found, path))


def insert(parsed: Parsed, key: str, value: Any) -> tuple[int, str]:
    """Below the header of its table, or as a new table at the end; a top-level key comes before the first table."""
    table, _, name = key.rpartition(".")
    offset = 0
    for line in parsed.text.splitlines(keepends=True):
        match = _TABLE.match(line)
        if match and match.group(1).strip() == table:
            return offset + len(line), f"{'' if line.endswith(chr(10)) else chr(10)}{name} = {written(value)}\n"
        offset += len(line)
    if not table:
        return 0, f"{name} = {written(value)}\n"
    tail = "" if parsed.text.endswith("\n") else "\n"
    return len(parsed.text), f"{tail}\n[{table}]\n{name} = {written(value)}\n"


def written(value: Any) -> str:
    """A value as TOML."""
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        elif not (isinstance(value, list) and value and isinstance(value[0], dict)):
            yield f"{prefix}{key}", value


def _places(text: str) -> dict[str, tuple[int, tuple[int, int] | None]]:
    """Key -> (line, place of its value where that is a simple one on that line)."""
    places: dict[str, tuple[int, tuple[int, int] | None]] = {}
    table, offset = "", 0
    for count, line in enumerate(text.splitlines(keepends=True), 1):
        bare = line.rstrip("\r\n")
        if match := _TABLE.match(bare):
            table = "" if bare.lstrip().startswith("[[") else f"{match.group(1).strip()}."
        elif match := _PAIR.match(bare):
            key = table + ".".join(part.strip().strip("\"'") for part in match.group(1).split("."))
            simple = _SIMPLE.fullmatch(match.group(2))
            start = offset + match.start(2)
            places.setdefault(key, (count, (start, start + len(simple.group(1))) if simple else None))
        offset += len(line)
    return places
