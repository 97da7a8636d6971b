"""Validation or checkpoints too rare to act on.

What it checks
    No validation, fewer than five in the run, or more than 100 steps between two; no checkpoint before the last one.
Why it matters
    Reward on training prompts keeps rising while held-out accuracy has peaked; without validation the peak is found
    after the run, and without a checkpoint near it there is nothing to go back to.
Exceptions
    Left at the trainer's own default it is only mentioned. Intervals in epochs can't be judged without the data's size.
Fix
    Every 5 to 10 steps where a step is a batch of rollouts, every 50 where it is an optimizer update, and a checkpoint
    as often, the best and the last few kept.
References
    PeterGriffinJin/Search-R1#97 and hiyouga/EasyR1#24, where the peak could not be seen; open-r1's save_strategy.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "watching/sparse"
FEWEST = 5
"""Validations in a run below which its peak can't be placed."""
WIDEST = 100


def check(view: View) -> Iterator[Finding]:
    """One finding for validation, one for checkpoints."""
    for name, what in (("validate_every", "validation"), ("save_every", "checkpoint")):
        interval, steps = view.number(name), view.number("steps")
        at = view[name]
        if interval is None:
            continue
        share = 1 if view.config.trainer.validity in ("trl", "open-r1") else 10
        wide = WIDEST * (10 // share if share == 1 else 1)
        fewest = FEWEST if name == "validate_every" else 2
        few = steps is not None and interval > 1 and steps / interval < fewest  # every step is as often as can be
        if interval == 0:
            said = f"no {what} at all{'' if at.written else ', the default'}"
            severity = "warn" if at.written and not _recipe_like(view, name) else "info"
        elif few or interval > wide:
            said = f"a {what} every {interval:g} steps" + (f" of {steps:,.0f}" if steps else "")
            severity = "warn" if few and at.written else "info"
        elif name == "validate_every" and interval >= 50 and share == 10:
            said, severity = f"a validation every {interval:g} batches of rollouts", "info"
        else:
            continue
        wanted = 50 if share == 1 else 10
        if steps:
            wanted = max(1, min(wanted, int(steps // 10) or 1))
        fixes = {at.key: wanted} if severity == "warn" and not at.key.endswith("strategy") else {}
        yield found(
            view, ID, severity, at, said,
            why="Held-out accuracy peaks before the training reward does; unseen, or without a checkpoint near it,"
            " there is nothing to go back to.",
            how=f"every {wanted} steps" + (", for instance" if not fixes else ""), change=fixes,
            sure="likely", source="PeterGriffinJin/Search-R1#97, hiyouga/EasyR1#24",
        )  # fmt: skip


def _recipe_like(view: View, name: str) -> bool:
    """veRL's own scripts switch checkpoints off for short demonstrations."""
    return name == "save_every" and view.config.trainer.name == "verl"
