"""Answers generated without an inference engine.

What it checks
    TRL without vLLM.
Why it matters
    It is several times slower, because generation is most of a step, and has no other effect. The engine is often
    blamed when a run does not match a published curve, but it samples from the same policy and can't change the range
    of a reward or where its curve peaks. GPUs, prompts per update, reward function and smoothing can.
Exceptions
    Other trainers always use an engine.
Fix
    `use_vllm`, for speed.
References
    huggingface/trl#3406 (rewards of 0 to 1 in the plot, 0 and below from the code).
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "generation/no-engine"


def check(view: View) -> Iterator[Finding]:
    """One remark."""
    if view.config.trainer.name not in ("trl", "open-r1") or view.value("algorithm") == "ppo":
        return
    if view.ask.raw("use_vllm") is None or view.ask.flag("use_vllm"):
        return
    yield found(
        view,
        "info",
        "use_vllm",
        "answers are generated without vLLM",
        why="Generation is most of a step, so this is slow; but it does not explain a reward of another range or a"
        " curve of another shape than published. Processes, prompts per update and the reward function do.",
        how="use_vllm: true, for speed alone",
        sure="certain",
        source="huggingface/trl#3406",
    )
