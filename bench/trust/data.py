"""Attacks on the run directory: kills, refusing disks, clocks, folders that go away."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.trust.row import Attack, Effort, Measured
from stabilizer.core.records import Event, Finding, Metrics, encode, encode_metrics
from stabilizer.runs.append import AppendFile
from stabilizer.runs.reader import RunReader, read_records
from stabilizer.runs.writer import RunWriter
from stabilizer.training.checkpoint import CheckpointDamaged, read, scan, write

ROW = {f"optim/metric_{number}": number / 7 for number in range(40)}
LONGEST_LIFE_S = 0.15
"""A child is killed at a random moment up to so many seconds after its first acknowledgement."""
LONGEST_START_S = 10.0


def _acknowledge(pipe: int, step: int) -> None:
    os.write(pipe, struct.pack("<q", step))


Live = Callable[[Path, Callable[[int], None]], None]


def _lives(effort: Effort, count: int, live: Live) -> Iterator[tuple[Path, list[int]]]:
    """Fork a child, let it live for a random time, kill it; yields its folder and what it acknowledged last."""
    draw = random.Random(effort.seed)
    for number in range(count):
        folder = effort.folder / f"life{number}"
        folder.mkdir(parents=True)
        heard, said = os.pipe()
        if (child := os.fork()) == 0:
            with contextlib.suppress(BaseException):
                live(folder, partial(_acknowledge, said))
            os._exit(1)
        os.close(said)
        select.select([heard], [], [], LONGEST_START_S)  # until it begins: on a busy machine that takes a while
        time.sleep(draw.uniform(0.005, LONGEST_LIFE_S))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(heard, "rb") as pipe:
            told = pipe.read()
        yield folder, [struct.unpack_from("<q", told, place)[0] for place in range(0, len(told) // 8 * 8, 8)]


def _writes(folder: Path, acknowledge: Callable[[int], None]) -> None:
    run = RunWriter.create(folder / "run", config={}, task="attack")
    for step in range(1, 1_000_000):
        if run.metrics(step, ROW):
            acknowledge(step)
        run.status("running", step)
        if step % 7 == 0:
            run.finding(Finding("reward/plateau", "warn", "x", step, step, step, {}, "open", 1))
        if step % 20 == 0:
            run.begin_attempt(step + 1, "rollback")


def killed_while_writing(effort: Effort) -> Measured:
    lost, unreadable, torn, rows = 0, 0, 0, 0
    count = effort.times(20, 1000)
    for folder, acknowledged in _lives(effort, count, _writes):
        if not (folder / "run" / "run.json").exists():
            continue  # killed before it began
        try:
            reader = RunReader(folder / "run")
            RunWriter.reopen(folder / "run").close()
        except Exception:
            unreadable += 1
            continue
        steps = {step for _, step in reader.ticks}
        lost += len(set(acknowledged) - steps)
        rows += len(acknowledged)
        files = (folder / "run" / "metrics").glob("*.jsonl")
        torn += sum(bool(data) and not data.endswith(b"\n") for data in (file.read_bytes() for file in files))
    words = f"{count} kills, {rows:,} acknowledged rows: {lost} lost, {unreadable} runs unreadable, {torn} torn ends"
    return Measured(not lost and not unreadable and torn <= count and rows > count, words)


def _saves(folder: Path, acknowledge: Callable[[int], None]) -> None:
    for step in range(1, 1_000_000):
        content = {name: bytes([step % 256]) * size for name, size in (("model", 200_000), ("state", 3_000))}
        write(folder / "checkpoints", step, 0, content)
        acknowledge(step)


def killed_while_saving(effort: Effort) -> Measured:
    count, lost, mixed, saved = effort.times(20, 200), 0, 0, 0
    for folder, acknowledged in _lives(effort, count, _saves):
        newest = None
        for state in reversed(scan(folder / "checkpoints")):
            with contextlib.suppress(CheckpointDamaged):
                files = read(state)
                mixed += {data[0] for data in files.values()} != {state.step % 256}
                newest = state.step
                break
        saved += len(acknowledged)
        lost += bool(acknowledged) and (newest is None or newest < acknowledged[-1])
    words = f"{count} kills, {saved:,} saved states: {lost} newest states lost, {mixed} mixed"
    return Measured(not lost and not mixed and saved > count, words)


def every_prefix(effort: Effort) -> Measured:
    lines = {
        "metrics": [
            encode_metrics(Metrics(step=n, values={"a": n / 3, "nan": float("nan")}, t=1.0, n=n)) for n in (1, 2, 3)
        ],
        "findings": [encode(Finding("a/b", "warn", "ü\n\u202e", n, n, n, {"x": [n]}, "open", 1)) for n in (1, 2, 3)],
        "events": [encode(Event(step=n, kind="note", text="\0" * 9, t=1.0, attempt=0, data={})) for n in (1, 2, 3)],
    }
    kinds = {"metrics": Metrics, "findings": Finding, "events": Event}
    wrong, cuts = 0, 0
    for name, written in lines.items():
        whole, file = b"".join(written), effort.folder / f"{name}.jsonl"
        for cut in range(len(whole) + 1):
            file.write_bytes(whole[:cut])
            found = read_records(file, kinds[name])
            wrong += len(found.records) != whole[:cut].count(b"\n") or bool(found.skipped)
            cuts += 1
    return Measured(not wrong, f"{cuts:,} prefixes of three kinds of file, {wrong} read wrongly")


class Refusing:
    """Makes every n-th durable operation fail. As a context it is in force."""

    NAMES = ("write", "fsync", "replace", "ftruncate")

    def __init__(self, fails: Callable[[int], bool], how: int | str):
        self.fails, self.how, self.count, self.refused = fails, how, 0, 0
        self._real = {name: getattr(os, name) for name in self.NAMES}

    def __enter__(self) -> Refusing:
        for name, real in self._real.items():
            setattr(os, name, self._operation(real, name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _operation(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def operation(*args: Any) -> Any:
            self.count += 1
            if not self.fails(self.count):
                return real(*args)
            self.refused += 1
            if self.how == "short":
                return real(args[0], args[1][: max(1, len(args[1]) // 2)]) if name == "write" else real(*args)
            assert isinstance(self.how, int)
            raise OSError(self.how, os.strerror(self.how))

        return operation


def _life(path: Path) -> RunWriter:
    run = RunWriter.create(path, config={}, task="attack")
    for step in range(1, 13):
        run.metrics(step, ROW)
        run.event(step, "note", "x")
        run.finding(Finding("a/b", "warn", "x", step, step, step, {}, "open", 1))
        run.status("running", step, force=True)
        if step == 6:
            run.begin_attempt(7, "rollback")
    return run


def _complete(path: Path) -> bool:
    reader = RunReader(path)
    return {step for _, step in reader.ticks} == set(range(1, 13)) and len(reader.events) == 12


def failing_io(effort: Effort) -> Measured:
    ways: list[int | str] = [errno.EIO, errno.ENOSPC, errno.EINTR, "short"]
    with Refusing(lambda number: False, "short") as counted:
        _life(effort.folder / "counted").close()
    operations, tried, raised, lost = counted.count, 0, 0, 0
    begun = 6  # operations that create the run: if one is refused, the run stops with an error
    step = max(1, (operations - begun) // effort.times(6, operations))
    for how in ways:
        for number in range(begun, operations, step):
            path, tried = effort.folder / f"{how}-{number}", tried + 1
            try:
                with Refusing(lambda count, number=number: count == number, how):
                    run = _life(path)
                run.close()
                lost += not _complete(path)
            except OSError:
                raised += 1
    words = f"{tried} lives, each of {operations} operations refused once: {raised} raised, {lost} lost rows"
    return Measured(not raised and not lost, words)


def full_disk(effort: Effort) -> Measured:
    run = RunWriter.create(effort.folder / "full", config={}, task="attack")
    with Refusing(lambda number: True, errno.ENOSPC) as disk:
        for step in range(1, 1001):
            run.metrics(step, ROW)
            run.event(step, "note", "x")
            run.status("running", step)
    reported = bool(run.problems())
    run.metrics(1001, ROW)
    run.close()
    reader = RunReader(effort.folder / "full")
    rows = len(reader.ticks)
    words = f"{disk.refused:,} writes refused during 1,000 steps, then space: {rows} of 1,001 rows there"
    return Measured(rows == 1001 and len(reader.events) >= 999 and reported, words)


def clock_backwards(effort: Effort) -> Measured:
    real, shift = time.time, [0.0]
    time.time = lambda: real() + shift[0]
    try:
        run = RunWriter.create(effort.folder / "clock", config={}, task="attack")
        for step in range(1, 101):
            shift[0] -= 120
            run.metrics(step, ROW)
            run.status("running", step)
        run.close()
    finally:
        time.time = real
    reader = RunReader(effort.folder / "clock")
    behind = 100 - int(reader.status["step"])
    rows = [step for _, step in reader.ticks]
    return Measured(
        rows == list(range(1, 101)) and behind <= 1, f"100 rows, set back 2 min each: status {behind} behind"
    )


def taken_away(effort: Effort) -> Measured:
    found = []
    for how in ("moved", "deleted", "refuses every open and write"):
        path = effort.folder / how.replace(" ", "-")
        run = RunWriter.create(path, config={}, task="attack")
        run.metrics(1, ROW)
        if how == "moved":
            path.rename(effort.folder / "elsewhere")
        elif how == "deleted":
            shutil.rmtree(path)
        refusing = Refusing(lambda number, how=how: how.startswith("refuses"), errno.EROFS)
        with refusing:
            for step in range(2, 21):
                run.metrics(step, ROW)
                run.status("running", step, force=True)
        said = run.take_displaced() or "; ".join(run.problems())
        run.metrics(21, ROW)
        run.close()
        rows = {step for _, step in RunReader(path).ticks}
        found.append(bool(said) and rows >= set(range(3, 22)))
    return Measured(all(found), f"moved, deleted, read-only: {sum(found)} of 3 reported, with later rows kept")


def two_writers(effort: Effort) -> Measured:
    run = RunWriter.create(effort.folder / "two", config={}, task="attack")
    refused = 0
    for _ in range(20):
        if (child := os.fork()) == 0:
            try:
                RunWriter.reopen(effort.folder / "two")
            except ValueError:
                os._exit(7)
            os._exit(0)
        refused += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    run.close()
    return Measured(refused == 20, f"{refused} of 20 second writers refused")


def many_writers(effort: Effort) -> Measured:
    """Four ranks append to their own files of one run at the same time."""
    each, children = effort.times(1000, 10_000), []
    for rank in range(4):
        if (child := os.fork()) == 0:
            file = AppendFile(effort.folder / "run" / "metrics" / f"r{rank}-a0.jsonl")
            good = all([file.append(encode_metrics(Metrics(step=n, values=ROW, t=1.0, n=n))) for n in range(each)])
            os._exit(0 if good else 1)
        children.append(child)
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    steps = [
        [row.step for row in read_records(effort.folder / "run" / "metrics" / f"r{rank}-a0.jsonl", Metrics).records]
        for rank in range(4)
    ]
    good = sum(found == list(range(each)) for found in steps)
    words = f"4 processes, {each:,} records each: {sum(map(len, steps)):,} read, {good} of 4 files whole and in order"
    return Measured(not failed and good == 4, words)


ATTACKS = (
    Attack("data", "No acknowledged row is lost", "kill -9 at random moments while a run is written",
           killed_while_writing),
    Attack("data", "The newest saved state is whole", "kill -9 at random moments while states are saved",
           killed_while_saving),
    Attack("data", "Every prefix of a file is readable", "cut after every byte", every_prefix),
    Attack("data", "A failing disk loses nothing that fits the queue",
           "EIO, ENOSPC, EINTR or a short write at every n-th operation", failing_io),
    Attack("data", "A full disk loses nothing", "ENOSPC for 1,000 steps, then space", full_disk),
    Attack("data", "Several processes write beside each other", "four ranks append at the same time", many_writers),
    Attack("data", "The clock may go backwards", "2 minutes back before every step", clock_backwards),
    Attack("data", "A folder that goes away is reported", "moved, deleted, read-only while rows come", taken_away),
    Attack("data", "A run has one writer", "20 processes reopen a run that trains", two_writers),
)  # fmt: skip
