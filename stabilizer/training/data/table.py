"""Rows of a data set in any format, each with its place for error messages."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stabilizer.core import parquet
from stabilizer.core.nearest import nearest
from stabilizer.core.paths import expanded


@dataclass(frozen=True)
class Table:
    """Rows and their source."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, Any]]
    where: Callable[[int], str]
    """Row number -> the place to name in an error."""

    def need(self, column: str, key: str) -> None:
        """Raise if there is no such column; `key` is the setting that names it."""
        if column not in self.columns:
            hint = nearest(column, self.columns)
            raise ValueError(
                f"{self.name}: no column {column!r}{f'; nearest is {hint!r}' if hint else ''} (there are"
                f" {', '.join(self.columns)}): set {key}"
            )


def read_table(path: str, split: str = "train", subset: str = "") -> Table:
    """The rows of a file, a folder saved by `datasets`, or a data set of the hub; ValueError on failure."""
    file = expanded(path, path)
    reader = READERS.get(file.suffix.lower())
    if file.is_file():
        if reader is None:
            raise ValueError(f"{path}: unknown file type; supported types are {', '.join(READERS)}")
        try:
            table = reader(file)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    elif reader is not None:
        there = [other.name for other in file.parent.glob("*") if other.is_file()] if file.parent.is_dir() else []
        hint = nearest(file.name, there)
        raise ValueError(f"{file.absolute()}: no such file{f'; nearest there is {hint!r}' if hint else ''}")
    else:
        table = _datasets(path, split, subset)
    if not len(table.rows):
        raise ValueError(f"{path}: it has no rows")
    return table


def _jsonl(path: Path) -> Table:
    rows, lines = [], []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                rows.append(_object(_json(line.rstrip(), path, number), f"{path} line {number}"))
                lines.append(number)
    return Table(str(path), _columns(rows), rows, lambda i: f"{path} line {lines[i]}")


def _json_file(path: Path) -> Table:
    values = _json(path.read_text(encoding="utf-8-sig"), path, 1)
    if isinstance(values, dict) and len(values) == 1:
        (values,) = values.values()  # {"data": [...]}
    if not isinstance(values, list):
        raise ValueError(f"{path}: must be a list of objects, [{{...}}, {{...}}]; one object per line needs .jsonl")
    rows = [_object(value, f"{path} row {i + 1}") for i, value in enumerate(values)]
    return Table(str(path), _columns(rows), rows, lambda i: f"{path} row {i + 1}")


def _json(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {line + error.lineno - 1} column {error.colno}"
        raise ValueError(f"{path} {place}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{path} line {line}: brackets are nested too deeply") from None


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f'{where}: must be an object, {{"prompt": ...}}, not {type(value).__name__}')
    return value


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple({name: None for row in rows for name in row})


def _csv(path: Path) -> Table:
    csv.field_size_limit(1 << 30)
    rows, lines = [], []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        columns = tuple(reader.fieldnames or ())
        if twice := next((name for name, count in Counter(columns).items() if name and count > 1), None):
            raise ValueError(f"{path} line 1: the header names {twice!r} twice; rename one of them")
        start = reader.line_num + 1
        for row in reader:
            if None in row or None in row.values():
                found = len([v for k, v in row.items() if k is not None and v is not None]) + len(row.get(None, ()))
                raise ValueError(f"{path} line {start}: {found} fields, but the header names {len(columns)}")
            rows.append(row)
            lines.append(start)
            start = reader.line_num + 1
    return Table(str(path), columns, rows, lambda i: f"{path} line {lines[i]}")


def _parquet(path: Path) -> Table:
    if find_spec("pyarrow") is None:
        raise ValueError(f"{path}: reading Parquet needs pyarrow: pip install '.[data]' in the project's folder")
    import pyarrow

    try:
        table = parquet.read(path)
    except parquet.TooMuch as error:
        raise ValueError(f"{path}: {error}") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: can't be read as Parquet: {error}") from None
    return Table(str(path), tuple(table.column_names), table.to_pylist(), lambda i: f"{path} row {i + 1}")


READERS: dict[str, Callable[[Path], Table]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json_file,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
}


def _datasets(path: str, split: str, subset: str) -> Table:
    """A folder written by `save_to_disk`, any other folder of data files, or a name on the hub."""
    folder = expanded(path, path)
    what = "a folder of" if folder.is_dir() else "there is no such file, so it is read as a name on the hub:"
    if find_spec("datasets") is None:
        raise ValueError(
            f"data.path = {path!r}: {what} Hugging Face data; reading that needs datasets: pip install '.[data]' in the"
            f" project's folder. Without it: {', '.join(READERS)} files"
        )
    import datasets

    datasets.disable_progress_bars()
    data = _loaded(datasets, path, folder, subset)
    if isinstance(data, datasets.DatasetDict):
        if split not in data:
            hint = nearest(split, data)
            raise ValueError(
                f"{path}: no split {split!r}{f'; nearest is {hint!r}' if hint else ''} (there are {', '.join(data)})"
            )
        data = data[split]
    return Table(path, tuple(data.column_names), data, lambda i: f"{path} split {split} row {i + 1}")


def _loaded(datasets: Any, path: str, folder: Path, subset: str) -> Any:
    try:
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            return datasets.load_from_disk(str(folder))
        return datasets.load_dataset(str(folder) if folder.is_dir() else path, subset or None)
    except Exception as error:  # its errors have no common base
        raise ValueError(f"data.path = {path!r}: datasets can't load it: {type(error).__name__}: {error}") from None
