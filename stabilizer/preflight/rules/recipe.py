"""Where a configuration departs from the trainer's own recipe.

What it checks
    Learning rate, batches and warm-up against the script or file the trainer ships.
Why it matters
    When a run does not match the paper's, go through this list first, one difference at a time.
Exceptions
    A departure is not a fault. Only trainers whose results depend on one script are compared.
Fix
    None; it is a list.
References
    The trainer's own repository.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "recipe/differs"
WORDS = {
    "lr": "learning rate",
    "prompts_update": "prompts per update",
    "prompts_rollout": "prompts per rollout batch",
    "updates": "updates per rollout batch",
    "warmup_frac": "warm-up",
}


def check(view: View) -> Iterator[Finding]:
    """One list."""
    if not view.config.trainer.script:
        return
    apart = [
        (name, view.number(name), usual)
        for name, usual in view.recipe.items()
        if view.number(name) is not None and abs((view.number(name) or 0) - usual) > 1e-9 + 0.05 * abs(usual)
    ]
    if not apart:
        return
    said = "; ".join(f"{WORDS[name]} {now:g}, there {usual:g}" for name, now, usual in apart)
    yield found(
        view,
        "info",
        view[apart[0][0]],
        f"departs from {view.config.trainer.recipe_name}: {said}",
        why="When results differ from the published ones, this is the list to go through, one at a time.",
        sure="certain",
        source=f"{view.config.trainer.title}, {view.config.trainer.recipe_name}",
    )
