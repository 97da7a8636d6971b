"""veRL and Search-R1: the console, one line a step: `step:12 - actor/pg_loss:-0.003 - critic/score/mean:0.43 - ...`.

Written by the trainer's driver process when `console` is among `trainer.logger`, usually kept with `tee`. Traps:

- Three styles of number: `0.431` with three decimals (up to 0.4.1, and Search-R1), which turns a learning rate of 1e-6
  into `0.000`; `0.4312` as Python prints it (0.5-0.8); `np.float64(0.4312)` (0.9, and 0.7 beside numpy 2).
- Ray's `(TaskRunner pid=12345) ` before it, colours around that, a progress bar on the same line.
- Lines that end too early, because the process was killed or they were cut. The number at the cut is dropped.
- The configuration is printed before the first step as a Python dictionary of some hundred lines.
- `step:0` holds only the validation before training. A restarted run that appends starts again at a lower step.
- Answers of the model are printed in between, and may say "step:1 - ..." too.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.core.records import Event
from stabilizer.core.settings import setting_at
from stabilizer.formats.console import ConsoleParser, Line, head
from stabilizer.formats.files import beside
from stabilizer.formats.rows import Row, step_number
from stabilizer.formats.tailing import gather
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.naming import named_run
from stabilizer.trainers.verl import names

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


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in a console log."""
    parser = gather(path, _Parser)
    printed, notes = parser.ended()
    rows, torn = parser.without_what_was_cut()
    if torn:
        notes.append(f"{torn} lines of metrics end too early; the number at the cut is left out")
    whole = iter(rows)
    entries = [entry if isinstance(entry, Event) else next(whole) for entry in printed]
    seen = {key for row in rows for key in row[1]}
    trainer = names.trainer_of(seen)
    if parser.rounded:
        notes.append(
            "numbers are printed with three decimals: a learning rate or KL of 0.000 is taken as not logged "
            "(TensorBoard or W&B have them in full)"
        )
    settings = parser.config() if config is None else dict(config)
    if settings and not config:
        notes.append("configuration taken from the log itself")
    settings = settings or beside(path, notes)
    settings = names.with_beta(settings)
    planned = setting_at(settings, "trainer.total_training_steps")
    return named_run(
        path.stem,
        names.naming(trainer, rows, settings, notes),
        entries,
        format=NAME,
        files=[path],
        mapping=mapping,
        config=settings,
        planned=step_number(planned) or None,
        skipped=torn,
        notes=notes,
    )


class _Parser(ConsoleParser):
    """Turns lines into rows; keeps what needs the whole log: which lines were cut, and the configuration."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Row] = []
        self.rounded = False
        self._last: list[str] = []
        self._config: list[str] | None = None
        self._text = ""

    def see(self, line: Line) -> None:
        match = _STEP.search(line.text) if "step:" in line.text else None
        if not match:
            self._gather(line.text)
        if not match or not self._metrics(int(match[1]), match[2], line.whole):
            self._other(line)

    def _metrics(self, step: int, text: str, whole: bool) -> bool:
        """Take a line of metrics; False when it is none."""
        parts = text.split(" - ")
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
            return False
        if three:
            self.rounded = True
            for key in names.ROUNDED_AWAY & values.keys():
                if values[key] == 0:
                    del values[key]
        if not last:
            self.torn += 1
        elif not whole:
            values.pop(last, None)
            self.torn += 1
            last = ""
        self._rows.append((step, values))
        self._last.append(last)
        self._row(step, values)
        return True

    def without_what_was_cut(self) -> tuple[list[Row], int]:
        """All rows, and how many of their lines were cut.

        A line that stops before the last key of all others was cut; its last number may have lost digits."""
        usual, count = (Counter(key for key in self._last if key).most_common(1) or [("", 0)])[0]
        rows, torn = list(self._rows), self.torn
        if 2 * count > len(rows):
            for place, ((step, values), last) in enumerate(zip(self._rows, self._last, strict=True)):
                if last and last != usual and usual not in values:
                    rows[place] = step, {key: value for key, value in values.items() if key != last}
                    torn += 1
        return rows, torn

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
