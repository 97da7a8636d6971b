"""Rollouts that are no whole number of updates.

What it checks
    Prompts of a batch of rollouts against prompts behind one update, where the trainer does not refuse a remainder.
Why it matters
    What is left over becomes a smaller update with a noisier gradient, or is dropped, though it was generated and
    scored. Some releases wait for ever when ranks get unequal shares.
Exceptions
    A trainer that pads or carries rollouts over loses nothing.
Fix
    A batch of rollouts that is a multiple of the batch of an update.
References
    alibaba/ROLL#135.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.preflight.rules.rejected import asked
from stabilizer.trainers.constraints import nearest
from stabilizer.trainers.quantities import View

ID = "batch/remainder"


def check(view: View) -> Iterator[Finding]:
    """One finding, unless the trainer refuses the sizes itself."""
    rollouts, update = view.number("prompts_rollout"), view.number("prompts_update")
    if not rollouts or not update or rollouts <= update or not rollouts % update or update % 1:
        return
    at = view["prompts_rollout"]
    if any(refused.key in (at.key, view["prompts_update"].key) for refused in asked(view, view.config.plain())):
        return
    lower = int(rollouts // update * update)
    whole = nearest(int(rollouts), [lower, lower + int(update)])
    yield found(
        view,
        "warn",
        at,
        f"{rollouts:g} prompts a batch of rollouts are no multiple of the {update:g} behind an update, which leaves"
        f" {rollouts % update:g} over",
        why="The rest becomes a smaller, noisier update or is dropped; unequal shares of ranks can make a run hang.",
        how=f"{at.key} {whole}",
        sure="likely",
        source="alibaba/ROLL#135",
    )
