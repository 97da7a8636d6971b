"""Reads the longest training in a notebook, from its tables and its printed text.

In a notebook transformers' Trainer replaces its progress bar by an HTML table with a row a logging step (`Step`,
`Training Loss`, and with Unsloth or TRL every metric, `rewards / right` for `rewards/right`). Printed text is read by
the console readers. A program's own lines are read by their shape, cell by cell, where neither has a reward. Of several
trainings in one notebook the longest with a reward is read. Traps:

- A loop that prints its rewards itself leaves them out of the table, which then shows a loss alone.

- The table rounds to six decimals, and its `No log` means that nothing was logged yet.
- Interrupted and repeated cells leave tables of their own.
- Outputs that were cleared leave nothing: then only the code is there, and the error says so.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stabilizer.formats import notebook
from stabilizer.formats.files import json_value
from stabilizer.formats.rows import number
from stabilizer.formats.shapes import SPOKEN
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reader import Rank, Reader
from stabilizer.trainers.trl import state

NAME = "notebook"
WHAT = "a Jupyter notebook with the output of a training"

_REWARD = "reward"
_PROGRESS = re.compile(r"\[\s*\d{1,15}/(\d{1,15})\s")


def reader(consoles: Sequence[Reader], loops: Reader) -> Reader:
    """The reader of notebooks; what cells printed is read by the first of `consoles` that knows it, else by `loops`."""

    def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
        return _read(path, mapping, config, consoles, loops)

    return Reader(name=NAME, what=WHAT, recognises=notebook.recognises, read=read, rank=Rank.NOTEBOOK)


def _read(
    path: Path, mapping: dict[str, str], config: Mapping[str, Any] | None, consoles: Sequence[Reader], loops: Reader
) -> LoadedRun:
    """The longest training whose output is in the notebook."""
    outputs = list(notebook.outputs(json_value(path)))
    runs: list[LoadedRun] = []
    errors: list[str] = []
    for records, planned in _tables(outputs):
        try:
            runs.append(
                state.run_of(records, path, format=NAME, mapping=mapping, config=config, planned=planned, notes=[])
            )
        except RunError as error:
            errors.append(str(error))
    cells: dict[int, str] = {}
    for output in outputs:
        if output.kind == "text":
            cells[output.cell] = f"{cells[output.cell]}\n{output.content}" if output.cell in cells else output.content
    try:
        if run := _printed("\n".join(cells.values()), path, mapping, config, consoles):
            runs.append(run)
        if not any(map(_rewarded, runs)):
            said = [text for text in cells.values() if _REWARD in text.lower()]
            own = [_printed(text, path, mapping, config, [loops]) for text in said]
            runs += [run for run in own if run and _rewarded(run)]
    except RunError as error:
        errors.append(str(error))
    if not runs:
        if errors:
            raise RunError(errors[0])
        what = "no output of a training in it" if outputs else "a notebook without outputs: they were cleared"
        raise RunError(f"{path}: {what}; save the notebook after training, or give the trainer's own log")
    best = max(runs, key=lambda run: (_rewarded(run), run.source.steps))
    return best.noted(
        [f"{len(runs) - 1} shorter outputs of training in the notebook not used"] if len(runs) > 1 else []
    )


def _rewarded(run: LoadedRun) -> bool:
    """Whether a log has a reward in it, under whatever name."""
    return any(_REWARD in name.lower() for name in run.history.names())


def _tables(outputs: list[notebook.Output]) -> Iterator[tuple[list[dict[str, Any]], int | None]]:
    """Each training's table as records in the trainer's own names, and the steps that were planned."""
    for kind, page, _ in outputs:
        if kind != "html" or "<table" not in page.lower():
            continue
        progress = _PROGRESS.search(notebook.plain(page[:5_000]))
        for rows in notebook.tables(page):
            if len(rows) < 2 or "Step" not in rows[0]:
                continue
            heads = ["step" if name == "Step" else SPOKEN.get(name, name.replace(" / ", "/")) for name in rows[0]]
            records = [dict(_numbers(heads, cells)) for cells in rows[1:]]
            yield [record for record in records if "step" in record], int(progress[1]) if progress else None


def _numbers(heads: list[str], cells: list[str]) -> Iterator[tuple[str, float]]:
    for name, cell in zip(heads, cells, strict=False):
        if (value := number(cell.replace(",", ""))) is not None:
            yield name, value


def _printed(
    text: str, path: Path, mapping: dict[str, str], config: Mapping[str, Any] | None, readers: Sequence[Reader]
) -> LoadedRun | None:
    """The run that cells printed, as the reader that knows it reads it."""
    with tempfile.TemporaryDirectory() as folder:
        console = Path(folder) / f"{path.stem}.log"
        console.write_text(text, encoding="utf-8", errors="replace")
        for reader in readers:
            if reader.recognises(console):
                try:
                    run = reader.read(console, mapping=mapping, config=config)
                except RunError as error:
                    raise RunError(str(error).replace(str(console), str(path))) from None
                run = run.read_from(str(path), leave_out=frozenset({"line"}))
                return replace(run, source=replace(run.source, format=NAME))
    return None
