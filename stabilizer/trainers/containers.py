"""Containers that any trainer may write to: TensorBoard, W&B, MLflow, trackio, tables, JSON lines.

They hold numbers under names. Each trainer's folder is asked whether it knows the names; if none does, names are
guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from stabilizer.formats.files import beside
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import check_mapping
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.all import FAMILIES
from stabilizer.trainers.other import guesses
from stabilizer.trainers.reader import Rank, Reader


class Module(Protocol):
    """A module that reads one container."""

    NAME: str
    WHAT: str

    def recognises(self, path: Path, /) -> bool:
        """See `reader.Recognises`."""

    def read(self, path: Path, /) -> NumberLog:
        """The numbers in a container."""


def reader(module: Module, rank: Rank) -> Reader:
    """The reader of runs in one kind of container."""

    def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
        return run_of(module.read(path), mapping, config)

    return Reader(name=module.NAME, what=module.WHAT, recognises=module.recognises, read=read, rank=rank)


def run_of(log: NumberLog, mapping: Mapping[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in rows under a trainer's names, or under names that nobody knows."""
    if config is None and not log.settings:
        notes = list(log.notes)
        log = replace(log, settings=beside(log.files[0], notes), notes=notes)
    check_mapping(mapping, log.names(), log.files[0])
    for family in FAMILIES:
        if family.named and (run := family.named(log, mapping, config)):
            return _with_events(run, log)
    return _with_events(guesses.run_of(log, mapping, config), log)


def _with_events(run: LoadedRun, log: NumberLog) -> LoadedRun:
    """The run with the failures that were found among its rows."""
    history = run.history
    for event in log.events:
        data = {**event.data, "file": str(log.files[0])}
        step = min(int(data.pop("after_step")), history.step)
        history.events.append(replace(event, step=step, attempt=history.attempt, data=data))
    return run
