"""EasyR1: `experiment_log.jsonl`, or the console in which every step is a `Step 12` and a YAML tree.

The file is written when `trainer.logger` includes `file`, into `trainer.save_checkpoint_path`, beside
`experiment_config.json` (the whole configuration, which is read) and `checkpoint_tracker.json`. Traps:

- Records are nested, `{"step": 12, "critic": {"score": {"mean": 0.4}}}`; everywhere else the same numbers are flat.
- A resumed run truncates the file; the tracker then holds steps and a best score that the file no longer has.
- `kl_loss` is the last micro-batch's alone; `entropy_loss` is the mean of -log p, not the entropy.
- The console writes NaN as `!!float 'nan'`, and `.nan` where other versions of YAML do.
- The console rounds to three decimals but what Python writes like 1e-06: a KL of 0.0004 is `0.0` there. The whole
  configuration is printed before the first step, as YAML.
- Validation of `val_before_train` is at step 0, alone. Versions before the summer of 2025 write no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from stabilizer.core.records import Event
from stabilizer.core.settings import setting_at
from stabilizer.formats.console import ConsoleParser, Line, head
from stabilizer.formats.files import DAMAGED, config_file, json_lines, json_value
from stabilizer.formats.rows import Row, number, step_number
from stabilizer.formats.tailing import gather
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.naming import named_run
from stabilizer.trainers.verl import names

NAME = "easyr1"
WHAT = "experiment_log.jsonl of EasyR1 or the folder that holds it, or its console with 'Step 12' and a YAML tree"

LOG, TRACKER = "experiment_log.jsonl", "checkpoint_tracker.json"

_JSON = re.compile(
    rb'\A\s*\{\s*"step"\s*:\s*\d+\s*,\s*"(?:actor|critic|reward|val|global_seqlen|perf|timing_s|response_length)"\s*:\s*\{'
)
_CONSOLE = re.compile(
    rb"Step \d+[ \t\r]*$(?:[^\n]*\n){0,40}?[^\n]*\b(?:pg_clipfrac_higher|reward_score|overall):",
    re.MULTILINE,
)
_STEP = re.compile(r"^Step (\d{1,15})$")
_ENTRY = re.compile(r"^( *)([^\s:#][^:]*):(?: (.*))?$")
_YAML = re.compile(r"(?: *- |-$| *[^\s:#'\"][^:]*:(?: |$))")
_CONFIG_LINES = 2_000
_FLOAT = re.compile(r"!!float '([^']*)'\Z")
_DEPTH = 8

ROUNDED_AWAY = names.ROUNDED_AWAY | {"actor/kl_penalty"}
"""Numbers that are small by nature: the console rounds them to three decimals, but for those like 1e-06."""

YAML_NUMBERS = {".nan": "nan", ".inf": "inf", "-.inf": "-inf"}


def recognises(path: Path) -> bool:
    """By the file's exact name, the form of its first record, or a step of the console."""
    if path.is_dir():
        return (path / LOG).is_file()
    start = head(path)
    return path.name in (LOG, TRACKER) or bool(_JSON.match(start[:4096]) or _CONSOLE.search(start))


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in the file, or in a console."""
    file = path / LOG if path.is_dir() else path.with_name(LOG) if path.name == TRACKER else path
    if not file.is_file():
        raise only_tracked(path) or RunError(
            f"{path}: no {LOG} in it; give EasyR1's save_checkpoint_path, or its console log"
        )
    notes: list[str] = [f"the tracker holds no steps: read from {LOG} beside it"] if path.name == TRACKER else []
    printed: dict[str, Any] = {}
    if file.name == LOG or _JSON.match(head(file)[:4096]):
        entries, skipped = _records(file, notes)
    else:
        parser = gather(file, _Parser)
        entries, said = parser.ended()
        skipped = parser.torn
        notes += said + (["the last line is cut off; its number is left out"] if skipped else [])
        if parser.rounded:
            notes.append("numbers are printed with three decimals: a KL of 0.0 is taken as not logged")
        printed = parser.config()
    rows = [entry for entry in entries if not isinstance(entry, Event)]
    settings = _config(file, config, notes)
    if printed and not settings:
        settings = printed
        notes.append("configuration taken from the log itself")
    settings = names.with_beta(settings)
    _tracker(file, rows, notes)
    planned = setting_at(settings, "trainer.max_steps") or setting_at(settings, "trainer.training_steps")
    return named_run(
        file.resolve().parent.name if file.name == LOG else file.stem,
        names.naming("easyr1", rows, settings, notes),
        entries,
        format=NAME,
        files=[file],
        mapping=mapping,
        config=settings,
        planned=step_number(planned) or None,
        skipped=skipped,
        notes=notes,
    )


def _records(file: Path, notes: list[str]) -> tuple[list[Row | Event], int]:
    rows: list[Row | Event] = []
    skipped = 0
    for record in json_lines(file):
        step = step_number(record.get("step")) if isinstance(record, dict) else None
        if step is None:
            skipped += 1
            continue
        rows.append((step, dict(_flat(record, "", 0))))
    if skipped:
        notes.append(f"{skipped} lines left out: not a record of a step, or cut off")
    return rows, skipped


def _flat(node: dict[str, Any], above: str, depth: int) -> Iterator[tuple[str, float]]:
    for key, value in node.items():
        if isinstance(value, dict) and depth < _DEPTH:
            yield from _flat(value, f"{above}{key}/", depth + 1)
        elif above or key != "step":
            found = np.nan if value is None else number(value)
            if found is not None:
                yield f"{above}{key}", found


class _Parser(ConsoleParser):
    """The steps of a console: a tree's keys are joined by slashes, its depth is the indentation."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded = False
        self._config: list[str] | None = None
        self._text = ""
        self._values: dict[str, float] | None = None
        self._path: list[tuple[int, str]] = []

    def see(self, line: Line) -> None:
        match = _STEP.match(line.text.strip())
        self._gather(line.text, over=match is not None)
        if match:
            self._values, self._path = {}, []
            self._row(int(match[1]), self._values)
            return
        entry = _ENTRY.match(line.text) if self._values is not None else None
        text = _FLOAT.sub(r"\1", entry[3].strip()) if entry and entry[3] else ""
        value = number(YAML_NUMBERS.get(text, text)) if text else None
        if entry is None or (text and value is None):
            self._values = None
            self._other(line)
            return
        depth = len(entry[1])
        self._path = [(indent, key) for indent, key in self._path if indent < depth]
        if value is None:
            self._path.append((depth, entry[2]))
        elif not line.whole:
            self.torn += 1
        elif self._path and self._values is not None:
            name = "/".join([*(key for _, key in self._path), entry[2]])
            if value == 0 and name in ROUNDED_AWAY:
                self.rounded = True
            else:
                self._values[name] = value

    def config(self) -> dict[str, Any]:
        """The configuration printed at the start, {} when there is none, it is damaged, or PyYAML is not there."""
        try:
            import yaml

            from stabilizer.configs import yaml_keys
        except ImportError:
            return {}
        try:
            value = yaml_keys.load(self._text, unique=False)
        except (yaml.YAMLError, *DAMAGED):
            return {}
        return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}

    def _gather(self, text: str, over: bool) -> None:
        if self._config is None:
            self._config = [] if text == "Config" and not self._text else None
        elif not over and _YAML.match(text) and len(self._config) < _CONFIG_LINES:
            self._config.append(text)
        else:
            self._text, self._config = "\n".join(self._config), None

    def fork(self) -> Self:
        other = super().fork()
        for place, entry in enumerate(self._entries):
            if not isinstance(entry, Event) and entry[1] is self._values:
                other._entries[place] = entry[0], other._values
        return other


def _config(file: Path, given: Mapping[str, Any] | None, notes: list[str]) -> dict[str, Any]:
    if given is not None:
        return dict(given)
    beside = file.parent / "experiment_config.json"
    if not beside.is_file():
        return {}
    try:
        settings = config_file(beside)
    except RunError as error:
        notes.append(f"configuration not read: {error}")
        return {}
    notes.append(f"configuration taken from {beside.name} beside the log")
    return settings


def only_tracked(place: Path) -> RunError | None:
    """The error for a folder that holds only the checkpoint tracker."""
    file = place / TRACKER if place.is_dir() else place
    if file.name != TRACKER or not file.is_file():
        return None
    try:
        said = "; ".join(words for _, words in _tracked(file).values())
    except RunError as error:
        return error
    return RunError(
        f"{file}: EasyR1's list of checkpoints and no log{f' ({said})' if said else ''}; give {LOG} of the same folder"
        " (trainer.logger must have `file` in it) or the console log: the tracker is read along when it lies beside it"
    )


def _tracked(file: Path) -> dict[str, tuple[int, str]]:
    """The steps of the best and of the newest checkpoint, with the words for them."""
    tracker = json_value(file)
    tracker = tracker if isinstance(tracker, dict) else {}
    found: dict[str, tuple[int, str]] = {}
    best, score = step_number(tracker.get("best_global_step")), number(tracker.get("best_val_reward_score"))
    if best is not None and score is not None:
        found["best"] = best, f"best checkpoint by its tracker: step {best}, validation score {score:.4g}"
    if (newest := step_number(tracker.get("last_global_step"))) is not None:
        found["newest"] = newest, f"newest checkpoint by its tracker: step {newest}"
    return found


def _tracker(file: Path, rows: list[Row], notes: list[str]) -> None:
    """What the checkpoint tracker knows beyond the log."""
    beside = file.with_name(TRACKER)
    if not beside.is_file():
        return
    try:
        found = _tracked(beside)
    except RunError as error:
        notes.append(f"checkpoint tracker not read: {error}")
        return
    notes += [words for _, words in found.values()]
    trained = [step for step, values in rows if "actor/grad_norm" in values]
    if trained and "best" in found and 1 < min(trained) > found["best"][0]:
        notes.append(f"the log begins at step {min(trained)}: a resumed run truncates it, earlier steps are gone")
    if trained and "newest" in found and max(trained) < found["newest"][0]:
        notes.append(f"the log ends at step {max(trained)}, before the newest checkpoint: it is not the whole run")
