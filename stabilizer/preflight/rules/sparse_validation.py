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

from stabilizer.preflight.rules.base import Finding, Severity, found, number
from stabilizer.trainers.quantities import View

ID = "watching/sparse"
INTERVALS = {
    "validate_every": ("validation", 5, "Held-out accuracy peaks before the training reward does, and nobody sees it."),
    "save_every": (
        "checkpoint",
        2,
        "Without a checkpoint near the best held-out accuracy there is nothing to go back to.",
    ),
}
"""Quantity -> what happens so often, the fewest in a run, and why: less than five validations can't place a peak."""
WIDEST = 100
"""Batches of rollouts between two validations or checkpoints beyond which they are rare."""
UPDATES_PER_ROLLOUT = 10
"""How many times the interval may be where a step is an optimizer update."""
RATHER_WIDE = 50


def check(view: View) -> Iterator[Finding]:
    """One finding for validation, one for checkpoints."""
    by_update = view.config.trainer.name in ("trl", "open-r1")
    wanted = _wanted(view, by_update)
    for name, (what, fewest, why) in INTERVALS.items():
        at = view[name]
        severity, said = _sparse(view, name, what, fewest, by_update)
        if severity is None:
            continue
        change = {at.key: wanted} if severity == "warn" and not at.key.endswith("strategy") else {}
        yield found(
            view,
            severity,
            at,
            said,
            why=why,
            how=f"every {wanted} steps" + ("" if change else ", for instance"),
            change=change,
            sure="likely",
            source="PeterGriffinJin/Search-R1#97, hiyouga/EasyR1#24",
        )


def _sparse(view: View, name: str, what: str, fewest: int, by_update: bool) -> tuple[Severity | None, str]:
    """How bad the interval of a validation or checkpoint is, in words; None where it is fine or not known."""
    interval, steps, written = number(view, name), number(view, "steps"), view[name].written
    if interval == 0:
        unset = "" if written else ", the default"
        return "warn" if written and not _demonstration(view, name) else "info", f"no {what} at all{unset}"
    few = interval > 1 and steps / interval < fewest  # every step is as often as can be
    if few or interval > WIDEST * (UPDATES_PER_ROLLOUT if by_update else 1):
        of = f" of {steps:,.0f}" if steps > 0 else ""
        return "warn" if few and written else "info", f"a {what} every {interval:g} steps{of}"
    if name == "validate_every" and interval >= RATHER_WIDE and not by_update:
        return "info", f"a validation every {interval:g} batches of rollouts"
    return None, ""


def _wanted(view: View, by_update: bool) -> int:
    """An interval that leaves ten of them in the run."""
    usual, steps = 50 if by_update else 10, view.number("steps")
    return max(1, min(usual, int(steps // 10))) if steps else usual


def _demonstration(view: View, name: str) -> bool:
    """veRL's own scripts switch checkpoints off for short demonstrations."""
    return name == "save_every" and view.config.trainer.name == "verl"
