"""prime-rl: the lines its trainer and its orchestrator print at each step, each to a log of its own.

    Step 12 | 12.3s | Loss 0.0012 | Entropy 0.3100 | Mismatch KL 0.0003 | Grad. Norm 0.1200 | LR 1.00e-06 | ...
    Step 12 | 12.3s | Reward 0.4312 | Trainable 96/128 (75.0%) | Turns 1.0 | ... | Truncation 6.2%

Until spring 2026 with colons, `Step 12 | Time: 12.30s | Loss: 0.0012 | ...`. A `metrics.jsonl` has more numbers
(`prime_rl`). A folder with both logs is read as one run. Traps:

- Numbers have four decimals: a loss or a KL of 0.0000 is too small to be printed and counts as not logged; a KL of
  exactly 0 can't be told from it. The learning rate has three digits.
- `Evaluated NAME (Step 12)` is held-out; of several environments none is the accuracy. `Micro Step` lines are parts.
- Lines of single environments (`╰─ NAME | ...`) repeat parts of the line above.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.core.records import Event
from stabilizer.formats.console import ConsoleParser, Line, head
from stabilizer.formats.rows import Row, number
from stabilizer.formats.tailing import gather
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.naming import Naming, held_out, named_run

NAME = "prime_rl_console"
WHAT = (
    "trainer.log or orchestrator.log of prime-rl, with lines like Step 12 | 12.3s | Loss 0.0012 | ..., or their folder"
)

NAMES = {
    # prime-rl's trainer               ours
    "Loss":                           "policy/loss",
    "Entropy":                        "policy/entropy",
    "Mismatch KL":                    "policy/mismatch_kl",
    "Grad. Norm":                     "optim/grad_norm",
    "LR":                             "optim/lr",
    # prime-rl's orchestrator
    "Reward":                         "reward/mean",
    "Truncation":                     "rollout/truncated_frac",
    "Turns":                          "rollout/turns_mean",
    # both
    "Time":                           "time/step_s",
}  # fmt: skip

_BATCH = {"aggregation": "one value a step"}
DIFFERS: dict[str, dict[str, str]] = {
    "Loss": {"estimator": "masked policy loss + kl_tau x squared log-ratio trainer/engine, mean over tokens"},
    "Mismatch KL": {"estimator": "k3 estimate of KL(engine, trainer), mean over tokens", **_BATCH},
    "Reward": {"estimator": "mean over the rollouts handed to the trainer", **_BATCH},
    "Truncation": {"estimator": "rollouts handed to the trainer that were cut by a limit", **_BATCH},
    "Turns": {"estimator": "mean turns of the rollouts handed to the trainer", **_BATCH},
    "Time": {"estimator": "wall time of the process's step: the trainer's where both logs are read", **_BATCH},
}  # fmt: skip

ROUNDED_AWAY = frozenset({"Loss", "Mismatch KL"})
"""Small numbers whose 0.0000 is only rounding."""

_LOGS = ("orchestrator.log", "trainer.log")
"""In the order they are read: what both print is the trainer's."""
_SIGN = re.compile(
    rb"(?:^|\s|\x1b\[[\d;]{0,9}m)(?<!Micro )Step \d{1,15} \| {1,8}(?:Time: )?[\d.]{1,12}(?:ms|s|[mhd] \d)[^\n|]{0,12}"
    rb"\| (?:Loss|Reward):? ",
    re.M,
)
_OF_RL = re.compile(rb"\| (?:Entropy|Reward)(?::? )")  # its supervised trainer prints Loss and Grad. Norm alone
_STEP = re.compile(r"(?:^|\s)Step (\d{1,15}) \| (.*)$")
_EVAL = re.compile(r"(?:^|\s)Evaluated (\S.{0,200}?) \(Step (\d{1,15})\) \| (.*)$")
_FIELD = re.compile(r"([A-Z][A-Za-z.\- ]{1,30}?):? (-?[\d.]+(?:e[-+]?\d+)?|nan|-?inf)(%?)(?= |/|$)")
_COUNTS = re.compile(r"Trainable (\d{1,9})/(\d{1,9})\b")
_DURATION = re.compile(r"(?:Time: )?\s*(?:([\d.]+)d)?\s*(?:([\d.]+)h)?\s*(?:([\d.]+)m(?!s))?\s*(?:([\d.]+)(ms|s))?\Z")


def recognises(path: Path) -> bool:
    """By a step's line near its start; of a folder, in either of the two logs."""
    try:
        if path.is_dir():
            return any(recognises(file) for file in _files(path))
    except OSError:
        return False
    start = head(path)
    return bool(_SIGN.search(start)) and bool(_OF_RL.search(start))


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in one log, or in those of both processes."""
    files = [file for file in _files(path) if recognises(file)] if path.is_dir() else [path]
    if not files:
        raise RunError(f"{path}: no trainer.log or orchestrator.log of prime-rl in it; give the run's folder of logs")
    notes: list[str] = []
    parts: list[list[Row | Event]] = []
    torn = 0
    for file in files:
        parser = gather(file, _Parser)
        entries, said = parser.ended()
        parts.append(entries)
        torn += parser.torn
        notes += said
    if torn:
        notes.append(f"{torn} lines of metrics end too early; their last number is left out")
    entries = parts[0] if len(parts) == 1 else _merged(parts)
    if len(parts) > 1:
        notes.append("two logs of one training read together: " + ", ".join(file.name for file in files))
    return named_run(
        (path.resolve().name or "run") if path.is_dir() else path.stem, _naming(entries), entries, format=NAME,
        files=files, mapping=mapping, config=config, skipped=torn, notes=notes,
    )  # fmt: skip


def _naming(entries: list[Row | Event]) -> Naming:
    """The names of one log: of several environments none is the accuracy until a mapping says which."""
    seen = {key for entry in entries if not isinstance(entry, Event) for key in entry[1]}
    rewards = sorted(key for key in seen if "eval/" in key and key.endswith("/Reward"))
    one, asks = held_out("prime_rl", rewards, "environments")
    differs = dict.fromkeys(one, {"estimator": "held-out problems, mean reward of sampled answers", **_BATCH})
    return Naming(
        trainer="prime_rl", prefix="prime_rl", names={**NAMES, **one}, differs={**DIFFERS, **differs}, asks=asks,
        clock="optimizer_step", aggregation="over the step's tokens",
    )  # fmt: skip


def _files(folder: Path) -> list[Path]:
    """The two logs, in the folder or in `logs` below it."""
    for beside in (folder, folder / "logs", folder / "logs" / "latest"):
        if found := [beside / name for name in _LOGS if (beside / name).is_file()]:
            return found
    return []


class _Parser(ConsoleParser):
    def see(self, line: Line) -> None:
        test = _EVAL.search(line.text) if "Evaluated " in line.text else None
        match = test or (_STEP.search(line.text) if "Step " in line.text else None)
        if match is None or (test is None and "Micro Step " in line.text):
            self._other(line)
            return
        values = _values(match[3] if test else match[2], line.whole)
        self.torn += not line.whole
        if test:
            values = {f"eval/{test[1]}/{key}": value for key, value in values.items() if key != "Time"}
        if values:
            self._row(int(test[2] if test else match[1]), values)


def _values(text: str, whole: bool) -> dict[str, float]:
    """The numbers of a line; shares as shares. The last one of a line that was cut off may lack digits."""
    cells = [cell.strip() for cell in text.split(" | ")]
    values: dict[str, float] = {}
    for place, cell in enumerate(cells if whole else cells[:-1]):
        if place == 0 and (seconds := _seconds(cell)) is not None:
            values["Time"] = seconds
        elif match := _COUNTS.match(cell):
            values |= {"Trainable": int(match[1]) / int(match[2])} if int(match[2]) else {}
        elif (match := _FIELD.match(cell)) and (found := number(match[2])) is not None:
            if found != 0 or match[1] not in ROUNDED_AWAY:
                values[match[1]] = found / 100 if match[3] else found
    return values


def _seconds(text: str) -> float | None:
    """A duration as it is printed: `85ms`, `12.3s`, `2m 5s`, `1h 3m`, `Time: 12.30s`."""
    match = _DURATION.match(text)
    if not match or not any(match.groups()):
        return None
    parts = [number(part) if part else 0.0 for part in match.groups()[:4]]
    if any(part is None for part in parts):
        return None
    days, hours, minutes, rest = (part or 0.0 for part in parts)
    return days * 86400 + hours * 3600 + minutes * 60 + (rest / 1000 if match[5] == "ms" else rest)


def _merged(parts: list[list[Row | Event]]) -> list[Row | Event]:
    """Rows of both processes by step, where the later file wins; failures keep their place."""
    rows: dict[int, dict[str, float]] = {}
    events: list[tuple[int, Event]] = []
    for part in parts:
        step = 0
        for entry in part:
            if isinstance(entry, Event):
                events.append((step, entry))
            else:
                step = entry[0]
                rows.setdefault(step, {}).update(entry[1])
    merged: list[tuple[int, int, Row | Event]] = [(step, 0, (step, values)) for step, values in rows.items()]
    merged += [(step, 1, event) for step, event in events]
    return [entry for *_, entry in sorted(merged, key=lambda item: item[:2])]
