"""A small learning rate with a small batch, where raising the rate is often advised.

What it checks
    A learning rate of 1e-6 or less while fewer than 16 prompts are behind an update and the trainer's recipe has more.
Why it matters
    "Raise it to 5e-6 or 1e-5" is common advice for flat runs. With a batch this small it raises the noise by the same
    factor, so the batch comes first.
Exceptions
    With a full batch 1e-6 is the usual default, and the rule is silent.
Fix
    None by itself. After the batch has grown and if the reward is still flat: 5e-6 with a warm-up, while
    watching the KL.
References
    hiyouga/EasyR1#24; against it huggingface/open-r1#403, where lowering it was the cure.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.preflight.rules.too_few_prompts import SOME
from stabilizer.trainers.quantities import View

ID = "lr/conservative"


def check(view: View) -> Iterator[Finding]:
    """One remark."""
    lr, prompts, usual = view.number("lr"), view.number("prompts_update"), view.recipe.get("prompts_update")
    if lr is None or prompts is None or not usual or not 0 < lr <= 1e-6 or prompts >= min(SOME, usual):
        return
    yield found(
        view,
        "info",
        view["lr"],
        f"learning rate {lr:g} is conservative; leave it until the batch has grown",
        why="Raising it five- to tenfold with so few prompts per update raises the noise as much as the signal.",
        how="last of all and as an experiment: 5e-6 to 1e-5 with a warm-up, after batch, group size and filtering",
        sure="folklore",
        source="hiyouga/EasyR1#24; against it huggingface/open-r1#403",
    )
