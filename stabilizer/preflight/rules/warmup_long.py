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

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "lr/warmup-long"


def check(view: View) -> Iterator[Finding]:
    """One finding, with the steps where they are known."""
    frac, steps, total = (view.number(name) for name in ("warmup_frac", "warmup_steps", "steps"))
    if not (frac and frac >= 0.2) and not (steps and steps >= 200):
        return
    lr = view.number("lr")
    long = frac is not None and frac > 0.5
    share = f"{frac:.1%} of the run" if frac else ""
    counted = f"about {steps:,.0f} steps" if steps else ""
    said = f"{counted}, {share}" if share and counted else counted or share
    of = f" of {total:,.0f}" if total and not share else ""
    at_120 = f"; at step 120 it is {min(1.0, 120 / steps):.0%} of {lr:g}" if steps and steps > 120 and lr else ""
    key = view["warmup_frac"] if frac else view["warmup_steps"]
    change = {
        key.key: 0.05 if view.ask.num(key.key) and (view.ask.num(key.key) or 0) <= 1 else int((total or 1000) * 0.05)
    }
    yield found(
        view, ID, "warn" if long else "info", key, f"the learning rate rises over {said}{of}{at_120}",
        why="Before the warm-up ends a reward without a trend says nothing about the configuration.",
        how="5 to 10 % of the run" if long else "wait for its end before judging, or take 5 to 10 % of the run",
        change=change if long else {}, sure="certain", source="arithmetic; PeterGriffinJin/Search-R1#97",
    )  # fmt: skip
