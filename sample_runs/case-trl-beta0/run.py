"""No hold on the reference, and every answer learned from four times (TRL): `python sample_runs/case-trl-beta0/run.py`.

Beta is 0, so no reference is loaded. From one snapshot a seed, beta is raised with the reference loaded live, beside
nothing, a stronger dose and a single pass; what the reference costs is measured. About a quarter of an hour of one
core, for what a hold is worth shows only over many steps.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import arms  # noqa: E402
import torch  # noqa: E402

NAME = Path(__file__).parent.name
TASK = "addition"
OVERRIDES = (
    "rollout.prompts=16", "policy.minibatches=1", "policy.inner_epochs=4", "optim.lr=4e-4", "optim.schedule=constant",
    "policy.beta=0", "policy.entropy_coef=0.01", "validation.every=20", "checkpoint.best=false", "samples.every=0",
)  # fmt: skip
ARMS = (
    arms.Change("nothing", {}),
    arms.Change("beta 0.001", {"control/beta": 0.001}),
    arms.Change("beta 0.01", {"control/beta": 0.01}),
    arms.Change("one pass", {"control/inner_epochs": 1}),
)
FORK = 150
EVERY = 50
AFTER = 80
"""Steps of the recorded run after its turn."""


def main() -> None:
    """All of it; the figures of the page are those of seeds 10 and up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[10, 11, 12])
    parser.add_argument("--steps", type=int, default=750, help="steps of every arm")
    parser.add_argument("--no-record", action="store_true", help="leave the recorded run as it is")
    args = parser.parse_args()
    if not args.no_record:
        arms.record(
            NAME, TASK, OVERRIDES, steps=FORK + AFTER, seed=args.seeds[0], mode="suggest",
            turns={FORK: "beta=0.001"},
        )  # fmt: skip
    compare(args.seeds, args.steps)


def compare(seeds: Sequence[int], steps: int) -> None:
    """Every arm from the snapshot of every seed, and the cost of the reference."""
    results: dict[str, list] = {arm.name: [] for arm in ARMS}
    held = []
    for seed in seeds:
        overrides = [*OVERRIDES, "checkpoint.every=0"]
        trainer, snapshot, _ = arms.until(NAME, TASK, overrides, seed=seed, steps=FORK, wanted=lambda finding: False)
        for arm in ARMS:
            results[arm.name].append(row := arms.tried(trainer, snapshot, arm, steps=steps, every=EVERY))
            print(f"seed {seed}: {arm.name:11} {row['change']:24} {row['values']}", flush=True)
            if arm.name == "nothing":
                before = alive()
            elif arm.name == "beta 0.001":
                held.append(alive() - before)
    trial = {
        "title": f"Tried from one snapshot, after {FORK} steps", "metric": "accuracy/val",
        "note": f"Greedy accuracy on 256 held-out problems, every {EVERY} steps, seeds {seeds[0]} to {seeds[-1]}, the"
        " same prompts for every arm of a seed.",
        "arms": [arms.together(name, seeds, rows) for name, rows in results.items()],
    }  # fmt: skip
    plain, anchored = (pace(results[name]) for name in ("nothing", "beta 0.001"))
    arms.write(
        NAME, [trial],
        {
            "a step without the reference": f"{plain * 1000:.1f} ms of processor time (median of {steps * len(seeds)})",
            "a step with it": f"{anchored * 1000:.1f} ms, {anchored / plain - 1:+.0%}",
            "memory of the reference": f"{max(held) / 1e6:.2f} MB of tensors more once beta has left 0; the"
            f" weights alone are {weights(trainer) / 1e6:.2f} MB",
        },
    )  # fmt: skip


def pace(rows: Sequence[dict[str, Any]]) -> float:
    return median(second for row in rows for second in row["step_s"])


def weights(trainer: Any) -> int:
    return sum(p.numel() * p.element_size() for p in trainer.policy.model.parameters())


def alive() -> int:
    """Bytes of all tensors that exist, each storage counted once."""
    gc.collect()
    found = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found}.values())


if __name__ == "__main__":
    main()
