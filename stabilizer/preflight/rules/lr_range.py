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

from stabilizer.preflight.rules.base import Finding, found, size_of
from stabilizer.trainers.quantities import View

ID = "lr/range"
BIG = 7.0


def check(view: View) -> Iterator[Finding]:
    """One finding, above or below."""
    lr = view.number("lr")
    if lr is None:
        return
    size = size_of(view)
    lora = bool(view.value("lora"))
    what = f"{'an adapter' if lora else 'all weights'}{f' of a {size:g}B model' if size else ''}"
    high = 5e-4 if lora else 1e-5 if size and size >= BIG else 2e-5
    common = {"sure": "likely", "source": "huggingface/open-r1#403; defaults of TRL, veRL, OpenRLHF and SkyRL (1e-6)"}
    if lr > high:
        wanted = 5e-5 if lora else 1e-6 if size and size >= BIG else 2e-6
        yield found(
            view, ID, "warn", view["lr"], f"learning rate {lr:g} for {what}; usual is {wanted:g}",
            why="Adam moves every weight by about the learning rate, and the gradient of a policy is noisy; collapses"
            " that were reported cluster here.",
            how=f"{wanted:g}", change={view["lr"].key: wanted}, **common,
        )  # fmt: skip
    elif lr <= 0 or (lr < 1e-7 and not lora):
        yield found(
            view, ID, "warn", view["lr"], f"learning rate {lr:g}: the run will hardly move",
            why="At this rate hundreds of steps change the policy less than its noise.",
            how="1e-6", change={view["lr"].key: 1e-6}, **common,
        )  # fmt: skip
    elif lr > 5e-6 and not lora:
        yield found(
            view, ID, "info", view["lr"], f"learning rate {lr:g} for {what} is on the high side; usual is 1e-6",
            why="It works with a KL term, warm-up and a good batch, and is the first thing to lower when it does not.",
            how="divide by 5 to 20 if it collapses", **common,
        )  # fmt: skip
