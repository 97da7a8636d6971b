"""veRL: the completions it dumps, a folder of `1.jsonl`, `2.jsonl`, ... with a line for each.

Written with `trainer.rollout_data_dir` (training) and `trainer.validation_data_dir` (held-out problems), since 0.3:
`{"input": ..., "output": ..., "score": ..., "step": 12}`, from 0.5 on with `gts`, the ground truth, and beside these
whatever the reward function returned (`acc`, `format_reward`, ...). It is the only source of group statistics in veRL.

- The batch was reordered to balance its lengths: a group is what has one input (and one ground truth), not neighbours.
- `score` is the sum of the reward function's token scores, before any KL penalty. Advantages are not in the dump.
- Texts are without special tokens and without counts of tokens, so neither lengths nor truncation are known.
- A validation dump has `reward` beside `score`, the same number; it is held out, not trained on.
- A resumed run overwrites the files of its steps. Files of steps that it has not reached again are older than those
  before them; they belong to an abandoned attempt and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.core import json_text
from stabilizer.core.records import Sample
from stabilizer.formats import samples as rollouts
from stabilizer.formats.rows import Row, number, step_number
from stabilizer.formats.samples import DIFFERS, Answer, is_binary, samples, statistics, without_abandoned
from stabilizer.runs.loaded import LoadedRun, Texts
from stabilizer.runs.reader import RunError
from stabilizer.trainers.naming import Naming, named_run
from stabilizer.trainers.verl import names

NAME = "verl_rollouts"
WHAT = "the folder of N.jsonl that veRL's trainer.rollout_data_dir or validation_data_dir names"
VALIDATION = "verl_validation"
"""The format said of a dump of held-out problems."""

STEP_FILE = re.compile(r"(\d{1,12})\.jsonl")

VALIDATION_NAMES = {
    # computed, of held-out problems   ours
    "val/solved/mean":                "accuracy/val",
    "val/solved/best":                "accuracy/val_passk",
}  # fmt: skip
"""Beside these `val/score/mean` and others keep their names: a score need not be an accuracy."""

_HELD_OUT = "held-out problems of the dump"
VALIDATION_DIFFERS = {
    "val/solved/mean": {"estimator": f"{_HELD_OUT}, mean of the sampled answers called right"},
    "val/solved/best": {"estimator": f"{_HELD_OUT} of which at least one of the sampled answers is right"},
}

_OWN = frozenset({"input", "output", "gts", "score", "step", "reward", "request_id", "uid"})
_PAID = re.compile(r"(?:^|_)(?:reward|score|format|penalty|bonus)(?:_|$)")
"""Words in the name of something the reward is made of; other numbers the reward function returned stay veRL's."""
MAX_EXTRAS = 100
MAX_EXPECTED = 4000
"""Characters of a right answer that are kept."""
MAX_LINE = 64 * 2**20
MAX_FILE = 512 * 2**20
"""Of one step, whose completions are in memory together."""


def recognises(path: Path) -> bool:
    """By the form of the first record; of a folder, in the file of the earliest step."""
    try:
        if path.is_dir():
            files = _files(path)
            return bool(files) and _is_dump(files[0])
        return path.is_file() and _is_dump(path)
    except OSError:
        return False


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in a folder of dumps, or the step in one of them."""
    notes: list[str] = []
    files = without_abandoned(_files(path), notes) if path.is_dir() else [path]
    if not files:
        raise RunError(f"{path}: no N.jsonl of veRL in it; give the folder that trainer.rollout_data_dir names")
    rows: dict[int, dict[str, float]] = {}
    where: dict[int, Path] = {}
    skipped, held_out, binary = 0, True, True
    for file in files:
        if file.stat().st_size > MAX_FILE:
            notes.append(f"skipped: {file.name} is larger than the {MAX_FILE >> 20} MiB this reader takes of a step")
            continue
        records, bad = _records(file)
        skipped += bad
        for step, members in records.items():
            held_out = held_out and all(_same(record.get("reward"), record["score"]) for record in members)
            binary = binary and is_binary(record["score"] for record in members)
            rows[step] = {**_extras(members), **statistics([_answer(record, True) for record in members])}
            where[step] = file
    if not rows:
        raise RunError(f"{path}: no completions in it; lines of {{'input', 'output', 'score', 'step'}} were expected")
    judged = binary or all("acc/mean" in values for values in rows.values())
    if skipped:
        notes.append(f"{skipped} lines left out: not a completion with its score and step, or cut off")
    if not judged:
        notes.append("rewards other than 0 and 1 and no `acc`: which answers are right is not known")

    def texts(step: int) -> list[Sample]:
        members = _records(where[step])[0].get(step, []) if step in where else []
        return samples(step, [_answer(record, binary) for record in members])

    return _named(path, files, sorted(rows.items()), held_out, judged, Texts(tuple(sorted(where)), texts),
                  mapping, config, skipped, notes)  # fmt: skip


def _named(
    path: Path, files: list[Path], rows: list[Row], held_out: bool, judged: bool, texts: Texts,
    mapping: dict[str, str], config: Mapping[str, Any] | None, skipped: int, notes: list[str],
) -> LoadedRun:  # fmt: skip
    if not judged:
        unknown = ("solved/mean", "reward/all_fail_frac", "reward/all_pass_frac")
        rows = [(step, {key: value for key, value in values.items() if key not in unknown}) for step, values in rows]
    if held_out:
        notes.append("a dump of validation (its `reward` is the score): nothing in it was trained on")
        rows = [(step, _held_out(values)) for step, values in rows]
    settings = names.with_beta(config or {})
    naming = Naming(
        trainer="verl", prefix="verl", names=VALIDATION_NAMES if held_out else rollouts.NAMES,
        differs=VALIDATION_DIFFERS if held_out else DIFFERS, family=_component,
    )  # fmt: skip
    run = named_run(
        path.resolve().name if path.is_dir() else path.stem, naming, rows,
        format=VALIDATION if held_out else NAME, files=[path] if path.is_dir() else files,
        mapping=mapping, config=settings, skipped=skipped, notes=notes,
    )  # fmt: skip
    run.texts = texts
    return run


def _held_out(values: dict[str, float]) -> dict[str, float]:
    """A step's numbers under names of held-out data. With several answers a problem, the best one counts as well."""
    found = {f"val/{key}": value for key, value in values.items()}
    if "reward/all_fail_frac" in values:
        found["val/solved/best"] = 1 - values["reward/all_fail_frac"]
    return found


def _component(key: str) -> str | None:
    name, _, statistic = key.rpartition("/")
    return f"reward/{name}/mean" if statistic == "mean" and "/" not in name and _PAID.search(name) else None


# --- files and their lines -----------------------------------------------------------------------------------------


def _files(folder: Path) -> list[Path]:
    """The step files of a folder, by step."""
    found = [(int(match[1]), file) for file in folder.iterdir() if (match := STEP_FILE.fullmatch(file.name))]
    return [file for _, file in sorted(found) if file.is_file()]


def _is_dump(file: Path) -> bool:
    with file.open("rb") as opened:
        line = opened.readline(MAX_LINE)
    return line.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and _record(line) is not None


def _records(file: Path) -> tuple[dict[int, list[dict[str, Any]]], int]:
    """A file's completions by step, and the number of other lines."""
    found: dict[int, list[dict[str, Any]]] = {}
    skipped = 0
    for line in _lines(file):
        record = _record(line)
        if record is None:
            skipped += bool(line.strip())
        else:
            found.setdefault(record["step"], []).append(record)
    return found, skipped


def _lines(file: Path) -> Iterator[bytes]:
    """Lines up to a length; of a longer one every part is a line that is no record."""
    with file.open("rb") as opened:
        while line := opened.readline(MAX_LINE):
            yield line


def _record(line: bytes) -> dict[str, Any] | None:
    """A completion, with its score as float and its step as int; None for anything else. NaN is allowed."""
    try:
        record = json_text.loads_python(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not (isinstance(record.get("input"), str) and "output" in record):
        return None
    step, score = step_number(record.get("step")), record.get("score")
    score = number(score) if isinstance(score, (int, float)) else None
    if step is None or score is None or not isinstance(record["output"], str):
        return None
    return {**record, "step": step, "score": score}


# --- what is in a record -------------------------------------------------------------------------------------------


def _answer(record: dict[str, Any], binary: bool) -> Answer:
    acc = record.get("acc")
    solved = bool(acc) if acc in (0, 1) else None
    if solved is None and acc is None and binary and record["score"] in (0.0, 1.0):
        solved = record["score"] == 1.0
    return Answer(
        prompt=record["input"],
        completion=record["output"],
        reward=record["score"],
        group=(record["input"], str(record.get("gts"))),
        solved=solved,
        rewards={key: value for key, value in _numbers(record)},
        expected="" if record.get("gts") is None else str(record["gts"])[:MAX_EXPECTED],
    )


def _extras(members: list[dict[str, Any]]) -> dict[str, float]:
    """Means of the numbers that the reward function returned for every completion of a step."""
    sums: dict[str, list[float]] = {}
    for record in members:
        for key, value in islice(_numbers(record), MAX_EXTRAS):
            sums.setdefault(key, []).append(value)
    with np.errstate(all="ignore"):
        return {f"{key}/mean": float(np.mean(all_)) for key, all_ in sums.items() if len(all_) == len(members)}


def _numbers(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in record.items():
        if key not in _OWN and isinstance(value, (bool, int, float)) and (found := number(value)) is not None:
            yield key, found


def _same(reward: Any, score: float) -> bool:
    return isinstance(reward, (int, float)) and (reward == score or (reward != reward and score != score))
