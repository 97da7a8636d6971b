"""JSON of any training loop: lines of objects, a list of objects, or columns of numbers.

    {"step": 1, "reward": 0.4, "kl": 0.001}                 JSON lines, one record a line
    [{"step": 1, "reward": 0.4}, {"step": 2, ...}]          a list of records, also under one key of an object
    {"1": {"reward": 0.4}, "2": {"reward": 0.5}}            records by step
    {"reward": [0.4, 0.5, ...], "kl": [0.0, 0.001, ...]}    columns, with or without one of steps

Nested objects become names with slashes. `null` is not a measurement; `NaN` and `Infinity` are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.core.json_text import loads_python
from stabilizer.formats.console import head
from stabilizer.formats.files import json_lines, json_value
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import number
from stabilizer.formats.shapes import SETTING
from stabilizer.formats.steps import STEP_KEYS, rows_of
from stabilizer.runs.reader import UnknownFormat

NAME = "json"
WHAT = "JSON lines with a record a step, a JSON list of records, or JSON columns"

_START = re.compile(rb"\{|\[\s*[{\]]")  # a console line may begin with "[2025-02-10 12:00:00]" or "[rank0]"

FIRST, MANY = 1_000_000, 20
"""Bytes and lines at the start that decide whether each line is a record."""
LEAST = 2
"""Fewest numbers of a column."""
_OF_POLICY = re.compile(r"(?:^|[/_])(?:rewards?|kl)(?:$|[/_])")


def recognises(path: Path) -> bool:
    """By its first characters, and something that can be a number after a name."""
    start = head(path)[:65536].removeprefix(b"\xef\xbb\xbf").lstrip()
    return bool(_START.match(start)) and b'"' in start and b":" in start


def read(path: Path) -> NumberLog:
    """The run in a file of JSON lines, or in one JSON value."""
    records = _records(path)
    rows, skipped, notes = rows_of(records, path)
    if not rows:
        raise UnknownFormat(f"{path}: not a log in a known format: JSON, but no records of numbers along steps in it")
    return NumberLog(
        name=path.stem,
        rows=rows,
        format=NAME,
        files=[path],
        skipped=skipped,
        notes=notes,
    )


def _records(path: Path) -> list[Any]:
    start = head(path).lstrip()
    first = start[:FIRST].splitlines()[:MANY]
    line, _, others = start.partition(b"\n")
    long = len(line) > FIRST and line.startswith(b"{") and others.lstrip().startswith(b"{")
    if long or any(map(_object, first)):  # not only the first, which may be damaged
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
    if not lists and _last_values(value):
        return [dict(value)]
    columns = {key: item for key, item in lists.items() if sum(number(v) is not None for v in item) >= LEAST}
    if columns:
        return _rows(columns)
    return _in_objects({key: item for key, item in value.items() if isinstance(item, Mapping)})


def _last_values(value: Mapping[Any, Any]) -> bool:
    """Whether an object without lists is the newest row of a policy's training: a reward or KL beside other numbers."""
    numbers = [str(key) for key, item in value.items() if not isinstance(item, bool) and number(item) is not None]
    return len(numbers) >= LEAST and any(_OF_POLICY.search(name) and not SETTING.search(name) for name in numbers)


def _in_objects(inner: Mapping[Any, Mapping[Any, Any]]) -> list[Any]:
    """The records in objects: each is one where the keys are steps, otherwise those of the object with most."""
    by_step = [(step, item) for key, item in inner.items() if (step := number(key)) is not None]
    if LEAST <= len(by_step) == len(inner):
        return [{"step": step, **item} for step, item in sorted(by_step, key=lambda pair: pair[0])]
    found = [_in_value(item) for item in inner.values()]
    return max(found, key=len, default=[])


def _rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Columns as records. Steps apply to the columns of the same length."""
    length = max(map(len, columns.values()))
    steps = next((columns[key] for key in STEP_KEYS if len(columns.get(key, ())) == length), None)
    return [
        {
            **{key: column[place] for key, column in columns.items() if place < len(column)},
            **({"step": steps[place]} if steps else {}),
        }
        for place in range(length)
    ]
