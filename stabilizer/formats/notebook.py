"""Notebooks (`.ipynb`): what cells printed, and the table that transformers' Trainer shows while it trains.

In a notebook the Trainer replaces its progress bar by an HTML table with a row a logging step (`Step`, `Training Loss`,
and with Unsloth or TRL every metric, `rewards / right` for `rewards/right`). Everything printed is a console and read
by the console readers. Of several trainings in one notebook the longest is read. Traps:

- The table rounds to six decimals, and its `No log` means that nothing was logged yet.
- Interrupted and repeated cells leave tables of their own.
- Outputs that were cleared leave nothing: then only the code is there, and the error says so.
"""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from stabilizer.formats.console import head
from stabilizer.formats.files import json_value
from stabilizer.formats.rows import number
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.easyr1 import log
from stabilizer.trainers.trl import console as trl_console
from stabilizer.trainers.trl import state
from stabilizer.trainers.verl import console as verl_console

NAME = "notebook"
WHAT = "a Jupyter notebook with the output of a training"

CONSOLES = (log, verl_console, trl_console)
_MARKUP = re.compile(r"<(/?)(table|tr|th|td)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_PROGRESS = re.compile(r"\[\s*\d{1,15}/(\d{1,15})\s")
MAX_CELL = 1000
"""Characters of a cell that are read; a name or a number takes fewer."""
_SPOKEN = {"Training Loss": "loss", "Validation Loss": "eval_loss"}


def recognises(path: Path) -> bool:
    """By a notebook's own keys near its start or end."""
    if path.suffix.lower() != ".ipynb":
        return False
    start = head(path)[:4096].lstrip()
    return start.startswith(b"{") and (b'"cells"' in start or b'"nbformat"' in start or b'"metadata"' in start)


def read(path: Path, *, mapping: dict[str, str], config: Path | None) -> LoadedRun:
    """The longest training whose output is in the notebook."""
    outputs = list(_outputs(json_value(path)))
    runs: list[LoadedRun] = []
    errors: list[str] = []
    for records, planned in _tables(outputs):
        try:
            runs.append(
                state.run_of(records, path, format=NAME, mapping=mapping, config=config, planned=planned, notes=[])
            )
        except RunError as error:
            errors.append(str(error))
    try:
        if printed := _printed(outputs, path, mapping, config):
            runs.append(printed)
    except RunError as error:
        errors.append(str(error))
    if not runs:
        if errors:
            raise RunError(errors[0])
        what = "no output of a training in it" if outputs else "a notebook without outputs: they were cleared"
        raise RunError(f"{path}: {what}; save the notebook after training, or give the trainer's own log")
    best = max(runs, key=lambda run: run.source.steps)
    return best.noted(
        [f"{len(runs) - 1} shorter outputs of training in the notebook set aside"] if len(runs) > 1 else []
    )


def _outputs(notebook: Any) -> Iterator[tuple[str, str]]:
    """("text" or "html", content) of every output, in order."""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for cell in cells if isinstance(cells, list) else []:
        for output in (cell.get("outputs") if isinstance(cell, dict) else None) or []:
            if not isinstance(output, dict):
                continue
            if text := _joined(output.get("text")) or _joined(output.get("traceback")):
                yield "text", text
            data = output.get("data")
            if isinstance(data, dict) and (page := _joined(data.get("text/html"))):
                yield "html", page


def _joined(text: Any) -> str:
    if isinstance(text, list):
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""


def _tables(outputs: list[tuple[str, str]]) -> Iterator[tuple[list[dict[str, Any]], int | None]]:
    """Each training's table as records in the trainer's own names, and the steps that were planned."""
    for kind, page in outputs:
        if kind != "html" or "<table" not in page.lower():
            continue
        progress = _PROGRESS.search(_TAG.sub(" ", page[:5_000]))
        for rows in _rows(page):
            if len(rows) < 2 or "Step" not in rows[0]:
                continue
            heads = ["step" if name == "Step" else _SPOKEN.get(name, name.replace(" / ", "/")) for name in rows[0]]
            records = [dict(_numbers(heads, cells)) for cells in rows[1:]]
            yield [record for record in records if "step" in record], int(progress[1]) if progress else None


def _rows(page: str) -> Iterator[list[list[str]]]:
    """The cells of each table that ends, row by row. The page is gone through once, whatever tags it leaves open."""
    rows: list[list[str]] | None = None
    cell = None
    for mark in _MARKUP.finditer(page):
        ends, tag = bool(mark[1]), mark[2].lower()
        if tag == "table":
            if ends and rows is not None:
                yield rows
            rows, cell = None if ends else [], None
        elif rows is None:
            continue
        elif tag == "tr":
            cell = None
            if not ends:
                rows.append([])
        elif not ends:
            cell = mark.end()
        elif cell is not None and rows:
            rows[-1].append(_plain(page[cell : min(mark.start(), cell + MAX_CELL)]))
            cell = None


def _numbers(heads: list[str], cells: list[str]) -> Iterator[tuple[str, float]]:
    for name, cell in zip(heads, cells, strict=False):
        if (value := number(cell.replace(",", ""))) is not None:
            yield name, value


def _plain(cell: str) -> str:
    return html.unescape(_TAG.sub("", cell)).strip()


def _printed(
    outputs: list[tuple[str, str]], path: Path, mapping: dict[str, str], config: Path | None
) -> LoadedRun | None:
    """The run that cells printed, as the console reader that knows it reads it."""
    text = "\n".join(content for kind, content in outputs if kind == "text")
    with tempfile.TemporaryDirectory() as folder:
        console = Path(folder) / f"{path.stem}.log"
        console.write_text(text, encoding="utf-8", errors="replace")
        for reader in CONSOLES:
            if reader.recognises(console):
                try:
                    run = reader.read(console, mapping=mapping, config=config)
                except RunError as error:
                    raise RunError(str(error).replace(str(console), str(path))) from None
                return replace(run, source=replace(run.source, format=NAME, files=(str(path),)))
    return None
