"""The completions of a run on disk: which steps have some, and one step's, read once and kept while it is looked at.

Steps come from file names alone. A step is read up to a size, and what did not fit is said. Two viewers who want the
same step wait for one reading of it; nobody else waits.
"""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import orjson

from dashboards.data.files import stamp_of
from stabilizer.core.records import RecordError, Sample, decode
from stabilizer.runs.loaded import Texts
from stabilizer.runs.reader import RunError, Tail

MAX_BYTES = 32 << 20
"""Of one step's files."""
MAX_ROWS = 20_000
KEPT_BYTES = 96 << 20
"""Of files whose completions are in memory."""
MAX_SCAN = 64 << 20
"""Bytes of other steps that are looked through for one prompt."""

_FILE = re.compile(r"(\d{1,15})-r(\d{1,6})\.jsonl")


@dataclass(frozen=True, slots=True)
class LoggedCompletion:
    """One completion: its place in the step, the process that logged it, and pass over this step."""

    index: int
    rank: int
    take: int
    sample: Sample

    @property
    def key(self) -> tuple[int, int, int]:
        """The group it belongs to."""
        return self.take, self.rank, self.sample.group


@dataclass(frozen=True)
class LoggedStep:
    """All completions of a step. A step that was taken again after a rollback has several `takes`."""

    step: int
    rows: tuple[LoggedCompletion, ...] = ()
    takes: int = 1
    skipped: int = 0
    cut: bool = False
    """Whether there were more than the size limit."""

    @property
    def newest_rows(self) -> list[LoggedCompletion]:
        """The completions of the last time the step was taken."""
        return [row for row in self.rows if row.take == self.takes - 1]

    @property
    def components(self) -> list[str]:
        """Names the reward is made of."""
        return sorted({name for row in self.rows for name in row.sample.rewards})

    @property
    def has_tokens(self) -> bool:
        """Whether any completion was logged token by token."""
        return any(row.sample.logps for row in self.rows)


class CompletionsStore:
    """Completions of all runs, for all viewers. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: OrderedDict[Path, tuple[int, dict[int, list[Path]]]] = OrderedDict()
        self._read: OrderedDict[Path, tuple[tuple[int, ...], int, LoggedStep]] = OrderedDict()
        self._reading: dict[Path, threading.Lock] = {}

    def steps(self, run: Path) -> list[int]:
        """Steps with completions, ascending."""
        return sorted(self._files(run))

    def step(self, run: Path, step: int) -> LoggedStep:
        """The completions of a step; a step without any is empty."""
        files = self._files(run).get(step)
        if not files:
            return LoggedStep(step)
        first = files[0]
        with self._lock:
            reading = self._reading.setdefault(first, threading.Lock())
        with reading:
            stamp = tuple(number for path in files for number in stamp_of(path))
            with self._lock:
                known = self._read.get(first)
                if known and known[0] == stamp:
                    self._read.move_to_end(first)
                    return known[2]
            found = read_step(step, files)
            size = min(MAX_BYTES, sum(stamp[1::2]))
            with self._lock:
                self._read[first] = (stamp, size, found)
                self._read.move_to_end(first)
                while len(self._read) > 1 and sum(entry[1] for entry in self._read.values()) > KEPT_BYTES:
                    self._reading.pop(self._read.popitem(last=False)[0], None)
            return found

    def elsewhere(self, run: Path, step: int, prompt: str, most: int = 12) -> list[int]:
        """Other steps that logged the same prompt, the nearest first."""
        files = self._files(run)
        wanted = b'"prompt":' + orjson.dumps(prompt) + b","
        left, found = MAX_SCAN, []
        for other in sorted((other for other in files if other != step), key=lambda other: abs(other - step)):
            for path in files[other]:
                content = _bytes(path, left)
                left -= len(content)
                if wanted in content:
                    found.append(other)
                    break
            if len(found) == most or left <= 0:
                break
        return found

    def _files(self, run: Path) -> Mapping[int, list[Path]]:
        folder = run / "samples"
        try:
            stamp = folder.stat().st_mtime_ns
        except OSError:
            return {}
        with self._lock:
            known = self._steps.get(run)
            if known and known[0] == stamp:
                return known[1]
        found: dict[int, list[Path]] = {}
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError:
            return {}
        for name in names:
            if match := _FILE.fullmatch(name):
                found.setdefault(int(match[1]), []).append(folder / name)
        with self._lock:
            self._steps[run] = (stamp, found)
            while len(self._steps) > 32:
                self._steps.popitem(last=False)
        return found


class LogCompletions(CompletionsStore):
    """The completions that another trainer's log keeps, which are read where they lie."""

    def __init__(self, texts: Texts):
        super().__init__()
        self.texts = texts

    def steps(self, run: Path) -> list[int]:
        """Steps with completions, ascending."""
        return list(self.texts.steps)

    def step(self, run: Path, step: int) -> LoggedStep:
        """The completions of a step, as many as the log's reader hands on."""
        return _of_log(self.texts, step)

    def elsewhere(self, run: Path, step: int, prompt: str, most: int = 12) -> list[int]:
        """Not looked for: every other step would have to be read whole."""
        return []


@lru_cache(maxsize=8)
def _of_log(texts: Texts, step: int) -> LoggedStep:
    try:
        found = texts.read(step)
    except (OSError, RunError):  # gone since the log was read
        found = []
    return LoggedStep(step, tuple(LoggedCompletion(index, 0, 0, _plain(sample)) for index, sample in enumerate(found)))


def read_step(step: int, files: Sequence[Path]) -> LoggedStep:
    """The completions in some files. Within a file groups come in order, so one that starts over was taken again."""
    rows: list[LoggedCompletion] = []
    skipped, left, cut, takes = 0, MAX_BYTES, False, 1
    for path in files:
        match = _FILE.fullmatch(path.name)
        rank = int(match[2]) if match else 0
        tail, take, last = Tail(path), 0, (-math.inf, "")
        for line in _lines(tail):
            left -= len(line)
            if left < 0 or len(rows) >= MAX_ROWS:
                cut = True
                break
            try:
                sample = _plain(decode(Sample, line))
            except RecordError:
                skipped += 1
                continue
            again = sample.group < last[0] or (sample.group == last[0] and sample.prompt != last[1])
            take, last = take + again, (sample.group, sample.prompt)
            rows.append(LoggedCompletion(len(rows), rank, take, sample))
        skipped += tail.skipped
        takes = max(takes, take + 1)
    return LoggedStep(step, tuple(rows), takes, skipped, cut)


def _lines(tail: Tail) -> Iterator[bytes]:
    try:
        yield from tail.lines()
    except (OSError, RunError):
        return


def _plain(sample: Sample) -> Sample:
    """A sample whose rewards are numbers, whatever the file holds."""
    rewards = {name: float(v) for name, v in sample.rewards.items() if isinstance(v, (int, float))}
    told = len(sample.tokens) == len(sample.logps) and all(isinstance(token, str) for token in sample.tokens)
    told = told and all(logp is None or isinstance(logp, (int, float)) for logp in sample.logps)
    tokens, logps = (sample.tokens, sample.logps) if told else ((), ())
    return replace(
        sample,
        reward=float(sample.reward),
        advantage=float(sample.advantage),
        rewards=rewards,
        tokens=tokens,
        logps=logps,
    )


def _bytes(path: Path, most: int) -> bytes:
    try:
        if not path.is_file():
            return b""
        with open(path, "rb") as file:
            return file.read(max(0, most))
    except OSError:
        return b""
