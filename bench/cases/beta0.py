"""A gradient norm that climbs and swings while the reward rises (TRL): GRPO at beta 0, four passes over every answer.

Groups without any spread are left out of an update (`filter_groups`). Answers of a hundred tokens are hardly ever all
alike; the tiny model's soon are, and groups that teach nothing would only dilute the norm that is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.cases import in_trl, live, logged, shared
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
    Change("spread of the batch", {"control/advantage": GROUPED.index("batch_std")}),
    Change("a third of the rate", {"control/lr_scale": 1 / 3}),
    Change("twice the batch", {"control/prompts": 32}),
    Change("half the clip band", {"control/epsilon_low": 0.1, "control/epsilon_high": 0.1}),
)
STEPS, FORK, AFTER = 500, 300, 60
BLOCK = 34
"""Rows behind a value of the live runs; the last three values are the last 102 rows."""
LIVE = "Live, from the first step"
PLAN = live.Plan(
    NAME, TASK, OVERRIDES, steps=14 * BLOCK, every=BLOCK, symptom=("optim/grad-explosion",),
    readings=(
        live.Reading("optim/grad_norm", "median", f"{LIVE}: the level of the norm"),
        live.Reading("optim/grad_norm", "swing", f"{LIVE}: its swings"),
        live.Reading("reward/mean", "mean", f"{LIVE}: the reward"),
    ),
)  # fmt: skip
WAYS = (
    live.Way("nobody acts"),
    live.Way("auto-safe", "auto-safe"),
    live.Way("auto-full", "auto-full"),
    live.Way("a person, when seen", turns="advantage=group_mean", change="advantage group_std → group_mean"),
    live.Way("the article: beta", turns="beta=0.001", change="beta 0 → 0.001"),
    live.Way("the article: clipping", turns="max_grad_norm=0.25", change="max_grad_norm 1 → 0.25"),
)
"""Ways of dealing with a run; a person acts when the climb is reported, and so does a follower of the article."""
EARLY, LATE = slice(20, 100), slice(-100, None)
"""Rows that are compared: the first ones after the warm-up, and the newest."""
CLIMBED, SWUNG = 2.0, 2.0
"""Factors of the level of the norm, and of its 5th to 95th percentile, from which a person sees them in a plot."""
WHAT = (
    "the level of the gradient norm and its swings (5th to 95th percentile) at least double from rows 20-100 to the"
    " last 100, while the reward is higher than it was"
)
TRL = {
    "max_steps": 1280, "per_device_train_batch_size": 128, "steps_per_generation": 1, "num_iterations": 4,
    "num_generations": 8, "max_completion_length": 8, "temperature": 1.0, "beta": 0.0, "loss_type": "grpo",
    "scale_rewards": "group", "epsilon": 0.2, "learning_rate": 1.5e-4, "max_grad_norm": 1.0, "warmup_steps": 0,
    "adam_beta2": 0.99,
}  # fmt: skip
"""GRPOConfig of the runs in TRL: 320 batches, four updates each, at 1.5 times the rate of the runs above."""
PLAIN = "silent groups kept"
TRL_TWINS = (
    Twin("TRL, beta 0", ()),
    Twin("TRL, spread not divided by", ("scale_rewards=none",)),
    Twin("TRL, silent groups kept", (PLAIN,), seeds=1),
)
TRL_EARLY, TRL_LATE, TRL_CLIMBED = slice(40, 200), slice(-400, None), 1.5
"""Rows that are compared, four to a batch, and the factor that counts: the runs are shorter than those above."""
TRL_WHAT = (
    "the level of the gradient norm is at least 1.5 times as high, and its swings at least twice as wide, in the last"
    " 100 batches as in batches 10 to 50, while the reward is higher than it was"
)
TRL_NOTE = (
    "TRL's GRPOTrainer with `attach`, its own generation, loss, optimizer and log; 320 batches of 16 prompts, four"
    " updates each. A subclass of GRPOTrainer leaves silent groups out; the last arm is GRPOTrainer itself."
    " The factor and the rows were chosen after runs of this kind had been seen."
)
METRICS = ("optim/grad_norm", "policy/clip_frac", "reward/mean")


def measure(seeds: Sequence[int], tell: Tell, *, record: bool = True) -> None:
    """All of it: the recorded run, the twins, and what was tried from a snapshot."""
    if record:
        shared.record(NAME, TASK, OVERRIDES, steps=STEPS, seed=seeds[0], mode="suggest")
    shared.write(NAME, [tried(seeds, tell)], {}, twins(seeds, tell))
    live.keep(PLAN, WAYS, seeds, tell)
    keep_trl(seeds, tell)
    logged.keep(NAME)


def sign(
    metrics: Mapping[str, np.ndarray], *, early: slice = EARLY, late: slice = LATE, climbed: float = CLIMBED
) -> Sign:
    """Whether the norm climbs and swings while the reward rises."""
    norm, clip, reward = (metrics[name] for name in METRICS)
    level, swings = _level(norm, late) / _level(norm, early), live.swing(norm[late]) / live.swing(norm[early])
    numbers = {
        "norm x": level, "swings x": swings, "clipped before": _level(clip, early), "clipped after": _level(clip, late),
        "reward before": float(np.nanmean(reward[early])), "reward after": float(np.nanmean(reward[late])),
    }  # fmt: skip
    rose = numbers["reward after"] > numbers["reward before"]
    return Sign(bool(level >= climbed and swings >= SWUNG and rose), numbers)


def _level(values: np.ndarray, rows: slice) -> float:
    return float(np.nanmedian(values[rows]))


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


def keep_trl(seeds: Sequence[int], tell: Tell) -> None:
    """The runs in TRL, and what `attach` reported while they trained."""
    elsewhere = inside_trl(seeds, tell)
    told = [in_trl.told(in_trl.folder_of(NAME, TRL_TWINS[0].name, seed), "optim/grad-explosion") for seed in seeds]
    words = "Reported by `attach` while TRL trained (optim/grad-explosion)"
    shared.write(NAME, measured={words: in_trl.in_words(told)}, elsewhere=elsewhere)


def inside_trl(seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """The same in TRL's own GRPOTrainer, with one thing changed."""
    signs: dict[str, list[Sign]] = {twin.name: [] for twin in TRL_TWINS}
    for seed in seeds:
        for twin in (twin for twin in TRL_TWINS if seed in seeds[: twin.seeds]):
            settings = TRL | dict(part.split("=") for part in twin.settings if "=" in part)
            _, rows = in_trl.logged(
                NAME, TASK, twin.name, settings, seed=seed, spread_only=PLAIN not in twin.settings, tell=tell
            )
            signs[twin.name].append(trl_sign(rows))
            tell(f"TRL, seed {seed}, {twin.name}: {signs[twin.name][-1]}")
    arms = [(twin, seeds[: twin.seeds], signs[twin.name]) for twin in TRL_TWINS]
    return shared.shown(arms, TRL_WHAT, "In TRL 1.16, with one thing changed", TRL_NOTE)


def trl_sign(rows: Mapping[str, np.ndarray]) -> Sign:
    """The same question to TRL's log, whose rows are optimizer steps."""
    metrics = {
        "optim/grad_norm": rows["grad_norm"], "policy/clip_frac": rows["clip_ratio/region_mean"],
        "reward/mean": rows["reward"],
    }  # fmt: skip
    return sign(metrics, early=TRL_EARLY, late=TRL_LATE, climbed=TRL_CLIMBED)


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
