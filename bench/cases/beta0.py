"""A gradient norm that climbs and swings while the reward rises (TRL): GRPO at beta 0, four passes over every answer.

Groups without any spread are left out of an update (`filter_groups`). Answers of a hundred tokens are hardly ever all
alike; the tiny model's soon are, and groups that teach nothing would only dilute the norm that is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.cases import shared
from bench.cases.shared import Change, Sign, Tell, Twin
from stabilizer.core.knobs import GROUPED

NAME = "case-trl-beta0"
TASK = "sorting"
OVERRIDES = (
    "rollout.prompts=16", "policy.minibatches=1", "policy.inner_epochs=4", "policy.beta=0", "policy.entropy_coef=0",
    "policy.epsilon_high=0.2", "policy.average=sequence", "policy.filter_groups=drop", "optim.lr=1e-4",
    "optim.schedule=constant", "validation.every=0",
)  # fmt: skip
TWINS = (
    Twin("beta 0", ()),
    Twin("beta 0.001", ("policy.beta=0.001",), seeds=4),
    Twin("spread not divided by", ("policy.advantage=group_mean",)),
    Twin("one pass", ("policy.inner_epochs=1",), seeds=1),
    Twin("silent groups kept", ("policy.filter_groups=off",), seeds=1),
)
ARMS = (
    Change("nothing", {}),
    Change("beta 0.001", {"control/beta": 0.001}),
    Change("one pass", {"control/inner_epochs": 1}),
    Change("spread not divided by", {"control/advantage": GROUPED.index("group_mean")}),
)
STEPS, FORK, AFTER = 500, 300, 60
TRIED = 3
"""Seeds of which a snapshot is taken."""
EARLY, LATE = slice(20, 100), slice(-100, None)
"""Rows that are compared: the first ones after the warm-up, and the newest."""
CLIMBED, SWUNG = 2.0, 2.0
"""Factors of the level of the norm, and of its 5th to 95th percentile, from which a person sees them in a plot."""
WHAT = (
    "the level of the gradient norm and its swings (5th to 95th percentile) at least double from rows 20-100 to the"
    " last 100, while the reward is higher than it was"
)
METRICS = ("optim/grad_norm", "policy/clip_frac", "reward/mean")


def measure(seeds: Sequence[int], tell: Tell, *, record: bool = True) -> None:
    """All of it: the recorded run, the twins, and what was tried from a snapshot."""
    if record:
        shared.record(NAME, TASK, OVERRIDES, steps=STEPS, seed=seeds[0], mode="suggest")
    shared.write(NAME, [tried(seeds[:TRIED], tell)], {}, twins(seeds, tell))


def sign(metrics: Mapping[str, np.ndarray]) -> Sign:
    """Whether the norm climbs and swings while the reward rises."""
    norm, clip, reward = (metrics[name] for name in METRICS)
    level, swing = _level(norm, LATE) / _level(norm, EARLY), _swing(norm, LATE) / _swing(norm, EARLY)
    numbers = {
        "norm x": level, "swings x": swing, "clipped before": _level(clip, EARLY), "clipped after": _level(clip, LATE),
        "reward before": float(np.nanmean(reward[EARLY])), "reward after": float(np.nanmean(reward[LATE])),
    }  # fmt: skip
    rose = numbers["reward after"] > numbers["reward before"]
    return Sign(bool(level >= CLIMBED and swing >= SWUNG and rose), numbers)


def _level(values: np.ndarray, rows: slice) -> float:
    return float(np.nanmedian(values[rows]))


def _swing(values: np.ndarray, rows: slice) -> float:
    low, high = np.nanpercentile(values[rows], (5, 95))
    return float(high - low)


def twins(seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """The whole run, as configured and with one thing changed."""
    signs: dict[str, list[Sign]] = {twin.name: [] for twin in TWINS}
    for seed in seeds:
        for twin in (twin for twin in TWINS if seed in seeds[: twin.seeds]):
            settings = [*OVERRIDES, *twin.settings]
            signs[twin.name].append(sign(shared.grown(NAME, TASK, settings, steps=STEPS, seed=seed, metrics=METRICS)))
            tell(f"seed {seed}, {twin.name}: {signs[twin.name][-1]}")
    note = "Norms are those before clipping, as every trainer logs them; numbers are means over seeds."
    arms = [(twin, seeds[: twin.seeds], signs[twin.name]) for twin in TWINS]
    return shared.shown(arms, WHAT, f"{STEPS} steps, with one thing changed", note)


def tried(seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """Every arm from the snapshot of every seed."""
    results: dict[str, list] = {arm.name: [] for arm in ARMS}
    for seed in seeds:

        def made(seed: int = seed) -> list[dict[str, Any]]:
            trainer, snapshot, _ = shared.until(
                NAME, TASK, OVERRIDES, seed=seed, steps=FORK, wanted=lambda finding: False
            )
            return [shared.tried(trainer, snapshot, arm, steps=AFTER, every=20, metric=METRICS[0]) for arm in ARMS]

        rows = shared.kept_or(made, NAME, [OVERRIDES, FORK, AFTER, seed, [str(arm) for arm in ARMS]])
        for arm, row in zip(ARMS, rows, strict=True):
            results[arm.name].append(row)
            tell(f"seed {seed}: {arm.name}: {row['values']}")
    return {
        "title": f"Tried from one snapshot, after {FORK} steps", "metric": METRICS[0],
        "note": f"Median of the gradient norm before clipping over 20 steps each, seeds {seeds[0]} to {seeds[-1]}.",
        "arms": [shared.together(name, seeds, rows) for name, rows in results.items()],
    }  # fmt: skip
