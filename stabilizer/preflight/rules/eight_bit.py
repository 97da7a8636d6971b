"""An optimizer that keeps its state in 8 bits.

What it checks
    8-bit Adam and similar optimizers on all weights.
Why it matters
    At learning rates of 1e-6 an update is as small as the quantisation error of its own second moment. It was in
    use in a reported run whose gradient norm became unstable late; whether it was the cause is not known.
Exceptions
    Adapters, where it is usual.
Fix
    The full-precision optimizer, if it fits.
References
    huggingface/trl#2980.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "optimizer/eight-bit"


def check(view: View) -> Iterator[Finding]:
    """One remark."""
    name = str(view.value("optimizer") or "").lower()
    if not any(word in name for word in ("8bit", "8-bit", "4bit", "adamw_bf16")) or view.value("lora"):
        return
    yield found(
        view,
        "info",
        view["optimizer"],
        f"the optimizer keeps its state in low precision ({name})",
        why="At RL's small learning rates its rounding is of the size of the updates.",
        how="adamw_torch, if it fits in memory",
        sure="folklore",
        source="huggingface/trl#2980",
    )
