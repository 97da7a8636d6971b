"""Many updates from one batch of rollouts.

What it checks
    How often the same answers are learned from (four times and more), and how many updates one batch of rollouts is
    cut into (more than eight).
Why it matters
    After the first update the answers are another policy's. The ratio between the two grows with every further one;
    clipping then decides what is learned, and gradient norm and clip fraction climb late in the run.
Exceptions
    PPO with a critic usually takes four epochs. A published recipe with more is left alone. DAPO's sixteen
    mini-batches come with a wider upper clip range; with one they are only mentioned.
Fix
    Fewer passes, or fewer and larger mini batches.
References
    huggingface/trl#2980 (four iterations, no KL: gradient norm unstable after 10k steps); PPO (arXiv:1707.06347);
    DAPO (arXiv:2503.14476): 512 prompts in mini batches of 32, clipped at 0.2 and 0.28.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, Severity, found, number
from stabilizer.trainers.quantities import Quantity, View

ID = "updates/off-policy"
PASSES = 4
UPDATES = 8
DAPO = 16


def check(view: View) -> Iterator[Finding]:
    """One finding, at the passes or at the mini batch."""
    inner, updates = number(view, "inner"), number(view, "updates")
    critic = view.value("algorithm") == "ppo"
    if inner > PASSES or (inner == PASSES and not critic):
        at = view["inner"]
        yield _reused(
            view,
            "warn",
            at,
            f"every answer is learned from {inner:g} times",
            how="1 or 2 passes; if more, with a KL term and an eye on the clip fraction",
            change={at.key: 2},
        )
    elif updates > max(UPDATES, view.recipe.get("updates", 0)):
        at = view["updates"]
        wide = (view.number("clip_high") or 0) > (view.number("clip_low") or 0)
        yield _reused(
            view,
            "info" if wide and updates <= DAPO else "warn",
            at,
            f"{updates:g} updates from one batch of rollouts{f' ({at.how})' if at.how else ''}",
            how="larger mini batches, so that at most 4 to 8 updates share a batch of rollouts",
            change={},
        )


def _reused(view: View, severity: Severity, at: Quantity, said: str, *, how: str, change: dict[str, int]) -> Finding:
    return found(
        view,
        severity,
        at,
        f"{said}, so most updates learn from another policy's answers",
        why="The ratio to the policy that wrote the answers drifts with every update; clipping decides what is left.",
        how=how,
        change=change,
        sure="likely",
        source="huggingface/trl#2980, arXiv:1707.06347",
    )
