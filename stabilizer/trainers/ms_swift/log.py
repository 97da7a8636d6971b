"""ms-swift: the dictionaries that it prints, `{'loss': 0.01, ..., 'global_step/max_steps': '10/438', ...}`.

The names are TRL's (`trl.state`), with the step as text, times as text, `memory(GiB)` and `train_speed(iter/s)`. Its
`logging.jsonl` holds the same records. Traps:

- The last record is a summary, whose `train_loss` is the mean of the run.
- `entropy/mean` exists with `--log_entropy true` only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.core.records import Event
from stabilizer.formats.console import ConsoleParser, Line, head, python_dict
from stabilizer.formats.rows import number, step_number
from stabilizer.formats.tailing import gather
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.trl import state

NAME = "ms_swift_console"
WHAT = "the console output of ms-swift, with lines like {'loss': 0.01, ..., 'global_step/max_steps': '10/438', ...}"

_STEP = "global_step/max_steps"
_SIGN = re.compile(rb"\{'[^{}\n]{0,20000}'global_step/max_steps': '\d{1,12}/\d{1,12}'")
_DICT = re.compile(r"\{'[^{}]*'global_step/max_steps': '(\d{1,12})/(\d{1,12})'[^{}]*\}")


def recognises(path: Path) -> bool:
    """By a printed dictionary with ms-swift's step near its start."""
    return bool(_SIGN.search(head(path)))


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in a console log."""
    parser = gather(path, _Parser)
    entries, notes = parser.ended()
    if parser.torn:
        notes.append(f"{parser.torn} printed dictionaries end too early and are left out")
    records = [entry if isinstance(entry, Event) else {**entry[1], "step": entry[0]} for entry in entries]
    return state.run_of(
        records, path, format=NAME, mapping=mapping, config=config, planned=parser.planned, skipped=parser.torn,
        notes=notes, trainer="ms-swift",
    )  # fmt: skip


class _Parser(ConsoleParser):
    def see(self, line: Line) -> None:
        if _STEP not in line.text:
            self._other(line)
            return
        match = _DICT.search(line.text)
        if not match:
            self.torn += 1
            return
        self.planned = step_number(float(match[2])) or self.planned
        values = {key: found for key, value in python_dict(match[0]).items() if (found := number(value)) is not None}
        self._row(int(match[1]), values)
