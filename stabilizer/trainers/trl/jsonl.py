"""JSON lines of transformers' Trainer: ms-swift's `logging.jsonl`, LLaMA-Factory's `trainer_log.jsonl`, a callback's.

A record a line, with the names of TRL where the trainer is built on it (`trl_state`). Traps:

- ms-swift has no `step` but `"global_step/max_steps": "10/438"`, times as text, and ends with a summary that repeats
  everything in a `log_history`.
- LLaMA-Factory counts in `current_steps` of `total_steps` and calls the learning rate `lr`.
- Supervised and preference training write the same files; without rewards or completions it is no RL run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabilizer.formats.console import head
from stabilizer.formats.files import json_lines
from stabilizer.formats.rows import number, step_number
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.trl import state

NAME = "hf_jsonl"
WHAT = "JSON lines of transformers' Trainer: logging.jsonl of ms-swift, trainer_log.jsonl of LLaMA-Factory"

LLAMA_FACTORY_NAMES = {
    # LLaMA-Factory                    TRL
    "lr":                             "learning_rate",
    "current_steps":                  "step",
}  # fmt: skip

SWIFT, LLAMA_FACTORY, TRAINER = "ms-swift", "llama-factory", "trl"

_SWIFT = re.compile(rb'"global_step/max_steps"\s*:\s*"\d+/\d+"')
_LLAMA_FACTORY = re.compile(rb'\A\s*\{(?=[^\n]*"current_steps"\s*:\s*\d)[^\n]*"total_steps"\s*:\s*\d')
_TRAINER = re.compile(rb'\A\s*\{(?=[^\n]*"epoch"\s*:)(?=[^\n]*"(?:learning_rate|reward)"\s*:)[^\n]*"step"\s*:\s*\d+')
_NOT_METRICS = frozenset({
    "global_step/max_steps", "percentage", "elapsed_time", "remaining_time", "current_steps", "total_steps",
})  # fmt: skip


def recognises(path: Path) -> bool:
    """By the keys of the first records."""
    return _dialect(path) is not None


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in a file of JSON lines."""
    dialect = _dialect(path) or TRAINER
    records: list[Any] = []
    planned: int | None = None
    skipped = 0
    for record in json_lines(path):
        if not isinstance(record, dict):
            skipped += 1
            continue
        if "log_history" in record:
            continue
        step, total = _step(record)
        planned = total or planned
        kept = {LLAMA_FACTORY_NAMES.get(key, key): value for key, value in record.items() if key not in _NOT_METRICS}
        numbers = {key: value for key, value in kept.items() if value is None or number(value) is not None}
        records.append({**numbers, "step": step})
    notes = [f"{skipped} lines left out: not a JSON object, or cut off"] if skipped else []
    return state.run_of(
        records, path, format=NAME, mapping=mapping, config=config, planned=planned, skipped=skipped, notes=notes,
        trainer=dialect,
    )  # fmt: skip


def _dialect(path: Path) -> str | None:
    start = head(path)[:65_536]
    if not start.lstrip().startswith(b"{"):
        return None
    first = start.lstrip().split(b"\n", 1)[0]
    if _SWIFT.search(first):
        return SWIFT
    if _LLAMA_FACTORY.match(first):
        return LLAMA_FACTORY
    return TRAINER if _TRAINER.match(first) else None


def _step(record: dict[str, Any]) -> tuple[int | None, int | None]:
    """The step of a record and the number planned, however the trainer writes them."""
    text = record.get("global_step/max_steps")
    if isinstance(text, str) and len(text) < 64:
        done, _, planned = text.partition("/")
        return step_number(number(done)), step_number(number(planned))
    if "current_steps" in record:
        return step_number(record["current_steps"]), step_number(record.get("total_steps"))
    return step_number(record.get("step")), None
