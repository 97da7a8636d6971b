"""Attacks on training and its states: damaged checkpoints, sabotaged monitors, kills amid changes, replays."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.trust import damage, parts
from bench.trust.row import Attack, Effort, Measured
from stabilizer.live import bounded
from stabilizer.live.replay import replay
from stabilizer.live.session import Session
from stabilizer.runs.reader import RunError, RunReader
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer

HANGING = ("write", "replace", "fsync")
HANG_S = 4.0
"""Seconds for which an operation of the system does not return."""
AMID_KILLS, AMID_S = 200, 600.0
"""Kills of the full search for a change that is half done, and the most seconds of it."""
RANK_KILLS, RANKS_S, RANK_STEPS = 30, 420.0, 40
"""The same for runs of two processes, and the steps of such a run."""
RANKED = (
    "--steps", f"{RANK_STEPS}", "--seed", "1",
    *(word for setting in (*parts.SMALL, "device=cpu") for word in ("--set", setting)),
)  # fmt: skip


def damaged_checkpoints(effort: Effort) -> Measured:
    config = load_config("addition", list(parts.SMALL))
    made = Trainer(config, checkpoints=effort.folder / "made")
    for _ in range(2):
        made.train_step()
        made.save_checkpoint()
    draw = random.Random(effort.seed)
    kinds: list[tuple[str, Callable[[Path], Any]]] = list(damage.BEHIND_A_VALID_HASH.items())
    for number in range(effort.times(12, 400)):
        how = damage.OF_THE_BYTES[number % len(damage.OF_THE_BYTES)]
        kinds.append((f"{how.__name__} {number}", lambda folder, how=how: how(folder, draw)))
    wrong = []
    for number, (name, harm) in enumerate(kinds):
        folder = effort.folder / f"damaged{number}"
        shutil.copytree(effort.folder / "made", folder)
        harm(folder / "step-2-a0")
        made._folder = folder
        found = made.resume()
        if (
            found is None
            or found.step != 1
            or len(made.passed_over) + (not (folder / "step-2-a0/manifest.json").exists()) != 1
        ):
            wrong.append(name)
        shutil.rmtree(folder)
    named = f": {', '.join(wrong[:3])}" if wrong else ""
    return Measured(not wrong, f"{len(kinds)} kinds of damage, {len(wrong)} not passed over or not reported{named}")


def sabotage(effort: Effort) -> Measured:
    step, weights, _ = parts.trained(effort.folder / "undisturbed")
    slow = (parts.loops, parts.sleeps)
    cases = [(part, how) for part, how in parts.cases() if not effort.quick or how not in slow or part == "a detector"]
    cases = cases[effort.seed % 2 :: 2] if effort.quick else cases
    limit, bounded.LIMIT_S = bounded.LIMIT_S, 0.25 if effort.quick else 0.5
    wrong = []
    try:
        for number, (part, how) in enumerate(cases):
            try:
                same = parts.trained(effort.folder / f"run{number}", part, how)[:2] == (step, weights)
            except Exception:
                same = False
            wrong += [] if same else [f"{part} {how.__name__}"]
    finally:
        bounded.LIMIT_S = limit
    named = f": {', '.join(wrong[:3])}" if wrong else ""
    broken = {part for part, _ in cases}
    words = f"{len(cases)} ways to fail in {len(broken)} parts; {len(wrong)} ended or changed training{named}"
    return Measured(not wrong, words)


def hanging_disk(effort: Effort) -> Measured:
    """Writes, syncs and renames that do not return for a while, in turn; a save waits for the disk, so none is due."""
    longest, wrong, kinds = 0.0, [], HANGING[: effort.times(1, len(HANGING))]
    for kind in kinds:
        path = effort.folder / kind
        gap, said = _through_a_hang(path, kind)
        longest, reader = max(longest, gap), RunReader(path)
        rows = [step for _, step in reader.ticks]
        if rows != list(range(rows[-1] + 1)):
            wrong.append(f"{kind}: rows are missing")
        if not any(finding.id == "system/stalled" for finding in reader.findings) or not said:
            wrong.append(f"{kind}: not reported")
    named = f": {wrong[0]}" if wrong else "; each is an incident, and no row is lost"
    words = f"{', '.join(kinds)} hang for {HANG_S:g} s: a step takes at most {longest:.1f} s{named}"
    return Measured(longest < HANG_S / 2 and not wrong, words)


def _through_a_hang(path: Path, kind: str) -> tuple[float, bool]:
    """Train while an operation of the system hangs: the longest time between two steps, and whether it was told."""
    small = [*parts.SMALL, "checkpoint.every=0", "validation.every=0"]
    session = Session.start(load_config("addition", small, steps=100_000), path, "suggest")
    real, goes_on, gaps, said = getattr(os, kind), threading.Event(), [], ""

    def stuck(*args: Any, **named: Any) -> Any:
        goes_on.wait(2 * HANG_S)
        return real(*args, **named)

    began = last = time.monotonic()
    try:
        for tick in session.run():
            gaps.append(time.monotonic() - last)
            last, said = time.monotonic(), said + " ".join(tick.troubles)
            if tick.step == 3:
                setattr(os, kind, stuck)
                threading.Timer(HANG_S, goes_on.set).start()
            session.writer.status("running", tick.step, force=True)  # replaces a file and syncs it
            if "answers again" in said or last - began > 10 * HANG_S:
                session.stop_reason = "SIGTERM"
    finally:
        setattr(os, kind, real)
    return max(gaps[3:]), "does not answer" in said


def killed_amid_changes(effort: Effort) -> Measured:
    """Each processor kills runs of its own; every tenth run is replayed."""
    jobs = os.cpu_count() or 1
    until = min(effort.until, time.monotonic() + AMID_S * effort.share)
    part = partial(_killed_amid, effort, -(-effort.times(2, AMID_KILLS) // jobs), until)
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(part, range(jobs)))
    lives, replayed = sum(part.lives for part in found), sum(part.replayed for part in found)
    wrong = [line for part in found for line in part.wrong]
    named = f": {wrong[0]}" if wrong else ""
    words = f"{lives} kills between two operations of a change, {len(wrong)} half done{named}; {replayed} replays agree"
    return Measured(not wrong, words)


@dataclass
class _Killed:
    lives: int = 0
    replayed: int = 0
    wrong: list[str] = field(default_factory=list)


def _killed_amid(effort: Effort, most: int, until: float, job: int) -> _Killed:
    """Lives that are cut off one after another, by a process of their own, at moments of the whole run."""
    from tests.live.crash_server import SCENARIOS
    from tests.live.test_crashes import crash_server, killed, operations

    folder, draw, found = effort.folder / f"{job}", random.Random(f"{effort.seed} {job}"), _Killed()
    folder.mkdir()
    scenarios = sorted(SCENARIOS)[job:] + sorted(SCENARIOS)[:job]
    with contextlib.contextmanager(crash_server)() as process:
        counts: dict[str, int] = {}
        while found.lives < most and (not found.lives or time.monotonic() < until):
            scenario, path = scenarios[found.lives % len(scenarios)], folder / f"run{found.lives}"
            found.lives += 1
            try:
                if scenario not in counts:
                    counts[scenario] = len(operations(process, folder, scenario))
                killed(process, path, scenario, draw.randrange(counts[scenario]))
                if found.lives % 10 == 0:
                    assert replay(path, folder / "again").first is None, "its replay differs"
                    found.replayed += 1
            except AssertionError as error:
                found.wrong.append(f"{scenario}: {str(error)[:60]}")
            shutil.rmtree(folder / "again", ignore_errors=True)
            shutil.rmtree(path, ignore_errors=True)
    return found


def killed_ranks(effort: Effort) -> Measured:
    """One of two processes of a run is killed, the other ends by itself, and the run is resumed by two again."""
    from tests.training.rank_processes import cut_off, run_commands

    def command(name: str) -> list[str]:
        return ["train", "addition", *RANKED, "--runs", str(effort.folder / name)]

    def run_of(name: str) -> Path:
        return next((effort.folder / name).iterdir())

    draw, wrong, lives, rows, ended = random.Random(effort.seed), [], 0, 0, 0
    until = min(effort.until, time.monotonic() + RANKS_S * effort.share)
    if run_commands(2, command("whole")) != [0, 0]:
        return Measured(False, "two processes that nobody kills did not finish")
    weights = parts.weights_digest(run_of("whole"))
    while lives < effort.times(1, RANK_KILLS) and (not lives + ended or time.monotonic() < until):
        name, step = f"run{lives + ended}", draw.randrange(1, RANK_STEPS // 2)
        seen = cut_off(
            2, command(name), draw.randrange(2), partial(_written, effort.folder / name, step), draw.random()
        )
        path = run_of(name)
        if max(seen, default=0) >= RANK_STEPS:  # the run was faster than the kill
            ended += 1
            continue
        lives += 1
        rows += len(seen)
        if run_commands(2, ["train", "--resume", str(path)]) != [0, 0]:
            wrong.append(f"{name}: it was not resumed")
        elif parts.weights_digest(path) != weights:
            wrong.append(f"{name}: other weights")
        elif not seen <= {step for _, step in RunReader(path).ticks}:
            wrong.append(f"{name}: rows are gone")
    named = f": {wrong[0]}" if wrong else ""
    words = f"{lives} kills of one of two processes, {rows} rows written by then: {len(wrong)} runs not the same{named}"
    return Measured(lives > 0 and not wrong, words)


def _written(runs: Path, step: int) -> set[int]:
    """The rows of the one run in a folder, once one of this step is among them; empty before."""
    rows: set[int] = set()
    for path in runs.iterdir() if runs.is_dir() else ():
        with contextlib.suppress(RunError):
            rows = {step for _, step in RunReader(path).ticks}
    return rows if rows and max(rows) >= step else set()


def resumed_and_replayed(effort: Effort) -> Measured:
    def session(name: str) -> Session:
        return Session.start(load_config("addition", list(parts.SMALL), steps=6), effort.folder / name)

    list(session("whole").run())
    count, same, agree = effort.times(1, 20), 0, 0
    for number in range(count):
        path = effort.folder / f"stopped{number}"
        stopped = session(path.name)
        for tick in stopped.run():
            if tick.step == 1 + number % 5:
                stopped.stop_reason = "SIGTERM"
        list(Session.resume(path).run())
        same += parts.weights_digest(path) == parts.weights_digest(effort.folder / "whole")
        agree += replay(path, effort.folder / f"again{number}").first is None
    return Measured(same == agree == count, f"{count} resumed: {same} bit for bit, {agree} replays agree")


ATTACKS = (
    Attack("checkpoints", "A state that does not load is passed over, with a word",
           "changed bytes, and wrong content behind right hashes", damaged_checkpoints),
    Attack("checkpoints", "Resuming is bit-identical and `replay --check` agrees", "stopped, resumed, trained again",
           resumed_and_replayed),
    Attack("checkpoints", "A change that is cut off is done or undone",
           "kill -9 during rollback, snapshot, approval, revert, resume", killed_amid_changes, quick=False),
    Attack("checkpoints", "A run of two processes survives the loss of one", "kill -9 of either, then both resume",
           killed_ranks, quick=False),
    Attack("training", "Training survives its monitor, with the same weights",
           "every part raises, exits, hangs, leaks or answers junk", sabotage),
    Attack("training", "A disk that never answers does not stop training", f"an operation that takes {HANG_S:g} s",
           hanging_disk),
)  # fmt: skip
