"""No trend yet, with halved batches (Search-R1): `python sample_runs/case-search-r1/run.py`, some four minutes.

PPO with a critic on the built-in search task, an answer a prompt, half of the prompts, and a warm-up over 28.5 % of the
planned steps. It is looked at where the user looked, at 12 % of the way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import arms  # noqa: E402

from stabilizer.training.config import load_config  # noqa: E402
from stabilizer.training.loop import Trainer  # noqa: E402

NAME = Path(__file__).parent.name
PLANNED, WARMUP, LOOK = 400, 114, 48
"""1,005 steps, 286 of warm-up and a look at step 120, scaled by 0.4."""
OVERRIDES = (
    "algorithm=ppo", "rollout.prompts=16", "rollout.group_size=1", "optim.schedule=constant",
    f"optim.warmup_steps={WARMUP}", "checkpoint.best=false", "checkpoint.every=0", "samples.every=0",
    "validation.every=20", "validation.problems=128",
)  # fmt: skip
ARMS = (
    arms.Change("nothing", {}),
    arms.Change("batch alone", {"control/prompts": 32}),
    arms.Change("lr alone", {"control/lr_scale": 2.0}),
    arms.Change("both at once", {"control/prompts": 32, "control/lr_scale": 2.0}),
)
PRECISIONS = ("float32", "mixed", "bfloat16")


def main() -> None:
    """All of it; the figures of the page are those of seeds 10 and up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[10, 11, 12])
    parser.add_argument("--steps", type=int, default=60, help="steps of every arm, from the look on")
    parser.add_argument("--no-record", action="store_true", help="leave the recorded run as it is")
    args = parser.parse_args()
    if not args.no_record:
        turns = {LOOK: "prompts=32", LOOK + 40: "lr_scale=2"}
        arms.record(NAME, "search", OVERRIDES, steps=160, seed=args.seeds[0], mode="suggest", turns=turns)
    arms.write(NAME, [compare(args.seeds, args.steps), precision(args.seeds, LOOK + args.steps)], {})


def compare(seeds: Sequence[int], steps: int) -> dict[str, Any]:
    """Every arm from the look of every seed."""
    results: dict[str, list] = {arm.name: [] for arm in ARMS}
    for seed in seeds:
        trainer, snapshot, _ = arms.until(
            NAME, "search", OVERRIDES, seed=seed, steps=LOOK, wanted=lambda finding: False
        )
        for arm in ARMS:
            results[arm.name].append(row := arms.tried(trainer, snapshot, arm, steps=steps, every=20))
            print(f"seed {seed}: {arm.name:15} {row['values']}", flush=True)
    return {
        "title": f"Tried from step {LOOK}, while the learning rate still warms up", "metric": "accuracy/val",
        "note": f"Greedy accuracy on 128 held-out questions, every 20 steps, seeds {seeds[0]} to {seeds[-1]}. The"
        f" warm-up ends {WARMUP - LOOK} steps after the look.",
        "arms": [arms.together(name, seeds, rows) for name, rows in results.items()],
    }  # fmt: skip


def precision(seeds: Sequence[int], steps: int) -> dict[str, Any]:
    """The same run from its first step in three precisions, on the same seeds."""
    results: dict[str, list] = {name: [] for name in PRECISIONS}
    for seed in seeds:
        for name in PRECISIONS:
            config = load_config("search", [*OVERRIDES, f"precision={name}"], steps=PLANNED, seed=seed)
            trainer = Trainer(config, checkpoints=Path("build") / NAME / name)
            change = arms.Change(name, {})
            row = arms.tried(trainer, trainer.save_checkpoint(), change, steps=steps, every=20)
            results[name].append(row | {"change": f"precision {name}"})
            print(f"seed {seed}: {name:15} {row['values']}", flush=True)
    return {
        "title": "The same seeds in three precisions, from the first step", "metric": "accuracy/val",
        "note": "float32; mixed: weights in float32, arithmetic in bfloat16; bfloat16: weights too. Prompts are the"
        " same; answers are not, once a logit is rounded otherwise.",
        "arms": [arms.together(name, seeds, rows) for name, rows in results.items()],
    }  # fmt: skip


if __name__ == "__main__":
    main()
