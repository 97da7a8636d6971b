"""Logs too coarse to see a spike.

What it checks
    More than one step between log rows; more than ten warns.
Why it matters
    TRL logs the gradient norm of the last step of the window, not its mean: with ten steps a row nine spikes of ten
    leave no trace, and what is seen looks calmer than it was.
Exceptions
    Trainers that write a row for every step have nothing to set.
Fix
    1. It costs next to nothing.
References
    transformers, `trainer.py: _maybe_log_save_evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "logging/hides-spikes"


def check(view: View) -> Iterator[Finding]:
    """One finding."""
    every = view.number("logging_every")
    if every is None or every <= 1:
        return
    at = view["logging_every"]
    unset = "" if at.written else ", the default"
    yield found(
        view,
        "warn" if every > 10 else "info",
        at,
        f"one log row in {every:g} steps{unset}",
        why="The gradient norm in it is that of its last step alone, so most spikes leave no trace.",
        how="1",
        change={at.key: 1},
        sure="certain",
        source="transformers trainer.py, _maybe_log_save_evaluate",
    )
