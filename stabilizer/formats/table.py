"""Tables with a header: CSV of any trainer or export, separated by commas, semicolons or tabs.

Three forms are read: wide (a step column and one column a metric; stable-baselines3's `progress.csv`, W&B's and
pandas' exports), long (`step, metric, value`), and TensorBoard's export of one metric (`Wall time, Step, Value`), which
is named after its file. Traps:

- W&B's export has `<run> - <metric>`, with `__MIN` and `__MAX` beside each, and may hold several runs: the one with
  the most numbers is read.
- SB3 writes a key as soon as it is known, so its first rows have empty cells; a step is a step of the environment.
- An empty cell is no measurement; `nan` and `inf` are.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stabilizer.formats.console import head, lines
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import MAX_NAMES, number
from stabilizer.formats.shapes import spelled
from stabilizer.formats.steps import rows_of
from stabilizer.runs.reader import RunError

NAME = "csv"
WHAT = "a table with a head: a column of steps and one a metric (CSV), or step, metric, value"

METRIC_COLUMNS = ("metric", "name", "key", "tag", "metric_name", "series")
_EXPORT = re.compile(r"(?P<run>.+?) - (?P<metric>[^\s].*)", re.DOTALL)
_BOUNDS = ("__MIN", "__MAX")
_COMMA = re.compile(r"^([+-]?\d{1,15}),(\d{1,15})$")


def recognises(path: Path) -> bool:
    """By a header of names and a row of as many cells with numbers in it; a `.csv` by its header alone."""
    try:
        start = head(path)[:1_000_000]
        if not start or b"\0" in start:
            return False
        first, _, rest = start.decode("utf-8-sig", "replace").lstrip().partition("\n")
        cells = _split(first.rstrip("\r"))
        below = next(csv.reader([rest.partition("\n")[0].rstrip("\r")], delimiter=_separator(first)), [])
    except (OSError, csv.Error, ValueError):
        return False
    if len(cells) < 2 or any(len(cell) > 300 for cell in cells) or first[:1] in "{[":
        return False
    if 2 * sum(number(cell) is not None for cell in cells) >= len(cells):  # numbers and one odd cell
        return False
    if path.suffix.lower() == ".csv" and not below:
        return True
    return len(below) == len(cells) and any(number(cell) is not None for cell in below)


def read(path: Path) -> NumberLog:
    """The run in a table."""
    heads, records, damaged = _records(path)
    notes: list[str] = []
    lower = {name.lower(): name for name in heads}
    metric = next((lower[word] for word in METRIC_COLUMNS if word in lower), None)
    if set(lower) <= {"wall time", "step", "value"} and "value" in lower:
        records = [{"step": record.get(lower["step"]), path.stem: record.get(lower["value"])} for record in records]
    elif metric and "value" in lower:
        records = [_long(record, metric, lower["value"]) for record in records]
    else:
        records = _one_run(heads, records, notes)
    rows, skipped, said = rows_of(records, path)
    return NumberLog(
        name=path.stem,
        rows=rows,
        format=NAME,
        files=[path],
        skipped=skipped + damaged,
        notes=notes + said,
    )


def _separator(first: str) -> str:
    return max(",;\t", key=first.count)


def _split(first: str) -> list[str]:
    return [spelled(cell.strip()) for cell in next(csv.reader([first], delimiter=_separator(first)), [])]


def _records(path: Path) -> tuple[list[str], list[dict[str, Any]], int]:
    """The header, the rows with as many cells, and the number of other rows."""
    texts = (line.text.removeprefix("\ufeff") for line in lines(path))
    first = next(texts, "")
    if not first.strip():
        raise RunError(f"{path}: the file is empty; was the trainer stopped before its first log?")
    try:
        heads = _split(first)
        if len(heads) > MAX_NAMES:
            raise RunError(f"{path}: a head of {len(heads):,} names is more than the {MAX_NAMES:,} this reader takes")
        records, damaged = [], 0
        for cells in _cells(texts, _separator(first)):
            if len(cells) > len(heads) or (len(cells) < len(heads) and len(heads) > 1):
                damaged += 1
                continue
            records.append({name: cell for name, cell in zip(heads, cells, strict=True) if cell})
    except csv.Error as error:
        raise RunError(f"{path}: not readable as CSV: {error}") from None
    if not records:
        raise RunError(f"{path}: no rows under the head; a CSV has a head with names, then one row per step")
    return heads, records, damaged


def _cells(texts: Iterator[str], separator: str) -> Iterator[list[str]]:
    for cells in csv.reader((text + "\n" for text in texts), delimiter=separator):
        if cells and separator == ";":  # a spreadsheet of a country that writes 0,31
            yield [_COMMA.sub(r"\1.\2", cell.strip()) for cell in cells]
        elif cells:
            yield [cell.strip() for cell in cells]


def _long(record: dict[str, Any], metric: str, value: str) -> dict[str, Any]:
    rest = {key: cell for key, cell in record.items() if key not in (metric, value)}
    return {**rest, record[metric]: record[value]} if metric in record and value in record else {}


def _one_run(heads: list[str], records: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """The columns of one run of a W&B export under their plain names; other tables as they are."""
    parts = {name: match for name in heads if (match := _EXPORT.fullmatch(name))}
    if not parts or len(parts) < len(heads) - 2:
        return records
    filled = Counter(parts[key]["run"] for record in records for key in record if key in parts)
    run = filled.most_common(1)[0][0] if filled else ""
    if len(filled) > 1:
        notes.append(f"a table of {len(filled)} runs: {run} has the most numbers and is read; export another alone")
    plain = {
        name: parts[name]["metric"] if name in parts else name
        for name in heads
        if not name.endswith(_BOUNDS) and (name not in parts or parts[name]["run"] == run)
    }
    return [{plain[key]: cell for key, cell in record.items() if key in plain} for record in records]
