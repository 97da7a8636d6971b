"""Gradient clipping that is off, or set but not applied.

What it checks
    A maximal norm of 0 or none; and the norm given to TRL's experimental PPO, whose own loop never clips.
Why it matters
    One bad batch moves the weights as far as its gradient points. With Adam the step is bounded, but its second moment
    is too large for hundreds of steps.
Exceptions
    None usual.
Fix
    1.0; recipes of Dr. GRPO take 0.1 to 0.2.
References
    TRL, `experimental/ppo/ppo_trainer.py` (the setting is accepted and not used); huggingface/trl#3312 for the norm
    that is logged above the limit, which is the norm before clipping and not a fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "clip/grad-norm"


def check(view: View) -> Iterator[Finding]:
    """One finding."""
    at = view["max_grad_norm"]
    if at.value == "ignored":
        if at.written:
            yield found(
                view,
                "warn",
                at,
                "TRL's experimental PPO takes max_grad_norm and does not clip",
                why="Its own loop steps the optimizer without clipping, and logs no gradient norm.",
                how="a lower learning rate; or GRPO or another trainer, which clip",
                sure="certain",
                source="trl/experimental/ppo/ppo_trainer.py",
            )
        return
    limit = view.number("max_grad_norm")
    off = limit is not None and limit <= 0 or (at.written and at.value is None and at.key in view.config.plain())
    if off:
        yield found(
            view,
            "warn",
            at,
            "gradients are not clipped",
            why="One bad batch moves the weights as far as its gradient says, and stays in Adam's memory.",
            how="1.0",
            change={at.key: 1.0},
            sure="likely",
            source="default of all trainers known here (1.0)",
        )
