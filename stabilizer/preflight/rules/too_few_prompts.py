"""Too few prompts behind one update.

What it checks
    Prompts per optimizer update, whatever the trainer calls the batch: below 8; or below 16 when the rollouts are used
    for several updates and the trainer's own recipe takes at least four times as many.
Why it matters
    A group in which all answers are right or all are wrong teaches nothing, and often that is half of them. Eight
    prompts then leave three or four groups to steer by; the gradient is mostly noise, and what one update gains the
    next loses. It shows as a reward that stops rising after some dozens of steps.
Exceptions
    On-policy recipes with 8 prompts of 16 answers exist and work on easy tasks. A data set of a few prompts can't give
    more.
Fix
    Grow the batch that one update sees, to 32, keeping divisibility. Then larger groups, then filtering of groups that
    carry no signal; the learning rate last, and one thing at a time.
References
    hiyouga/EasyR1#24 (8 prompts per update against 128 in the recipe: flat after 30 steps); huggingface/trl#2884;
    DAPO (arXiv:2503.14476) on groups without signal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found, grown, number
from stabilizer.trainers.quantities import View

ID = "batch/too-few-prompts"
FEW, SOME = 8, 16
TARGET = 32
"""Prompts per update that are proposed."""


def check(view: View) -> Iterator[Finding]:
    """One finding, when the updates are small."""
    prompts, recipe = number(view, "prompts_update"), view.recipe.get("prompts_update", math.inf)
    if not prompts < min(SOME, recipe) or not view.value("groups"):
        return
    short = prompts < FEW or (_reused(view) and prompts * 4 <= recipe < math.inf)
    change = grown(view, "prompts_update", TARGET)
    enough = -(-TARGET // prompts) * prompts
    makes = f" (the change makes it {enough:g}, the first multiple of {prompts:g} that is enough)" if change else ""
    yield found(
        view,
        "warn" if short else "info",
        view["prompts_update"],
        _summary(view, prompts, recipe),
        why="Groups that are all right or all wrong carry no signal, so few prompts leave mostly noise.",
        how=f"at least {TARGET} prompts per update{makes}; then larger groups, then filtering; the learning rate last,"
        " one thing at a time",
        change=change,
        sure="likely",
        source="hiyouga/EasyR1#24, huggingface/trl#2884, arXiv:2503.14476",
    )


def _reused(view: View) -> bool:
    """Whether one batch of rollouts serves several updates."""
    return number(view, "updates") > 1


def _summary(view: View, prompts: float, recipe: float) -> str:
    how = view["prompts_update"].how
    text = f"{prompts:g} prompt{'' if prompts == 1 else 's'} behind each update{f' ({how})' if how else ''}"
    if recipe < math.inf:
        text += f", against {recipe:g} in {view.config.trainer.recipe_name}"
    if _reused(view):
        text += f", {view.number('updates'):g} updates from every {view.number('prompts_rollout'):g} prompts"
    return text
