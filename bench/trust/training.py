"""Attacks on training and its states: damaged checkpoints, sabotaged monitors, kills amid changes, replays."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.trust import damage, parts
from bench.trust.row import Attack, Effort, Measured
from stabilizer.live import bounded
from stabilizer.live.replay import replay
from stabilizer.live.session import Session
from stabilizer.runs.append import AppendFile
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer

AMID_S = 900.0
"""Seconds of the full search for a change that is half done."""


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
    words = f"{len(cases)} ways to fail in {len(parts.ATTACKS)} parts; {len(wrong)} ended or changed training{named}"
    return Measured(not wrong, words)


def hanging_disk(effort: Effort) -> Measured:
    """A write that never returns: nothing in the writer has a time limit, so training waits. Known, and shown."""
    session = Session.start(load_config("addition", list(parts.SMALL), steps=3), effort.folder / "hanging")
    real, goes_on = AppendFile._write, threading.Event()

    def stuck(file: AppendFile, line: bytes) -> None:
        goes_on.wait(3)
        real(file, line)

    AppendFile._write = stuck  # type: ignore[method-assign]
    releases = threading.Timer(2.0, goes_on.set)
    releases.start()
    began = time.monotonic()
    try:
        for _ in session.run():
            break
    finally:
        AppendFile._write = real  # type: ignore[method-assign]
    waited = time.monotonic() - began
    return Measured(waited < 1.5, f"a write that takes 2 s stops the step for {waited:.1f} s")


def killed_amid_changes(effort: Effort) -> Measured:
    from tests.live.crash_server import SCENARIOS
    from tests.live.test_crashes import crash_server, killed

    lives = effort.times(2, 200)
    draw, wrong = random.Random(effort.seed), []
    with contextlib.contextmanager(crash_server)() as process:
        until = time.monotonic() + AMID_S * effort.share
        for number in range(lives):
            if number >= len(SCENARIOS) and time.monotonic() > until:
                lives = number
                break
            scenario = sorted(SCENARIOS)[number % len(SCENARIOS)]
            try:
                killed(process, effort.folder / f"run{number}", scenario, draw.randrange(10, 120))
            except AssertionError as error:
                wrong.append(f"{scenario}: {str(error)[:60]}")
    named = f": {wrong[0]}" if wrong else ""
    return Measured(not wrong, f"{lives} kills between two operations of a change, {len(wrong)} half done{named}")


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
    Attack("training", "Training survives its monitor, with the same weights",
           "every part raises, exits, hangs, leaks or answers junk", sabotage),
    Attack("training", "A disk that never answers does not stop training", "a write that takes 2 s", hanging_disk),
)  # fmt: skip
