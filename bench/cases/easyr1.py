"""Flat after some steps, for lack of batch (EasyR1): GRPO on the built-in sorting task.

A model that sorts letters about half of the time learns on from four prompts a step, one behind each update, at five
eighths of the task's learning rate. After 200 steps, changes are tried from one snapshot a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import live, logged, shared
from bench.cases.shared import Change, Sign, Tell, Twin
from stabilizer.core.records import Finding
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer

NAME = "case-easyr1"
START = Path("build") / NAME / "start"
OVERRIDES = (
    f"model={START}", "optim.schedule=constant", "optim.lr=5e-4", "rollout.prompts=4", "rollout.group_size=8",
    "policy.minibatches=4", "policy.entropy_coef=0.03",
)  # fmt: skip
ARMS = (
    Change("nothing", {}),
    Change("lr alone", {"control/lr_scale": 2.0}),
    Change("batch alone", {"control/minibatches": 1}),
    Change("both", {"control/minibatches": 1, "control/lr_scale": 2.0}),
    Change("more prompts", {"control/prompts": 16}),
    Change("lower lr", {"control/lr_scale": 0.5}),
)
RECORDED = 14
"""The seed of the recorded run: of seeds 10 to 15 one whose plateau warns, and whose fix is judged before the end."""


FORK, STEPS = 200, 100
TWINS = (
    Twin("small batch", ()),
    Twin("four times the prompts", ("rollout.prompts=16",)),
    Twin("one update a step", ("policy.minibatches=1",)),
)
BEGIN, END, QUARTER, BEST = 10, 50, 0.25, 1.0
"""First and last rows that are compared, and the share of the way to the best reward that still counts as flat."""
WHAT = (
    f"in the last {END} of {FORK} steps the reward has covered less than a quarter of the way from its level in the"
    f" first {BEGIN} to its best value, {BEST:g} (a rule that was chosen after the runs had been seen)"
)
PLAN = live.Plan(
    NAME,
    "sorting",
    OVERRIDES,
    steps=480,
    every=20,
    symptom=("reward/plateau", "reward/noise-floor", "reward/oscillation"),
)
ARTICLE = "prompts=16 lr_scale=4"
"""The article's advice: a batch several times as large and five times the rate, together; 4 is the knob's limit."""
WAYS = (
    live.Way("nobody acts"),
    live.Way("auto-safe", "auto-safe"),
    live.Way("auto-full", "auto-full"),
    live.Way("a person approves", "approve", approves=True),
    live.Way("a person, when seen", turns="prompts=16", change="prompts 4 → 16"),
    live.Way("the article", turns=ARTICLE, change="prompts 4 → 16, lr_scale 1 → 4"),
)


def start() -> None:
    """The model it begins with: the built-in one after 60 steps on batches eight times as large."""
    trainer = Trainer(
        load_config("sorting", ["optim.schedule=constant"], steps=60, seed=0), checkpoints=Path("build") / NAME
    )
    for _ in range(60):
        trainer.train_step()
    trainer.save_pretrained(START)


def measure(seeds: Sequence[int], tell: Tell, *, record: bool = True) -> None:
    """All of it: the recorded run, and what was tried from a snapshot."""
    if not START.exists():
        start()
    if record:
        shared.record(NAME, "sorting", [*OVERRIDES, "validation.every=100"], steps=210, seed=RECORDED, mode="auto-safe")
    trial, told = tried(seeds, tell)
    seen = [step for step in told if step is not None]
    named = f"{len(seen)} of {len(told)} seeds, first at step {', '.join(str(step) for step in seen)}"
    what = f"batch-too-small told as first cause of a noise floor or plateau, by step {FORK}"
    shared.write(NAME, [trial], {what: named}, twins(seeds, tell))
    live.keep(PLAN, WAYS, seeds, tell)
    logged.keep(NAME)


def sign(reward: np.ndarray) -> Sign:
    """Whether the reward has hardly risen above the level at which it began."""
    begin, end = float(reward[:BEGIN].mean()), float(reward[-END:].mean())
    covered = (end - begin) / (BEST - begin)
    return Sign(bool(covered < QUARTER), {"reward at first": begin, "reward at last": end, "of the way": covered})


def twins(seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """The first steps, as configured and with one thing changed."""
    signs: dict[str, list[Sign]] = {twin.name: [] for twin in TWINS}
    for seed in seeds:
        for twin in TWINS:
            settings = [*OVERRIDES, "validation.every=0", *twin.settings]
            metrics = shared.grown(NAME, "sorting", settings, steps=FORK, seed=seed, metrics=("reward/mean",))
            signs[twin.name].append(sign(metrics["reward/mean"]))
            tell(f"seed {seed}, {twin.name}: {signs[twin.name][-1]}")
    note = "Numbers are means over seeds."
    arms = [(twin, seeds, signs[twin.name]) for twin in TWINS]
    return shared.shown(arms, WHAT, f"The first {FORK} steps, with one thing changed", note)


def tried(seeds: Sequence[int], tell: Tell) -> tuple[dict[str, Any], list[int | None]]:
    """Every arm from the snapshot of every seed, and the step at which the small batch was told."""
    results: dict[str, list] = {arm.name: [] for arm in ARMS}
    told = []
    for seed in seeds:

        def made(seed: int = seed) -> dict[str, Any]:
            trainer, snapshot, step = shared.until(
                NAME, "sorting", [*OVERRIDES, "validation.every=10"], seed=seed, steps=FORK, wanted=_small_batch
            )
            return {"told": step, "rows": [shared.tried(trainer, snapshot, arm, steps=STEPS) for arm in ARMS]}

        found = shared.kept_or(made, NAME, [OVERRIDES, FORK, STEPS, seed, [str(arm) for arm in ARMS]])
        told.append(found["told"])
        for arm, row in zip(ARMS, found["rows"], strict=True):
            results[arm.name].append(row)
            tell(f"seed {seed}, told at {found['told']}: {arm.name}: {row['values']}")
    trial = {
        "title": f"Tried from one snapshot, after {FORK} steps", "metric": "accuracy/val",
        "note": f"Greedy accuracy on 256 held-out problems, every 10 steps, seeds {seeds[0]} to {seeds[-1]}, the same"
        " prompts for every arm of a seed. Batch alone: the same prompts and answers, in one update a step instead of"
        " four, so four prompts behind each instead of one.",
        "arms": [shared.together(name, seeds, rows) for name, rows in results.items()],
    }  # fmt: skip
    return trial, told


def _small_batch(finding: Finding) -> bool:
    first = finding.causes[0].id if finding.causes else ""
    return finding.id in ("reward/plateau", "reward/noise-floor") and first == "batch-too-small"
