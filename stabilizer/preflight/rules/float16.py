"""Training in float16.

What it checks
    float16 for the policy.
Why it matters
    Its largest number is 65,504: logits and gradients overflow, the loss scaler skips those updates silently, and a
    run can stop learning while it looks alive. bfloat16 has float32's range with less precision.
Exceptions
    Some work uses float16 in engine and trainer on purpose, to bring their log-probabilities closer together.
Fix
    bfloat16, where the GPU has it.
References
    volcengine/verl#1197 (every update skipped); arXiv:2510.26788 for the case in favour of float16.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "precision/float16"


def check(view: View) -> Iterator[Finding]:
    """One finding."""
    if not view.value("fp16"):
        return
    at = view["fp16"]
    change = {"fp16": False, "bf16": True} if at.key == "fp16" else {at.key: "bfloat16"}
    yield found(
        view,
        "warn",
        at,
        "the policy trains in float16",
        why="Overflowing updates are skipped silently; with enough of them the run stops learning but looks alive.",
        how="bfloat16",
        change=change,
        sure="likely",
        source="volcengine/verl#1197; arXiv:2510.26788 argues otherwise",
    )
