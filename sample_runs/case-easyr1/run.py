"""Flat after some steps, for lack of batch (EasyR1): `python sample_runs/case-easyr1/run.py`, some four minutes.

A model that sorts letters about half of the time learns on from four prompts a step, one behind each update, at five
eighths of the task's learning rate. After 200 steps, changes are tried from one snapshot a seed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import arms  # noqa: E402

from stabilizer.core.records import Finding  # noqa: E402
from stabilizer.training.config import load_config  # noqa: E402
from stabilizer.training.loop import Trainer  # noqa: E402

NAME = Path(__file__).parent.name
START = Path("build") / NAME / "start"
OVERRIDES = (
    f"model={START}", "optim.schedule=constant", "optim.lr=5e-4", "rollout.prompts=4", "rollout.group_size=8",
    "policy.minibatches=4", "policy.entropy_coef=0.03", "checkpoint.best=false", "samples.every=0",
)  # fmt: skip
ARMS = (
    arms.Change("nothing", {}),
    arms.Change("lr alone", {"control/lr_scale": 2.0}),
    arms.Change("batch alone", {"control/minibatches": 1}),
    arms.Change("both", {"control/minibatches": 1, "control/lr_scale": 2.0}),
    arms.Change("more prompts", {"control/prompts": 16}),
    arms.Change("lower lr", {"control/lr_scale": 0.5}),
)
FORK, STEPS = 200, 100
RECORDED = 14
"""The seed of the recorded run: of seeds 10 to 15 one whose plateau warns, and whose fix is judged before the end."""


def start() -> None:
    """The model it begins with: the built-in one after 60 steps on batches eight times as large."""
    trainer = Trainer(
        load_config("sorting", ["optim.schedule=constant"], steps=60, seed=0), checkpoints=Path("build") / NAME
    )
    for _ in range(60):
        trainer.train_step()
    trainer.save_pretrained(START)


def main() -> None:
    """All of it; the figures of the page are those of seeds 10 and up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[10, 11, 12, 13])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--no-record", action="store_true", help="leave the recorded run as it is")
    args = parser.parse_args()
    if not START.exists():
        start()
    if not args.no_record:
        arms.record(NAME, "sorting", [*OVERRIDES, "validation.every=100"], steps=210, seed=RECORDED, mode="auto-safe")
    if args.seeds:
        compare(args.seeds, args.steps)


def compare(seeds: list[int], steps: int) -> None:
    """Every arm from the snapshot of every seed."""
    results: dict[str, list] = {arm.name: [] for arm in ARMS}
    told = []
    for seed in seeds:
        trainer, snapshot, step = arms.until(
            NAME, "sorting", [*OVERRIDES, "validation.every=10", "checkpoint.every=0"], seed=seed, steps=FORK,
            wanted=_small_batch,
        )  # fmt: skip
        told.append(step)
        for arm in ARMS:
            results[arm.name].append(row := arms.tried(trainer, snapshot, arm, steps=steps))
            print(f"seed {seed}, told at {step}: {arm.name:13} {row['change']:40} {row['values']}", flush=True)
    trial = {
        "title": f"Tried from one snapshot, after {FORK} steps", "metric": "accuracy/val",
        "note": f"Greedy accuracy on 256 held-out problems, every 10 steps, seeds {seeds[0]} to {seeds[-1]}, the same"
        " prompts for every arm of a seed. Batch alone: the same prompts and answers, in one update a step instead of"
        " four, so four prompts behind each instead of one.",
        "arms": [arms.together(name, seeds, rows) for name, rows in results.items()],
    }  # fmt: skip
    seen = [step for step in told if step is not None]
    named = f"{len(seen)} of {len(told)} seeds, first at step {', '.join(str(step) for step in seen)}"
    what = f"batch-too-small told as first cause of a noise floor or plateau, by step {FORK}"
    arms.write(NAME, [trial], {what: named})


def _small_batch(finding: Finding) -> bool:
    first = finding.causes[0].id if finding.causes else ""
    return finding.id in ("reward/plateau", "reward/noise-floor") and first == "batch-too-small"


if __name__ == "__main__":
    main()
