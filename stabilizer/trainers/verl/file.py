"""veRL: the `file` logger's JSON lines, `{"step": 12, "data": {"actor/pg_loss": -0.003, ...}}`.

Written when `trainer.logger` includes `file` (0.6 and later) to `<project_name>/<experiment_name>.jsonl` below
`$VERL_FILE_LOGGER_ROOT`, or to `$VERL_FILE_LOGGER_PATH`. Numbers are in full; NaN and Inf become `null`, and a `null`
is read as NaN. A resumed run truncates the file, so it holds the newest attempt alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.core.settings import setting_at
from stabilizer.formats.console import head
from stabilizer.formats.files import beside, json_lines
from stabilizer.formats.rows import Row, number, step_number
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.naming import named_run
from stabilizer.trainers.verl import names

NAME = "verl_file"
WHAT = 'the JSON lines of veRL\'s file logger, {"step": 12, "data": {...}}'

_SIGN = re.compile(rb'\A\s*\{\s*"step"\s*:\s*\d+\s*,\s*"data"\s*:\s*\{')


def recognises(path: Path) -> bool:
    """By the form of the first record."""
    return bool(_SIGN.match(head(path)[:4096]))


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in a file of JSON lines."""
    rows: list[Row] = []
    notes: list[str] = []
    skipped = 0
    for record in json_lines(path):
        step = step_number(record.get("step")) if isinstance(record, dict) else None
        if step is None or not isinstance(record["data"] if "data" in record else None, dict):
            skipped += 1
            continue
        found = ((key, np.nan if value is None else number(value)) for key, value in record["data"].items())
        rows.append((step, {key: value for key, value in found if value is not None}))
    seen = {key for _, values in rows for key in values}
    settings = names.with_beta(beside(path, notes) if config is None else dict(config))
    if skipped:
        notes.append(f"{skipped} lines left out: not a record of a step, or cut off")
    return named_run(
        path.stem,
        names.naming(names.trainer_of(seen), rows, settings, notes),
        rows,
        format=NAME,
        files=[path],
        mapping=mapping,
        config=settings,
        planned=step_number(setting_at(settings, "trainer.total_training_steps")) or None,
        skipped=skipped,
        notes=notes,
    )
