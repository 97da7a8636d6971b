"""veRL and Search-R1: the console, one line a step: `step:12 - actor/pg_loss:-0.003 - critic/score/mean:0.43 - ...`.

Written by the trainer's driver process when `console` is among `trainer.logger`, usually kept with `tee`. Traps:

- Three styles of number: `0.431` with three decimals (up to 0.4.1, and Search-R1), which turns a learning rate of 1e-6
  into `0.000`; `0.4312` as Python prints it (0.5-0.8); `np.float64(0.4312)` (0.9, and 0.7 beside numpy 2).
- Ray's `(TaskRunner pid=12345) ` before it, colours around that, a progress bar on the same line.
- Lines that end too early, because the process was killed or something cut them. The number at the cut is no number.
- The configuration stands before the first step, as Python prints a dictionary, over some hundred lines.
- `step:0` holds the validation before training, alone. A restarted run that appends begins anew at a lower step.
- Answers of the model are printed in between, and may say "step:1 - ..." too.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.readers import verl_names
from stabilizer.readers.console import Failures, Line, head, lines
from stabilizer.readers.files import config_file
from stabilizer.readers.naming import Row, named_run
from stabilizer.readers.rows import step_number
from stabilizer.records import Event
from stabilizer.runs.loaded import LoadedRun

NAME = "verl_console"
WHAT = "the console output of veRL or Search-R1, with lines like 'step:12 - actor/pg_loss:0.1 - ...'"

_SIGN = re.compile(rb"step:\d+ - [\w@.-]+/[^\s:]*:(?:np\.\w+\()?[-+\dni]")
_STEP = re.compile(r"(?:^|\s)step:(\d{1,15}) - (.+)$")
_PAIR = re.compile(
    r"^([^\s:][^:]*):(?:\w+(?:\.\w+)*\()?([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf))(?:, dtype=[\w.]+)?\)?$"
)
_THREE = re.compile(r"^[-+]?\d+\.\d{3}$")
_CONFIG_START = re.compile(r"^\s*\{'(?:actor_rollout_ref|algorithm|critic|data)': \{")
_CONFIG_LINES = 2_000


def recognises(path: Path) -> bool:
    """By a line of metrics near its start."""
    return bool(_SIGN.search(head(path)))


def read(path: Path, *, mapping: dict[str, str], config: Path | None) -> LoadedRun:
    """The run in a console log."""
    parser = _Parser()
    entries: list[Row | Event] = []
    failures = Failures()
    for line in lines(path):
        row = parser.row(line)
        if row:
            entries += [*failures.pending(), row]
        elif event := failures.see(line):
            entries.append(event)
    entries += failures.pending()
    notes = failures.notes()
    parser.drop_what_was_cut(notes)
    seen = {key for row in parser.rows for key in row[1]}
    trainer = verl_names.trainer_of(seen)
    if parser.rounded:
        notes.append(
            "numbers are printed with three decimals: a learning rate or KL of 0.000 is taken as not logged "
            "(TensorBoard or W&B have them in full)"
        )
    settings = config_file(config) if config else parser.config()
    if settings and not config:
        notes.append("configuration taken from the log itself")
    settings = verl_names.with_beta(settings)
    planned = verl_names.at(settings, "trainer.total_training_steps")
    return named_run(
        path.stem,
        verl_names.naming(trainer, parser.rows, settings, notes),
        entries,
        format=NAME,
        files=[path],
        mapping=mapping,
        config=settings,
        planned=step_number(planned) or None,
        skipped=parser.torn,
        notes=notes,
    )


class _Parser:
    """Line by line to rows; keeps what only the whole log can tell: which lines were cut, and the configuration."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.torn = 0
        self.rounded = False
        self._last: list[str] = []
        self._config: list[str] | None = None
        self._text = ""

    def row(self, line: Line) -> Row | None:
        match = _STEP.search(line.text) if "step:" in line.text else None
        if not match:
            self._gather(line.text)
            return None
        parts = match[2].split(" - ")
        values: dict[str, float] = {}
        last = ""
        three = True
        for part in parts:
            pair = _PAIR.match(part.strip())
            if not pair:
                last = ""
                continue
            last = pair[1]
            values[last] = float(pair[2])
            three = three and bool(_THREE.match(pair[2]) or pair[2].lstrip("+-") in ("nan", "inf"))
        if not any("/" in key for key in values):
            return None
        if three:
            self.rounded = True
            for key in verl_names.ROUNDED_AWAY & values.keys():
                if values[key] == 0:
                    del values[key]
        if not last:
            self.torn += 1
        elif not line.whole:
            values.pop(last, None)
            self.torn += 1
            last = ""
        row = int(match[1]), values
        self.rows.append(row)
        self._last.append(last)
        return row

    def drop_what_was_cut(self, notes: list[str]) -> None:
        """A line that stops before the key all others end with was cut: its last number may have lost digits."""
        ends = Counter(key for key in self._last if key)
        if ends:
            usual, count = ends.most_common(1)[0]
            for (_, values), last in zip(self.rows, self._last, strict=True):
                if last and last != usual and usual not in values and 2 * count > len(self.rows):
                    values.pop(last, None)
                    self.torn += 1
        if self.torn:
            notes.append(f"{self.torn} lines of metrics end too early; the number at the cut is left out")

    def config(self) -> dict[str, Any]:
        """The configuration printed at the start, {} when there is none or it is damaged."""
        try:
            value = ast.literal_eval(self._text.strip()) if self._text else {}
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return {}
        return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}

    def _gather(self, text: str) -> None:
        if self._config is None:
            if self._text or not _CONFIG_START.match(text):
                return
            self._config = []
        self._config.append(text)
        if text.endswith("}") and _closed(self._config):
            self._text, self._config = "\n".join(self._config), None
        elif len(self._config) > _CONFIG_LINES:
            self._config = None


def _closed(texts: list[str]) -> bool:
    return sum(text.count("{") - text.count("}") for text in texts) <= 0
