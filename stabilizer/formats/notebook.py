"""Notebooks (`.ipynb`): what their cells printed, and the tables they show.

A cell's text is a console's output. Outputs that were cleared leave nothing: then only the code is there.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stabilizer.formats.console import head

_MARKUP = re.compile(r"<(/?)(table|tr|th|td)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
MAX_CELL = 1000
"""Characters of a cell that are read; a name or a number takes fewer."""


def recognises(path: Path) -> bool:
    """By a notebook's own keys near its start or end."""
    if path.suffix.lower() != ".ipynb":
        return False
    start = head(path)[:4096].lstrip()
    return start.startswith(b"{") and (b'"cells"' in start or b'"nbformat"' in start or b'"metadata"' in start)


class Output(NamedTuple):
    """What one cell shows at one place."""

    kind: str
    """"text" or "html"."""
    content: str
    cell: int


def outputs(notebook: Any) -> Iterator[Output]:
    """Every output, in order."""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for place, cell in enumerate(cells if isinstance(cells, list) else []):
        for output in (cell.get("outputs") if isinstance(cell, dict) else None) or []:
            if not isinstance(output, dict):
                continue
            if text := _joined(output.get("text")) or _joined(output.get("traceback")):
                yield Output("text", text, place)
            data = output.get("data")
            if isinstance(data, dict) and (page := _joined(data.get("text/html"))):
                yield Output("html", page, place)


def _joined(text: Any) -> str:
    if isinstance(text, list):
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""


def tables(page: str) -> Iterator[list[list[str]]]:
    """The cells of each closed table, row by row. The page is scanned once, whatever tags it leaves open."""
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


def plain(markup: str) -> str:
    """Markup without its tags, which become spaces."""
    return _TAG.sub(" ", markup)


def _plain(cell: str) -> str:
    return html.unescape(_TAG.sub("", cell)).strip()
