"""The memory that `preflight --memory` predicts beside what a training takes, one fresh process per configuration.

The measured figure is the peak of resident memory over three steps.

    python -m bench.train.predicted
    python -m bench.train.predicted --only "100M, bfloat16"
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import bench.train as races
from bench.train.line import peak_memory
from bench.train.ours import overrides, random_scores
from bench.train.sides import environment

STEPS = 3
PROMPT = 16
"""Tokens of a prompt of the sorting task, with its beginning; measured."""
CASES: dict[str, tuple[str, list[str]]] = {
    "30M": ("30M", []),
    "30M, plain forward": ("30M", ["fast=off"]),
    "30M, reference": ("30M", ["policy.beta=0.01"]),
    "30M, critic": ("30M", ["algorithm=ppo"]),
    "30M, 8 rows a pass": ("30M", ["optim.micro_batch=8"]),
    "100M": ("100M", []),
    "100M, bfloat16": ("100M", ["precision=bfloat16"]),
    "100M, mixed": ("100M", ["precision=mixed"]),
    "100M, recomputed": ("100M", ["gradient_checkpointing=true", "fast=off"]),
    "100M, adapters": ("100M", ["lora.rank=16"]),
}


def measure(name: str) -> dict[str, Any]:
    """Predicted and measured bytes of one configuration."""
    size, settings = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "task": "sorting", "threads": 1, "seed": 0, "lr": 1e-5, "steps": STEPS, "settings": settings,
            "model": str(races._make_model(Path(folder) / "model", size, 0)),
            **(races.LONG if size == "30M" else races.LARGE),
        }  # fmt: skip
        command = [sys.executable, "-m", "bench.train.predicted", "--job", json.dumps(job)]
        done = subprocess.run(command, env=environment(1), capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _child(job: dict[str, Any]) -> dict[str, Any]:
    from stabilizer.live.session import Session
    from stabilizer.training.config import load_config
    from stabilizer.training.memory import needed

    config = load_config(job["task"], overrides(job))
    need = needed(config, prompt_tokens=PROMPT)
    peak_memory()
    peaks: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        session = Session.start(config, Path(folder) / "run", mode="suggest")
        session.trainer.task.score_all = random_scores
        peaks["start"] = peak_memory()["peak_gb"]
        for _ in session.run():
            peaks["steps"] = max(peaks.get("steps", 0.0), peak_memory()["peak_gb"])
    return (
        {"predicted_gb": need.peak / 1e9, "peak_gb": max(peaks.values())}
        | {part: value / 1e9 for part, value in need._asdict().items()}
        | {f"{part}_peak_gb": value for part, value in peaks.items()}
    )


def main() -> None:
    """Print a row per configuration."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        print(json.dumps(_child(asked.job)))
        return
    print(f"{'configuration':22} {'predicted GB':>12} {'measured GB':>12} {'predicted / measured':>21}")
    for name in asked.only or CASES:
        row = measure(name)
        ratio = row["predicted_gb"] / row["peak_gb"]
        print(f"{name:22} {row['predicted_gb']:12.2f} {row['peak_gb']:12.2f} {ratio:21.2f}", flush=True)
        if asked.only:
            print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
