"""Log-probabilities computed in other micro-batches than those of the update.

What it checks
    In the veRL family, the micro batch for old log-probabilities against the actor's.
Why it matters
    Sums in bfloat16 depend on the shapes of the operands, so the ratio is not exactly 1 on the first update that
    should be on-policy. The difference is small and looks like mismatch in the log.
Exceptions
    Official scripts differ in them too; with dynamic batch sizes the keys are not read.
Fix
    The same number in both, if the first ratio must be exactly 1.
References
    volcengine/verl#2996, volcengine/verl#6280.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View
from stabilizer.trainers.verl.config import ACTOR, ROLLOUT

ID = "precision/log-prob-batch"


def check(view: View) -> Iterator[Finding]:
    """One remark."""
    if view.config.trainer.name not in ("verl", "search-r1") or view.ask.flag(f"{ACTOR}use_dynamic_bsz"):
        return
    for ending in ("", "_per_gpu"):
        key = f"{ROLLOUT}log_prob_micro_batch_size{ending}"
        ours, theirs = view.config.value(key), view.config.value(f"{ACTOR}ppo_micro_batch_size{ending}")
        if isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
            yield found(
                view,
                "info",
                key,
                f"old log-probabilities in micro batches of {ours}, updates in {theirs}",
                why="Sums in bfloat16 depend on their shapes, so the first ratio is close to 1 and not 1.",
                how=f"{theirs} for both, if the ratio at the first update matters",
                sure="certain",
                source="volcengine/verl#2996, #6280",
            )
