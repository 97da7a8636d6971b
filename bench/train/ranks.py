"""How much less a step takes with two processes on two cores than with one process on one core, one thread each.

Both take turns in blocks of fresh processes. Wall time depends on what else the machine does; processor time of rank 0,
which scores and records for all, hardly does. Random rewards give every group a gradient. Rank 0 waits for the others
without using the processor, so its processor time is a lower bound of the wall time on idle cores.

    python -m bench.train.ranks --size 1.6M --blocks 3
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from bench.train import LONG, _make_model
from bench.train.line import peak_memory
from bench.train.ours import overrides, random_scores
from bench.train.sides import environment

STEPS = {"110k": 20, "1.6M": 8, "30M": 2}
"""Steps of a block, besides the first one."""
SHAPES = {"110k": LONG | {"max_completion": 32}, "1.6M": LONG | {"max_completion": 32}, "30M": LONG}
PROCESSES = (1, 2)


def measure(size: str, blocks: int) -> dict[str, Any]:
    """Medians of all steps, by number of processes."""
    seen: dict[int, list[dict[str, Any]]] = {number: [] for number in PROCESSES}
    with tempfile.TemporaryDirectory() as folder:
        model = _make_model(Path(folder) / "model", size, 0)
        job = {
            "task": "sorting", "threads": 1, "seed": 0, "lr": 1e-4, "model": str(model), "steps": STEPS[size] + 1,
            **SHAPES[size],
        }  # fmt: skip
        for _ in range(blocks):
            for number in PROCESSES:
                seen[number] += _block(number, job)
    return {
        f"{number} {part}": (max if part == "peak_gb" else median)(row[part] for row in seen[number])
        for number in PROCESSES
        for part in ("wall_s", "cpu_s", "rollout_s", "update_s", "peak_gb")
    }


def _block(number: int, job: dict[str, Any]) -> list[dict[str, Any]]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={number}"] if number > 1 else []
    done = subprocess.run(  # noqa: S603
        [sys.executable, *launcher, "-m", "bench.train.ranks", "--job", json.dumps(job)],
        env=environment(1),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"{number} processes ended with {done.returncode}: {done.stderr[-2000:]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _steps(job: dict[str, Any]) -> None:
    """The steps of this process, if it is rank 0; the others follow."""
    from stabilizer.training.config import load_config
    from stabilizer.training.loop import Trainer
    from stabilizer.training.ranks import follow, joined
    from stabilizer.training.settings import TrainConfig

    with joined() as ranks, tempfile.TemporaryDirectory() as folder:

        def build(config: TrainConfig) -> Trainer:
            return Trainer(config, checkpoints=Path(folder), ranks=ranks)

        if not ranks.leads:
            follow(ranks, build)
            return
        trainer = build(load_config(job["task"], overrides(job)))
        trainer.task.score_all = random_scores  # type: ignore[method-assign]
        trainer.train_step()
        rows = []
        for _ in range(job["steps"] - 1):
            began, cpu = perf_counter(), process_time()
            metrics = trainer.train_step().metrics
            rows.append({
                "wall_s": perf_counter() - began, "cpu_s": process_time() - cpu,
                "rollout_s": metrics["time/rollout_s"], "update_s": metrics["time/update_s"], **peak_memory(),
            })  # fmt: skip
        print(json.dumps(rows), flush=True)


def main() -> None:
    """Print the figures of one size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=STEPS, default="1.6M")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        _steps(given.job)
        return
    found = measure(given.size, given.blocks)
    for name, value in found.items():
        print(f"{name} {value:.3f}")
    for part in ("wall_s", "cpu_s"):
        print(f"{part}: {found[f'1 {part}'] / found[f'2 {part}']:.2f} times less with two processes")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
