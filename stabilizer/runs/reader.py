"""Reading a run directory, whole or as it grows. Nothing here writes to it or waits for its writer.

A file is read up to its last newline. A line that can't be read is counted and reported, never fatal. `RunReader`
follows by byte offset, so a refresh reads only what is new.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from stabilizer.core import json_text
from stabilizer.core.records import Action, Event, Finding, Metrics, RecordError, decode, decode_metrics
from stabilizer.runs.blocks import Block, Blocks
from stabilizer.runs.history import History
from stabilizer.runs.ticks import Ticks

MAX_LINE = 8 * 1024 * 1024
MAX_SMALL = 16 * 1024 * 1024
CHUNK = 16 * 1024 * 1024
MAX_ATTEMPTS = 1000
"""Attempts of one run that are read; each has its own copy of the numbers before it."""
MAX_NAMES = 10_000
"""Names of metrics of one run that are read."""
_STATE = re.compile(r"step-(\d{1,15})-a(\d{1,9})")


class RunError(ValueError):
    """A path that can't be read as a run: the message says what, where and what to do next."""


class UnknownFormat(RunError):
    """A file in no known format."""


class OwnNames(RunError):
    """A run or curve that has our metric names already, so that `--map` does not apply to it."""


def run_around(target: Path) -> Path | None:
    """The run directory that contains a path, if any. Only the training process may write there."""
    return next((folder for folder in target.resolve().parents if (folder / "run.json").is_file()), None)


@dataclass
class Tail:
    """A file followed by byte offset. `skipped` counts lines that were not records; only complete lines are read."""

    path: Path
    offset: int = 0
    skipped: int = 0
    restarts: int = 0
    _inode: int = 0
    _too_long: bool = False

    def lines(self) -> Iterator[bytes]:
        """Complete lines that came since the last call. A file that shrank or was replaced is read from its start."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):  # a run is a folder, a log may be a file
            return
        except OSError as error:  # a link that leads to itself, or a file of another user
            raise RunError(f"{self.path}: {error.strerror}; it can't be read") from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if self._inode and (status.st_ino != self._inode or status.st_size < self.offset):
                self.offset, self._too_long = 0, False
                self.restarts += 1
            self._inode = status.st_ino
            file.seek(self.offset)
            while chunk := file.read(CHUNK):
                end = chunk.rfind(b"\n") + 1
                if end:
                    self.offset += end
                    yield from self._split(chunk[:end])
                    file.seek(self.offset)
                elif len(chunk) > MAX_LINE:  # pass over it now: memory stays bounded whatever the file holds
                    self.offset += len(chunk)
                    self._too_long = True
                else:
                    return

    def _split(self, complete: bytes) -> Iterator[bytes]:
        for line in complete.split(b"\n")[:-1]:
            if self._too_long or len(line) > MAX_LINE:
                self._too_long = False
                self.skipped += 1
            elif line.strip():
                yield line


@dataclass
class Read:
    """Records of one file, and how many lines were not records."""

    records: list[Any] = field(default_factory=list)
    skipped: int = 0


def read_records(path: Path, kind: type) -> Read:
    """All complete records of a file; none where the file does not exist."""
    return _take(Tail(path), kind)


def _take(tail: Tail, kind: type) -> Read:
    read = Read()
    for line in tail.lines():
        try:
            read.records.append(decode_metrics(line) if kind is Metrics else decode(kind, line))
        except RecordError:
            tail.skipped += 1
    read.skipped = tail.skipped
    return read


def _take_metrics(tail: Tail, names: Names) -> list[Block]:
    rows = Blocks()
    for line in tail.lines():
        try:
            record = decode_metrics(line)
        except RecordError:
            tail.skipped += 1
        else:
            rows.add(record.step, names.known(record.values), record.t)
    return rows.blocks


@dataclass
class Names:
    """The names of metrics so far. Those beyond `MAX_NAMES` are left out: each takes memory in every attempt."""

    met: set[str] = field(default_factory=set)
    left_out: int = 0
    """Values whose names were left out."""

    def known(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """The values whose names are kept."""
        if self.met.issuperset(values):
            return values
        self.met.update(islice((name for name in values if name not in self.met), MAX_NAMES - len(self.met)))
        kept = {name: value for name, value in values.items() if name in self.met}
        self.left_out += len(values) - len(kept)
        return kept


def read_json(path: Path) -> dict[str, Any]:
    """A small JSON object of the run directory; {} when it is missing, damaged, nested too deep, too large or not a
    regular file."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_SMALL:
            return {}
        value = json_text.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


class RunReader:
    """A run directory, followed. `refresh` reads what is new; `history` is the current lineage.

    `ticks` holds (attempt, step) of every record in the order they were written, abandoned branches included. A replay
    follows it and shows a watcher exactly what the live one saw.
    """

    def __init__(self, path: Path, *, spills: bool = False):
        """`spills` is for a reader that follows a run for long: see `History`."""
        if not (path / "run.json").is_file():
            raise RunError(f"{path}: no run.json, so this is not a run directory; give the folder that holds run.json")
        self.path = path
        self._spills = spills
        self.starts = 0
        """How often the files were read from their beginning."""
        self._start()
        self.refresh()

    def _start(self) -> None:
        self.starts += 1
        self.about: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.histories: dict[int, History] = {}
        self.ticks = Ticks()
        self.findings: list[Finding] = []
        self.actions: list[Action] = []
        self.events: list[Event] = []
        self._placed: dict[int, dict[tuple[Any, ...], Event]] = {}
        """Events by their attempt, each once however often its line was written."""
        self._names = Names()
        self._metrics: dict[int, Tail] = {}
        self._tails = {name: Tail(self.path / f"{name}.jsonl") for name in ("events", "findings", "actions")}

    @property
    def history(self) -> History:
        """The current lineage: for steps from a rollback on, the newest attempt."""
        return self.histories[max(self.histories)]

    @property
    def skipped(self) -> int:
        """Lines that were not records, over all files."""
        return sum(tail.skipped for tail in [*self._metrics.values(), *self._tails.values()])

    @property
    def lost_findings(self) -> bool:
        """Whether lines among the findings could not be read."""
        return self._tails["findings"].skipped > 0

    def refresh(self) -> list[Block]:
        """Read what was written since the last call; returns the new rows of the current attempt.

        An event is written before the metrics it explains, so metrics are read before events, and none is ever seen
        without its event. An event whose attempt is still to come waits for it.
        """
        about = read_json(self.path / "run.json")
        if about:
            self.about = about
        elif not self.about and not os.access(self.path / "run.json", os.R_OK):
            raise RunError(f"{self.path / 'run.json'}: Permission denied; check the path and its rights")
        elif not self.about:
            raise RunError(
                f"{self.path / 'run.json'}: not readable as a JSON object, or nested more than"
                f" {json_text.MAX_NESTING} levels deep; restore it or delete the folder"
            )
        self.status = read_json(self.path / "status.json")
        attempts = self._attempts()
        records = {entry["attempt"]: self._new_metrics(entry["attempt"]) for entry in attempts}
        new_events = _take(self._tails["events"], Event).records
        self.events += new_events
        if self._come_late(attempts, records, new_events):
            self._start()  # a full disk held back lines of a branch that others were forked from since
            return self.refresh()
        for event in new_events:  # before attempts are forked, which take the events of their past with them
            self._place(event)
        fresh: list[Block] = []
        for entry in attempts:
            fresh = records[entry["attempt"]]
            self._take_in(entry, fresh)
        self.findings += _take(self._tails["findings"], Finding).records
        self.actions += _take(self._tails["actions"], Action).records
        if any(tail.restarts for tail in (*self._metrics.values(), *self._tails.values())):
            self._start()  # a file was cut or replaced: read everything again, so that no line counts twice
            return self.refresh()
        return fresh

    @property
    def notes(self) -> list[str]:
        """What was left out because there is too much of it."""
        rows = self.about.get("attempts")
        notes = []
        if isinstance(rows, list) and len(rows) > MAX_ATTEMPTS:
            notes.append(
                f"{len(rows) - MAX_ATTEMPTS:,} attempts left out: the first and newest {MAX_ATTEMPTS // 2} are read"
            )
        if self._names.left_out:
            notes.append(f"{self._names.left_out:,} values left out: the first {MAX_NAMES:,} names of metrics are read")
        return notes

    def checkpoints(self) -> list[Event]:
        """Checkpoints of the run, as events at the steps they were taken after. None of their files is opened."""
        try:
            names = [entry.name for entry in os.scandir(self.path / "checkpoints")]
        except OSError:
            return []
        found = sorted((int(m[1]), int(m[2])) for name in names if (m := _STATE.fullmatch(name)))
        return [Event(step, "checkpoint", "", attempt=attempt) for step, attempt in found]

    def _attempts(self) -> list[dict[str, Any]]:
        rows = self.about.get("attempts")
        rows = rows if isinstance(rows, list) else []
        known = [
            {name: row[name] if isinstance(row.get(name), int) else None for name in ("attempt", "from_step", "parent")}
            for row in rows
            if isinstance(row, dict) and isinstance(row.get("attempt"), int)
        ]
        if len(known) > MAX_ATTEMPTS:
            known = known[: MAX_ATTEMPTS // 2] + known[-MAX_ATTEMPTS // 2 :]
        return known or [{"attempt": 0, "from_step": 0, "parent": None}]

    def _come_late(self, attempts: list[dict[str, Any]], records: dict[int, list[Block]], events: list[Event]) -> bool:
        """Whether an attempt grew after another was forked from it."""
        grown = {attempt for attempt, rows in records.items() if rows} | {event.attempt for event in events}
        return any(entry["attempt"] in self.histories and entry["parent"] in grown for entry in attempts)

    def _new_metrics(self, attempt: int) -> list[Block]:
        path = self.path / "metrics" / f"r0-a{attempt}.jsonl"
        return _take_metrics(self._metrics.setdefault(attempt, Tail(path)), self._names)

    def _take_in(self, entry: dict[str, Any], blocks: list[Block]) -> None:
        attempt, parent = entry["attempt"], entry.get("parent")
        if attempt not in self.histories:
            if parent in self.histories:
                history = self.histories[parent].fork(entry.get("from_step") or 0, attempt)
            else:
                history = History(self.about, attempt=attempt, spills=self._spills)
            history.events += self._placed.get(attempt, {}).values()  # these may have been read before its metrics
            self.histories[attempt] = history
        history = self.histories[attempt]
        history.about = self.about
        for block in blocks:
            history.extend(block)
            for step in block.steps:
                if not self.ticks or self.ticks[-1] != (attempt, step):
                    self.ticks.append(attempt, step)

    def _place(self, event: Event) -> None:
        placed = self._placed.setdefault(event.attempt, {})
        key = event.step, event.kind, event.text, event.t, repr(event.data)
        if key not in placed:
            placed[key] = event
            if event.attempt in self.histories:
                self.histories[event.attempt].events.append(event)
