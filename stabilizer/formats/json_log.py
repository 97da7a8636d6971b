"""JSON of anyone's loop: lines of objects, a list of objects, or columns of numbers.

    {"step": 1, "reward": 0.4, "kl": 0.001}                 JSON lines, one record a line
    [{"step": 1, "reward": 0.4}, {"step": 2, ...}]          a list of records, also under one key of an object
    {"1": {"reward": 0.4}, "2": {"reward": 0.5}}            records by step
    {"reward": [0.4, 0.5, ...], "kl": [0.0, 0.001, ...]}    columns, with or without one of steps

Nested objects become names with slashes. `null` is no measurement; `NaN` and `Infinity` are. Which name is meant by
which metric is guessed and said (`names.GUESSES`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.core.json_text import loads_python
from stabilizer.formats.console import head
from stabilizer.formats.files import json_lines, json_value
from stabilizer.formats.rows import number
from stabilizer.formats.steps import rows_of
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.names import STEP_KEYS, named_log

NAME = "json"
WHAT = "JSON lines with a record a step, a JSON list of records, or JSON columns"

_START = re.compile(rb"\{|\[\s*[{\]]")  # a console line may begin with "[2025-02-10 12:00:00]" or "[rank0]"

FIRST, MANY = 1_000_000, 20
"""Bytes and lines that say whether each line is a record."""
LEAST = 2
"""Numbers a column must have to be one."""


def recognises(path: Path) -> bool:
    """By its first characters, and something that can be a number after a name."""
    start = head(path)[:65536].removeprefix(b"\xef\xbb\xbf").lstrip()
    return bool(_START.match(start)) and b'"' in start and b":" in start


def read(path: Path, *, mapping: dict[str, str], config: Path | None) -> LoadedRun:
    """The run in a file of JSON lines, or in one JSON value."""
    records = _records(path)
    rows, skipped, notes = rows_of(records, path)
    if not rows:
        raise RunError(f"{path}: not a log in a known format: JSON, but no records of numbers along steps in it")
    return named_log(
        path.stem, rows, format=NAME, files=[path], mapping=mapping, config=config, skipped=skipped, notes=notes
    )


def _records(path: Path) -> list[Any]:
    start = head(path).lstrip()
    first = start[:FIRST].splitlines()[:MANY]
    line, _, others = start.partition(b"\n")
    long = len(line) > FIRST and line.startswith(b"{") and others.lstrip().startswith(b"{")
    if long or any(map(_object, first)):  # not the first alone: a line of it may be damaged
        found = list(json_lines(path))
        if sum(isinstance(record, dict) for record in found) > 1:
            return found
    return _in_value(json_value(path))


def _object(line: bytes) -> bool:
    """Whether a line is an object by itself."""
    try:
        return line.startswith(b"{") and isinstance(loads_python(line.decode("utf-8", "replace")), dict)
    except ValueError:
        return False


def _in_value(value: Any) -> list[Any]:
    """The records in a JSON value: the longest list of objects, or columns, or objects by step."""
    if isinstance(value, list):
        return value if any(isinstance(item, Mapping) for item in value) else []
    if not isinstance(value, Mapping):
        return []
    lists = {key: item for key, item in value.items() if isinstance(item, list)}
    records = max((item for item in lists.values() if item and isinstance(item[0], Mapping)), key=len, default=None)
    if records:
        return records
    columns = {key: item for key, item in lists.items() if sum(number(v) is not None for v in item) >= LEAST}
    if columns:
        return _rows(columns)
    inner = [(number(key), item) for key, item in value.items() if isinstance(item, Mapping)]
    if len(inner) >= LEAST and all(step is not None for step, _ in inner):
        return [{"step": step, **item} for step, item in sorted(inner, key=lambda pair: pair[0])]
    found = [_in_value(item) for item in value.values() if isinstance(item, Mapping)]
    return max(found, key=len, default=[])


def _rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Columns as records. Steps hold for the columns that are as long as theirs."""
    length = max(map(len, columns.values()))
    steps = next((columns[key] for key in STEP_KEYS if len(columns.get(key, ())) == length), None)
    return [
        {
            **{key: column[place] for key, column in columns.items() if place < len(column)},
            **({"step": steps[place]} if steps else {}),
        }
        for place in range(length)
    ]
