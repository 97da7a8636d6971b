"""No warm-up at a learning rate where it is missed.

What it checks
    Warm-up of 0 with a learning rate of 5e-6 and more on all weights.
Why it matters
    Adam's first estimates of the gradient's size rest on a few batches; full steps by them can throw the policy far in
    the first ten updates.
Exceptions
    At 1e-6 nearly everyone trains without one, and it works.
Fix
    Some 5 % of the run, or 10 to 20 steps.
References
    Ma & Yarats (arXiv:1910.04209) on warm-up in Adam; little is measured for RL of language models.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "lr/no-warmup"


def check(view: View) -> Iterator[Finding]:
    """One remark."""
    lr, frac, steps = (view.number(name) for name in ("lr", "warmup_frac", "warmup_steps"))
    if lr is None or lr < 5e-6 or view.value("lora") or frac is None or frac > 0 or (steps or 0) > 0:
        return
    yield found(
        view,
        "info",
        view["warmup_frac"],
        f"no warm-up at a learning rate of {lr:g}",
        why="Adam's first steps rest on poor estimates of the gradient's size.",
        how="10 to 20 steps, or 5 % of the run",
        sure="folklore",
        source="arXiv:1910.04209",
    )
