"""What monitoring costs per step: writing a record, taking it into the history, asking the detectors.

Timed inside the process, call by call, on a healthy run at 50 metrics, all of them known to the vocabulary, so that
every detector has something to look at: the generated run of `bench detect`, a thousand to a hundred thousand steps
long, of which the last 500 are timed, after 200 that warm the watch up. The ten dearest detectors are those of the
longest run, as their share of a step. It is processor time, so that what else the machine does is not
counted; wall-clock comparisons of whole runs could not resolve this: their noise is 5 to 20 %.

The last rows are of the trainer, where it is installed: a step of the built-in task, a snapshot as a fix takes it (on
disk, synced, and in memory) and a checkpoint, in wall-clock time, for most of it is waiting for the disk; and the share
of a run's time that goes into saving when each `checkpoint.every` steps one is saved.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench.detect.host import Host
from bench.detect.world import World
from stabilizer.analysis.watching import new_watch
from stabilizer.core.records import Finding
from stabilizer.detectors import DETECTORS
from stabilizer.detectors.base import Detector
from stabilizer.runs.directory import RunWriter
from stabilizer.runs.history import History, RunView

METRICS = 50
TIMED = 500
WARM = 200
DEAREST = 10
LEFT_OUT = frozenset({
    "control/epsilon_high", "control/epsilon_low", "control/group_size", "control/lr_scale", "control/max_grad_norm",
    "control/prompts", "control/temperature", "policy/clip_frac_high", "policy/clip_frac_low", "policy/ess",
    "rollout/distinct_2", "rollout/length_max", "rollout/length_p90", "tokens/total", "value/mean",
})  # fmt: skip
"""What no detector needs of what our trainer logs."""
ADDED = {
    "policy/router_shift": 0.02, "rollout/language_frac": 0.95, "rollout/prompt_dependence": 0.4,
    "value/grad_norm": 0.5,
}  # fmt: skip
"""What other trainers log and detectors need: the level of each."""


def run(steps: int, seed: int) -> Iterator[tuple[int, dict[str, float]]]:
    """A healthy run of PPO on a search task, whose reward has two components: 50 metrics a step."""
    world = World(Host(task="search", algorithm="ppo", tool=True, rewards="0-5", steps=steps), seed)
    rng = np.random.default_rng(seed)
    for step, row in world.rows():
        added = {name: level * (1 + 0.04 * rng.normal()) for name, level in ADDED.items()}
        yield step, {name: value for name, value in row.items() if name not in LEFT_OUT} | added


def measure(*, seed: int = 0, quick: bool = False) -> list[dict[str, Any]]:
    """Milliseconds a step by length of the run and by part, and of each of the dearest detectors; `held_mb` is what the
    history and its signals take in memory."""
    lengths = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    rows = [row for length in lengths for row in _measure(length, seed, detailed=length == lengths[-1])]
    return rows + _saving(seed, 10 if quick else 40)


def _saving(seed: int, repeats: int) -> list[dict[str, Any]]:
    """What it costs to be able to go back, beside a step of training on the built-in model."""
    try:
        from stabilizer.training.config import load_config
        from stabilizer.training.loop import Trainer
    except ImportError:  # monitoring runs without the trainer's packages
        return []
    config = load_config("addition", ["validation.every=0"], seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, checkpoints=Path(folder))
        times: dict[str, list[float]] = {"training step": [], "snapshot for a fix": [], "checkpoint": []}
        for _ in range(repeats):
            for name, action in zip(
                times, (trainer.train_step, trainer.snapshot, trainer.save_checkpoint), strict=True
            ):
                began = time.perf_counter()
                action()
                times[name].append(1e3 * (time.perf_counter() - began))
        rows = [_row(config.checkpoint.every, name, spent) for name, spent in times.items()]
        rows[1]["held_mb"] = trainer._ring.nbytes / 1e6
    every = config.checkpoint.every
    share = rows[2]["median_ms"] / every / rows[0]["median_ms"]
    return [
        *rows,
        _row(every, f"saving, a step's share ({share:.2%})", [spent / every for spent in times["checkpoint"]]),
    ]


def _measure(length: int, seed: int, detailed: bool) -> list[dict[str, Any]]:
    stream = run(length + (WARM + TIMED) * detailed, seed)
    history, watch = History({"trainer": "stabilizer", "steps": length}), new_watch()
    for step, row in islice(stream, length - TIMED - WARM):
        history.append(step, row)
    for step, row in islice(stream, WARM):  # the first of them fills the signals, which a live run does as it goes
        history.append(step, row)
        watch.tick(history.view())
    times: dict[str, list[float]] = {"write": [], "history": [], "detectors": []}
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter.create(Path(folder) / "run", config={})
        for step, row in islice(stream, TIMED):
            marks = [time.thread_time()]
            writer.metrics(step, row)
            marks.append(time.thread_time())
            history.append(step, row)
            marks.append(time.thread_time())
            watch.tick(history.view())
            marks.append(time.thread_time())
            for name, spent in zip(times, np.diff(marks), strict=True):
                times[name].append(1e3 * spent)
        writer.close()
    times["all"] = list(np.sum(list(times.values()), axis=0))
    out = [_row(length, name, spent) for name, spent in times.items()]
    out[1]["held_mb"] = history.nbytes / 1e6
    return out + _dearest(length, history, stream) if detailed else out


def _dearest(length: int, history: History, stream: Iterator[tuple[int, dict[str, float]]]) -> list[dict[str, Any]]:
    """What a step costs by detector; whoever first asks for what detectors share pays for it."""
    timed = [Timed(detector) for detector in DETECTORS]
    watch = new_watch(timed)
    for step, row in stream:
        history.append(step, row)
        for detector in timed:
            detector.spent.append(0.0)
        watch.tick(history.view())
    rows = [_row(length, detector.id, detector.spent[WARM:]) for detector in timed]
    return sorted(rows, key=lambda row: row["mean_ms"], reverse=True)[:DEAREST]


class Timed(Detector):
    """A detector and what it costs."""

    def __init__(self, detector: Detector):
        self.id, self.confirm, self.at_end = detector.id, detector.confirm, detector.at_end  # type: ignore[misc]
        self.detector = detector
        self.spent: list[float] = []

    def check(self, view: RunView) -> Finding | None:
        """What the detector says."""
        before = time.thread_time()
        try:
            return self.detector.check(view)
        finally:
            self.spent[-1] = 1e3 * (time.thread_time() - before)


def _row(steps: int, part: str, times: list[float]) -> dict[str, Any]:
    return {
        "steps": steps, "part": part, "mean_ms": float(np.mean(times)), "median_ms": float(np.median(times)),
        "p95_ms": float(np.percentile(times, 95)), "held_mb": None,
    }  # fmt: skip
