"""The last layer at the vocabulary of a real model: time, peak memory and error of three ways to compute it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROWS, HIDDEN, VOCABULARY = 8_192, 896, 151_936
"""Tokens of one pass, and the last layer of Qwen2.5-0.5B."""
CHECKED = 256
"""Tokens compared with float64."""


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """One row for each way."""
    import torch

    from stabilizer.training.head import stats_of_logits, token_stats

    rows, vocabulary = (1_024, 32_000) if quick else (ROWS, VOCABULARY)
    generator = torch.Generator("cuda").manual_seed(0)
    hidden = torch.randn(rows, HIDDEN, device="cuda", generator=generator).bfloat16()
    weight = (torch.randn(vocabulary, HIDDEN, device="cuda", generator=generator) * 0.02).bfloat16()
    target = torch.randint(vocabulary, (rows,), device="cuda", generator=generator)
    exact = stats_of_logits(hidden[:CHECKED].double() @ weight.double().T, target[:CHECKED], 1.0)[0]

    def fused(hidden: Any, weight: Any) -> Any:
        return token_stats(hidden, weight, None, target, 1.0)[0]

    def whole(hidden: Any, weight: Any) -> Any:
        return stats_of_logits(hidden @ weight.T, target, 1.0)[0]

    ways: list[tuple[str, Callable[[Any, Any], Any], Any]] = [
        ("in chunks, bfloat16 factors, float32 sums (used)", fused, torch.bfloat16),
        ("in chunks, float32 factors", fused, torch.float32),
        ("all logits at once, bfloat16", whole, torch.bfloat16),
    ]
    return [{"way": name, **_timed(way, hidden.to(dtype), weight.to(dtype), exact)} for name, way, dtype in ways]


def _timed(way: Callable[[Any, Any], Any], hidden: Any, weight: Any, exact: Any) -> dict[str, Any]:
    import torch

    hidden, weight = hidden.requires_grad_(), weight.requires_grad_()
    times = []
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(4):
        hidden.grad = weight.grad = None
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        logp = way(hidden, weight)
        logp.sum().backward()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    error = (logp[:CHECKED].double() - exact).abs()
    peak = torch.cuda.max_memory_allocated() - base
    return {
        "ms": sorted(times[1:])[1], "peak_gb": peak / 1e9, "error_mean": error.mean().item(),
        "error_max": error.max().item(),
    }  # fmt: skip
