"""Batches halved, no trend at step 120 (Search-R1): PPO with a critic on the built-in search task.

The plan is the user's: 1,005 steps, of which 28.5 % warm the learning rate up, looked at after 120. The batch is half
of the one in which the reward has a trend by then, and so is the mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.cases import live, logged, shared
from bench.cases.shared import Change, Sign, Tell, Twin
from stabilizer.core.stats import trend

NAME = "case-search-r1"
TASK = "search"
PLANNED, WARMUP, LOOK, AFTER = 1005, 286, 120, 60
OVERRIDES = (
    "algorithm=ppo", "rollout.prompts=12", "rollout.group_size=1", "optim.lr=1.5e-3", "optim.schedule=constant",
    f"optim.warmup_steps={WARMUP}", "validation.every=0", "validation.problems=128",
)  # fmt: skip
TWINS = (
    Twin("halved", ()),
    Twin("recipe's batches", ("rollout.prompts=24",)),
    Twin("train batch alone", ("rollout.prompts=24", "policy.minibatches=4")),
    Twin("mini-batch alone", ("policy.minibatches=1",)),
    Twin("half the rate", ("optim.lr=7.5e-4",)),
    Twin("no long warm-up", ("optim.warmup_steps=15",)),
    Twin("bfloat16", ("precision=bfloat16",)),
)
ARMS = (
    Change("nothing", {}),
    Change("batch", {"control/prompts": 24}),
    Change("rate", {"control/lr_scale": 2.0}),
    Change("both at once", {"control/prompts": 24, "control/lr_scale": 2.0}),
)
SYMPTOM = ("reward/noise-floor", "reward/oscillation")
BY_PEOPLE = live.Plan(
    NAME, TASK, OVERRIDES, steps=LOOK + AFTER, every=20, symptom=SYMPTOM, planned=PLANNED,
    readings=(live.Reading("accuracy/val", title="Live, changed by a person"),),
)  # fmt: skip
PEOPLE = (
    live.Way("nobody acts"),
    live.Way("a person, when seen", turns="prompts=24", change="prompts 12 → 24"),
    live.Way("the rate, when seen", turns="lr_scale=2", change="lr_scale 1 → 2"),
)
PLAN = live.Plan(NAME, TASK, OVERRIDES, steps=LOOK + 2 * AFTER, every=20, symptom=SYMPTOM, planned=PLANNED)
WAYS = (
    live.Way("nobody acts"),
    live.Way("auto-safe", "auto-safe"),
    live.Way("auto-full", "auto-full"),
    live.Way("a person, when seen", turns="prompts=24", change="prompts 12 → 24"),
)
TRIED = 3
"""Seeds of which a snapshot is taken."""
SURE = 2.576 / 1.96
"""Width of a 99 % interval in those of 95 %."""
WHAT = (
    f"no upward trend in the reward after {LOOK} steps (its 99 % interval reaches 0), while it swings by more than its"
    " level"
)


def measure(seeds: Sequence[int], tell: Tell, *, record: bool = True) -> None:
    """All of it: the recorded run, the twins, and what was tried from the look on."""
    if record:
        shared.record(
            NAME, TASK, [*OVERRIDES, "validation.every=20"], steps=LOOK + AFTER, planned=PLANNED, seed=seeds[0],
            mode="auto-safe",
        )  # fmt: skip
    shared.write(NAME, [tried(seeds[:TRIED], tell)], {}, twins(seeds, tell))
    live.keep(BY_PEOPLE, PEOPLE, seeds, tell)
    live.keep(PLAN, WAYS, seeds, tell)
    logged.keep(NAME)


def sign(reward: np.ndarray) -> Sign:
    """Whether the reward has no upward trend and swings by more than its level."""
    slope = trend(reward)
    error = SURE * (slope.high - slope.change)
    low, high = (float(value) for value in np.percentile(reward, (5, 95)))
    numbers = {
        "change": slope.change, "from": slope.change - error, "to": slope.change + error,
        "swing": high - low, "level": float(reward.mean()),
    }  # fmt: skip
    return Sign(bool(slope.change <= error and high - low > reward.mean()), numbers)


def twins(seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """The first 120 steps, as configured and with one thing changed."""
    signs: dict[str, list[Sign]] = {twin.name: [] for twin in TWINS}
    for seed in seeds:
        for twin in (twin for twin in TWINS if seed in seeds[: twin.seeds]):
            settings = [*OVERRIDES, *twin.settings]
            metrics = shared.grown(
                NAME, TASK, settings, steps=LOOK, planned=PLANNED, seed=seed, metrics=("reward/mean",)
            )
            signs[twin.name].append(sign(metrics["reward/mean"]))
            tell(f"seed {seed}, {twin.name}: {signs[twin.name][-1]}")
    note = (
        "Change of the reward over the first 120 steps, with its 99 % interval (means over seeds); swing: 5th to 95th"
        " percentile of the rows."
    )
    results = [(twin, seeds[: twin.seeds], signs[twin.name]) for twin in TWINS]
    return shared.shown(results, WHAT, "The first 120 steps, with one thing changed", note)


def tried(seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """Every arm from the look of every seed."""
    results: dict[str, list] = {arm.name: [] for arm in ARMS}
    for seed in seeds:

        def made(seed: int = seed) -> list[dict[str, Any]]:
            trainer, snapshot, _ = shared.until(
                NAME, TASK, OVERRIDES, seed=seed, steps=LOOK, planned=PLANNED, wanted=lambda finding: False
            )
            return [shared.tried(trainer, snapshot, arm, steps=AFTER, every=20) for arm in ARMS]

        rows = shared.kept_or(made, NAME, [OVERRIDES, PLANNED, LOOK, AFTER, seed, [str(arm) for arm in ARMS]])
        for arm, row in zip(ARMS, rows, strict=True):
            results[arm.name].append(row)
            tell(f"seed {seed}: {arm.name}: {row['values']}")
    return {
        "title": f"Tried from step {LOOK}, while the learning rate still warms up", "metric": "accuracy/val",
        "note": f"Greedy accuracy on 128 held-out questions, every 20 steps, seeds {seeds[0]} to {seeds[-1]}. The"
        f" warm-up ends {WARMUP - LOOK} steps after the look.",
        "arms": [shared.together(name, seeds, rows) for name, rows in results.items()],
    }  # fmt: skip
