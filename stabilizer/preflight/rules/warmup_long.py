"""A warm-up that takes up much of the run.

What it checks
    Warm-up of more than half of the run warns; of a fifth, or of 200 steps and more, is mentioned with the steps.
Why it matters
    Until it ends the learning rate is below what was set: at step 120 of a 286-step warm-up it is 42 % of it. A reward
    without a trend is then to be expected, and halving or doubling anything because of it is an answer to no question.
Exceptions
    Search-R1's own recipe warms up over 28.5 % of 1,005 steps; that is mentioned, not warned of.
Fix
    5 to 10 % of the run; or patience.
References
    PeterGriffinJin/Search-R1#97, `train_ppo.sh`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found, number
from stabilizer.trainers.quantities import View

ID = "lr/warmup-long"
SHARE, HALF = 0.2, 0.5
"""Shares of the run from which a warm-up is mentioned, and above which the rule warns."""
STEPS = 200
"""Steps from which a warm-up is mentioned."""


def check(view: View) -> Iterator[Finding]:
    """One finding, with the steps where they are known."""
    frac, steps = number(view, "warmup_frac"), number(view, "warmup_steps")
    if not (frac >= SHARE or steps >= STEPS):
        return
    at = view["warmup_frac"] if frac > 0 else view["warmup_steps"]
    long = frac > HALF
    yield found(
        view,
        "warn" if long else "info",
        at,
        f"the learning rate rises over {_length(view, frac, steps)}{_at_120(view, steps)}",
        why="Before the warm-up ends a reward without a trend says nothing about the configuration.",
        how="5 to 10 % of the run" if long else "wait for its end before judging, or take 5 to 10 % of the run",
        change=_shorter(view, at.key) if long else {},
        sure="certain",
        source="arithmetic; PeterGriffinJin/Search-R1#97",
    )


def _length(view: View, frac: float, steps: float) -> str:
    share = f"{frac:.1%} of the run" if frac > 0 else ""
    counted = f"about {steps:,.0f} steps" if steps > 0 else ""
    total = view.number("steps")
    return ", ".join(filter(None, (counted, share))) + (f" of {total:,.0f}" if total and not share else "")


def _at_120(view: View, steps: float) -> str:
    """How far the rate has come at the step at which people begin to judge."""
    lr = view.number("lr")
    return f"; at step 120 it is {120 / steps:.0%} of {lr:g}" if steps > 120 and lr else ""


def _shorter(view: View, key: str) -> dict[str, float]:
    """A twentieth of the run, in the unit that the key has now."""
    is_share = 0 < (view.ask.num(key) or 0) <= 1
    return {key: 0.05 if is_share else int((view.number("steps") or 1000) * 0.05)}
