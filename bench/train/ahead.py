"""What generation one step ahead costs in reward, and saves in time: the same runs with and without it, seed by seed.

Built-in tasks with their own settings; only `rollout.asynchronous` differs. The reward is the mean of the last third of
the steps. Runs of a seed take turns, so that other load hits both alike.

    python -m bench.train.ahead --seeds 6 --steps 90
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.train import compare

TASKS = ("sorting", "addition")
KINDS = {"synchronous": "false", "asynchronous": "true"}


def measure(tasks: Sequence[str], seeds: int, steps: int) -> list[dict[str, Any]]:
    """A row for each task."""
    return [_task(task, range(seeds), steps) for task in tasks]


def _task(task: str, seeds: range, steps: int) -> dict[str, Any]:
    rows: dict[str, list[list[dict[str, float]]]] = {kind: [] for kind in KINDS}
    for seed in seeds:
        for kind, value in KINDS.items():
            rows[kind].append(_run(task, seed, steps, f"rollout.asynchronous={value}"))
            print(f"{task}, seed {seed}, {kind}: {rows[kind][-1][-1]['reward/mean']:.3f}", flush=True)
    rewards = {kind: [[row["reward/mean"] for row in run] for run in runs] for kind, runs in rows.items()}
    found = compare(rewards["asynchronous"], rewards["synchronous"])
    return {
        "task": task,
        "seeds": len(seeds),
        "steps": steps,
        "synchronous": found["end"]["trl"],
        "asynchronous": found["end"]["ours"],
        "difference": found["difference"],
        "interval": found["difference interval"],
        "staleness": _median(rows["asynchronous"], "rollout/staleness"),
        "mismatch_kl": _median(rows["asynchronous"], "policy/mismatch_kl"),
        **{f"{kind} {part}": _median(runs, f"time/{part}") for kind, runs in rows.items() for part in PARTS},
    }


PARTS = ("step_s", "rollout_s")


def _median(runs: list[list[dict[str, float]]], name: str) -> float:
    return float(np.median([row.get(name, 0.0) for run in runs for row in run]))


def _run(task: str, seed: int, steps: int, setting: str) -> list[dict[str, float]]:
    from stabilizer.training.config import load_config
    from stabilizer.training.loop import Trainer

    config = load_config(
        task, [setting, "device=cpu", "validation.every=0", "checkpoint.every=0"], steps=steps, seed=seed
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Trainer(config, checkpoints=Path(folder))
        return [run.train_step().metrics for _ in range(steps)]


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=90)
    given = parser.parse_args()
    for row in measure(given.tasks, given.seeds, given.steps):
        low, high = row.pop("interval")
        print(
            *(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items())
        )
        print(f"difference in reward {row['difference']:+.3f} (95 % interval {low:+.3f} to {high:+.3f})")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
