"""Many runs: made once, kept by a hash of what decides how they end, made within a budget, gone on with after a kill.

An outcome is a small file; the run directory is deleted once it is there. An arm that could only do what "no action"
did, because no detector said anything, is not trained: how it ends is known.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

import torch

from bench.detect.live import lives, start
from bench.rescue.arms import ARMS, BASELINES, OFF, OURS, PLACEBO
from bench.rescue.plan import Case, sources
from bench.rescue.play import CACHE, Outcome, play
from bench.rescue.score import damaged

RUNS_A_FAULT, RUNS_A_HEALTHY = 5.4, 1.1
"""Arms trained for a case on average, where many are not damaged and some not heard."""
RUN_S = 22.0
"""Seconds of one core that a run takes on average, measured on a machine that was busy otherwise."""


def file_of(case: Case, arm: str, folder: Path) -> Path:
    """Where an outcome is kept."""
    key = case.key(sources(remedies=ARMS[arm].remedies))
    return folder / case.half / f"{case.name}.{arm.replace(' ', '-')}.{key}.json"


def outcome(case: Case, arm: str, folder: Path) -> Outcome | None:
    """An outcome that is kept, or None."""
    path = file_of(case, arm, folder)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def make(case: Case, arm: str, folder: Path) -> Outcome:
    """An outcome, trained unless it is there; what a killed process left half-made is thrown away."""
    if there := outcome(case, arm, folder):
        return there
    path = file_of(case, arm, folder)
    run = folder / "unfinished" / f"{os.getpid()}" / path.stem
    shutil.rmtree(run, ignore_errors=True)
    made = play(case, arm, run, folder)
    shutil.rmtree(run.parent, ignore_errors=True)
    if made["ended"] == "SIGTERM":  # it was told to make room, and how it would have ended is not known
        raise InterruptedError(
            f"{case.name}, {arm}: told to end before its last iteration; the same command makes it anew"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(f"{case.name}.{arm.replace(' ', '-')}.*.json"):
        old.unlink(missing_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(made), encoding="utf-8")
    fresh.rename(path)
    return made


def arms_of(case: Case, off: Outcome, clean: float) -> list[str]:
    """Arms that have to be trained: none where nothing was said; simple ones only where there is something to save."""
    if not off["findings"]:
        return []
    if case.healthy:
        return [*OURS]
    return [*OURS, PLACEBO, *(BASELINES if damaged(off["final"], clean) else ())]


def treat(case: Case, folder: Path) -> dict[str, Outcome]:
    """A case under every arm that can differ; its twin is made if it is not there."""
    off = make(case, OFF, folder)
    clean = off if case.healthy else make(case.twin, OFF, folder)
    return {OFF: off} | {arm: make(case, arm, folder) for arm in arms_of(case, off, clean["final"])}


def treated(case: Case, folder: Path) -> dict[str, Outcome] | None:
    """What `treat` returned once, if all of it is there."""
    off, clean = outcome(case, OFF, folder), outcome(case if case.healthy else case.twin, OFF, folder)
    if not off or not clean:
        return None
    rest = {arm: outcome(case, arm, folder) for arm in arms_of(case, off, clean["final"])}
    return None if None in rest.values() else {OFF: off} | rest


def ahead(wanted: Sequence[Case], folder: Path = CACHE) -> tuple[int, float]:
    """(cases that are not there yet, minutes of one core that they take, roughly)."""
    missing = [case for case in (*_twins(wanted), *wanted) if treated(case, folder) is None]
    runs = sum(RUNS_A_HEALTHY if case.healthy else RUNS_A_FAULT for case in missing)
    return len(missing), runs * RUN_S / 60


def _twins(wanted: Sequence[Case]) -> list[Case]:
    """The clean runs that faults are compared with, and the same with other prompts."""
    return list(dict.fromkeys(t for case in wanted if not case.healthy for t in (case.twin, case.other_prompts)))


def make_all(
    wanted: Sequence[Case], folder: Path = CACHE, *, jobs: int = 2, budget_s: float | None = None
) -> tuple[list[Case], list[Case]]:
    """Make what is missing; (cases that are there then, twins and the like first, cases the budget left out).

    No run is begun once `budget_s` seconds have passed.
    """
    deadline = math.inf if budget_s is None else time.monotonic() + budget_s
    _tidy(folder / "unfinished")
    twins = _twins(wanted)
    needed = [*twins, *wanted]
    missing = [case for case in needed if treated(case, folder) is None]
    for task, level in dict.fromkeys((case.task, case.start) for case in missing):
        if level is not None and time.monotonic() < deadline:
            start(task, level, folder)
    first = set(twins)
    for part in ([c for c in missing if c in first], [c for c in missing if c not in first]):
        _pool(part, folder, jobs, deadline)
    there = [case for case in needed if treated(case, folder) is not None]
    return there, [case for case in needed if case not in set(there)]


def _pool(wanted: Iterable[Case], folder: Path, jobs: int, deadline: float) -> None:
    waiting, running, failed = iter(wanted), dict[Future[object], str](), list[str]()
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < deadline and (case := next(waiting, None)):
                running[pool.submit(treat, case, folder)] = case.name
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                if error := future.exception():
                    failed.append(f"{name}: {type(error).__name__}: {error}")
                print(f"{'failed' if error else 'made'} {name}", file=sys.stderr, flush=True)
    if failed:
        raise RuntimeError("these cases could not be made:\n" + "\n".join(failed))


def _begin() -> None:
    """A process of the pool ends with the one that started it, however that one ends."""
    torch.set_num_threads(1)
    Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()


def _tidy(unfinished: Path) -> None:
    """Delete what processes that are dead left half-made."""
    for path in unfinished.iterdir() if unfinished.is_dir() else ():
        if not lives(path.name):
            shutil.rmtree(path, ignore_errors=True)
