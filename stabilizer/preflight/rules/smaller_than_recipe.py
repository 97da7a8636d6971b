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

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.preflight.rules.too_few_prompts import SOME, TARGET
from stabilizer.trainers.quantities import View

ID = "batch/smaller-than-recipe"


def check(view: View) -> Iterator[Finding]:
    """One finding, at the mini batch."""
    trainer, recipe = view.config.trainer, view.recipe
    prompts, usual = view.number("prompts_update"), recipe.get("prompts_update")
    if prompts is None or not usual or prompts * 2 > usual or (prompts < SOME and view.value("groups")):
        return
    lr, usual_lr = view.number("lr"), recipe.get("lr")
    if not trainer.script or lr is None or usual_lr is None or lr < usual_lr:
        return
    enough = bool(view.value("groups")) and prompts >= TARGET
    factor = usual / prompts
    change = {}
    for name in ("prompts_update", "prompts_rollout"):
        quantity, wanted = view[name], recipe.get(name)
        key = quantity.scale[0] if quantity.scale else quantity.key
        old, now = view.ask.num(key), view.number(name)
        if old and now and wanted and now < wanted:
            change[key] = int(round(old * wanted / now))
    micro = sorted(
        key for key, s in view.config.settings.items()
        if key.rpartition(".")[2] in trainer.memory and isinstance(s.value, int) and not isinstance(s.value, bool)
    )  # fmt: skip
    optim, memory = ", ".join(change), ", ".join(map(_short, micro)) or ", ".join(trainer.memory[:2])
    yield found(
        view, ID, "info" if enough else "warn", view["prompts_update"],
        f"{prompts:g} prompts per update, and {usual:g} in {trainer.recipe_name}, at the same learning rate {lr:g}",
        why=f"The gradient is {factor:g} times as noisy in variance. {optim} change the optimisation;"
        f" memory is saved by {memory}, which change nothing else.",
        how="the recipe's batches, with smaller micro batches if memory is short; or a lower learning rate",
        change=change, sure="likely", source="PeterGriffinJin/Search-R1#97; verl/workers/fsdp_workers.py",
    )  # fmt: skip


def _short(key: str) -> str:
    return ".".join(key.split(".")[-2:])
