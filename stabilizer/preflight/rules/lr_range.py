"""A learning rate outside what is usual for the size of the model and what is trained of it.

What it checks
    All weights: above 2e-5, or above 1e-5 from 7B on, warns; above 5e-6 is mentioned; below 1e-7 warns. Adapters:
    above 5e-4 warns, below 1e-6 is mentioned.
Why it matters
    Policy gradients are noisy and Adam moves every weight by about the learning rate whatever the gradient's size.
    Reported collapses cluster at 1e-5 and above on whole models; 1e-6 is the default of nearly every trainer.
Exceptions
    Models of some millions of parameters need far more; this rule is silent about the built-in one. Small adapters
    take ten to a hundred times more than whole models.
Fix
    Divide by 5 to 20 from above; raise by at most 2 at a time from below.
References
    huggingface/open-r1#403 (2e-5, collapse; lower the learning rate); defaults of TRL, veRL, OpenRLHF and SkyRL.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found, number, size_of
from stabilizer.trainers.quantities import Quantity, View

ID = "lr/range"
BIG = 7.0
"""Billions of parameters from which a model counts as large."""
ADAPTER, LARGE, SMALL = (5e-4, 5e-5), (1e-5, 1e-6), (2e-5, 2e-6)
"""(highest rate without a warning, usual rate) of adapters, and of all weights of a large or another model."""
RATHER_HIGH, LOW = 5e-6, 1e-7
ADAPTER_LOW = 1e-6
"""Rate of adapters below which they hardly move; 1e-5 to 1e-4 is usual for them."""
SOURCE = "huggingface/open-r1#403; defaults of TRL, veRL, OpenRLHF and SkyRL (1e-6)"


def check(view: View) -> Iterator[Finding]:
    """One finding, above or below."""
    lr, at = number(view, "lr"), view["lr"]
    size, lora = size_of(view), bool(view.value("lora"))
    what = _what(size, lora)
    high, usual = ADAPTER if lora else LARGE if size and size >= BIG else SMALL
    if lr > high:
        yield found(
            view,
            "warn",
            at,
            f"learning rate {lr:g} for {what}; usual is {usual:g}",
            why="Adam moves every weight by about the learning rate, and the gradient of a policy is noisy; collapses"
            " that were reported cluster here.",
            how=f"{usual:g}",
            change={at.key: usual},
            sure="likely",
            source=SOURCE,
        )
    elif lr < LOW or (lora and lr < ADAPTER_LOW):
        yield _low(view, lr, at, lora)
    elif lr > RATHER_HIGH and not lora:
        yield found(
            view,
            "info",
            at,
            f"learning rate {lr:g} for {what} is on the high side; usual is 1e-6",
            why="It works with a KL term, warm-up and a good batch, and is the first thing to lower when it does not.",
            how="divide by 5 to 20 if it collapses",
            sure="likely",
            source=SOURCE,
        )


def _low(view: View, lr: float, at: Quantity, lora: bool) -> Finding:
    if lora and lr > 0:
        return found(
            view,
            "info",
            at,
            f"learning rate {lr:g} for an adapter, a rate for all weights; LoRA takes ten to a hundred times more",
            why="An adapter begins without effect and has few weights, so at this rate the reward hardly moves.",
            how=f"1e-5, up to {ADAPTER[1]:g} if it stays calm",
            change={at.key: 1e-5},
            sure="likely",
            source="huggingface/trl#2872; TRL documentation, LoRA without regret",
        )
    return found(
        view,
        "warn",
        at,
        f"learning rate {lr:g}: the run will hardly move",
        why="At this rate hundreds of steps change the policy less than its noise.",
        how="1e-6",
        change={at.key: 1e-6},
        sure="likely",
        source=SOURCE,
    )


def _what(size: float | None, lora: bool) -> str:
    return f"{'an adapter' if lora else 'all weights'}{f' of a model of {size:g}B' if size else ''}"
