"""A batch cut below the recipe it comes from, at the recipe's learning rate.

What it checks
    For trainers whose results were published with one script: prompts per update at most half of that script's, with a
    learning rate no lower. Memory is the usual reason.
Why it matters
    Half the batch is twice the variance of the gradient. Of the batch keys only the micro batches, the batches for
    log-probabilities and the token limits per GPU are knobs of memory: they split the work and change nothing in the
    sum. The mini batch is the batch of the optimizer, and the train batch is how many prompts are asked before it
    steps. That "only micro batches decide the optimisation" is often said and is the wrong way round.
Exceptions
    A learning rate lowered with the batch. With groups of answers 32 prompts are enough to be no more than mentioned.
    Batches of 16 prompts and fewer are the business of batch/too-few-prompts.
Fix
    The recipe's batches back, and a smaller micro batch where memory is short.
References
    PeterGriffinJin/Search-R1#97; `verl/workers/fsdp_workers.py`, where mini batches are split into micro batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found, number
from stabilizer.preflight.rules.too_few_prompts import SOME, TARGET
from stabilizer.trainers.quantities import View

ID = "batch/smaller-than-recipe"


def check(view: View) -> Iterator[Finding]:
    """One finding, at the mini batch."""
    trainer, recipe = view.config.trainer, view.recipe
    prompts, usual = number(view, "prompts_update"), recipe.get("prompts_update") or math.nan
    lr, groups = number(view, "lr"), view.value("groups")
    if not trainer.script or not prompts * 2 <= usual or not lr >= recipe.get("lr", math.nan):
        return
    if groups and prompts < SOME:
        return
    change = _as_recipe(view)
    memory = ", ".join(_memory_keys(view)) or ", ".join(trainer.memory[:2])
    yield found(
        view,
        "info" if groups and prompts >= TARGET else "warn",
        view["prompts_update"],
        f"{prompts:g} prompts per update, and {usual:g} in {trainer.recipe_name}, at the same learning rate {lr:g}",
        why=f"The gradient is {usual / prompts:g} times as noisy in variance. {', '.join(change)} change the"
        f" optimisation; memory is saved by {memory}, which change nothing else.",
        how="the recipe's batches, with smaller micro batches if memory is short; or a lower learning rate",
        change=change,
        sure="likely",
        source="PeterGriffinJin/Search-R1#97; verl/workers/fsdp_workers.py",
    )


def _as_recipe(view: View) -> dict[str, int]:
    """The batches that are smaller than the recipe's, at its size."""
    change = {}
    for name in ("prompts_update", "prompts_rollout"):
        quantity, wanted, now = view[name], view.recipe.get(name, 0), view.number(name)
        key = quantity.scale[0] if quantity.scale else quantity.key
        old = view.ask.num(key)
        if old and now and now < wanted:
            change[key] = int(round(old * wanted / now))
    return change


def _memory_keys(view: View) -> list[str]:
    """The keys that are set, by their last two parts, that split the work without changing the optimisation."""
    settings, memory = view.config.settings.items(), view.config.trainer.memory
    keys = sorted(key for key, setting in settings if key.rpartition(".")[2] in memory and type(setting.value) is int)
    return [".".join(key.split(".")[-2:]) for key in keys]
