"""One self-contained document about a run, to send, to archive, or to open years later without a network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from stabilizer.analysis.analyse import Analysis, as_json, numbers
from stabilizer.core import records
from stabilizer.core.version import __version__
from stabilizer.output.report.as_html import MAX_BYTES, html
from stabilizer.output.report.as_markdown import markdown
from stabilizer.output.report.formatting import jsonable
from stabilizer.runs.reader import RunError, run_around

__all__ = ["FORMATS", "MAX_BYTES", "data", "default_name", "html", "markdown", "refuse", "write", "write_text"]

FORMATS = (".html", ".htm", ".md", ".json")


def write(analysis: Analysis, target: Path) -> Path:
    """Write the report in the form its suffix names, whole or not at all; returns the path."""
    suffix = target.suffix.lower()
    if suffix not in FORMATS:
        raise RunError(f"{target}: a report ends in .html, .md or .json, not {suffix or 'nothing'}")
    refuse(target, analysis.run.source.files)
    if suffix == ".json":
        text = orjson.dumps(data(analysis), option=orjson.OPT_INDENT_2).decode() + "\n"
    else:
        text = markdown(analysis) if suffix == ".md" else html(analysis)
    write_text(target, text)
    return target


def write_text(target: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = target.with_name(f".{target.name[:80]}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def default_name(analysis: Analysis) -> str:
    """A file name for the report of this run."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", analysis.run.name).strip("-.")[:80]
    return f"{stem or 'run'}-report.html"


def refuse(target: Path, logs: Iterable[str]) -> None:
    """RunError when a page must not be written there: no such folder, inside a run directory, or over a log."""
    place = target.resolve()
    if not place.parent.is_dir():
        raise RunError(f"{target}: the folder {place.parent} does not exist; make it first")
    if place.is_dir():
        raise RunError(f"{target}: is a folder; give a file name in it")
    if inside := run_around(place):
        raise RunError(
            f"{target}: lies inside the run directory {inside}, which only training writes to; use -o elsewhere"
        )
    if any(Path(file).resolve() == place for file in logs):
        raise RunError(f"{target}: is the log itself; give another name with -o")


def data(analysis: Analysis) -> dict[str, Any]:
    """The report as JSON: what `diagnose --json` says, and the facts around it."""
    about = analysis.run.history.about
    return {
        **as_json(analysis),
        "written_by": f"stabilizer {__version__}",
        "state": analysis.state,
        "notes": list(analysis.run.source.notes),
        "run_facts": records.as_json(jsonable({key: about[key] for key in about if key != "metrics"})),
        "numbers": [records.as_json(row._asdict()) for row in numbers(analysis.run)],
        "events": [records.as_json(event) for event in analysis.run.history.events],
        "actions": [records.as_json(action) for action in analysis.run.actions],
    }
