"""Peak memory and time of log-probabilities, entropies and gradients at a real vocabulary, one process per measurement.

A process's peak resident memory never falls, so each way gets a process of its own, which reports by how much the work
raised it. `python -m bench.train.memory WAY TOKENS VOCABULARY HIDDEN THREADS` prints one JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

WAYS = ("naive", "fused")
TOKENS, VOCABULARY, HIDDEN = 2048, 32_768, 256


def measure(*, threads: int, repeats: int, environment: dict[str, str]) -> list[dict[str, Any]]:
    """A row per way, medians of processes that took turns."""
    seen: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            numbers = [str(number) for number in (TOKENS, VOCABULARY, HIDDEN, threads)]
            words = [sys.executable, "-m", __name__, way, *numbers]
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
            seen[way].append(json.loads(done.stdout))
    middle = {
        way: {key: statistics.median(row[key] for row in rows) for key in ("seconds", "megabytes")}
        for way, rows in seen.items()
    }
    return [
        {
            "way": way,
            "tokens": TOKENS,
            "vocabulary": VOCABULARY,
            "hidden": HIDDEN,
            **row,
            "share of naive memory": row["megabytes"] / middle["naive"]["megabytes"],
            "share of naive time": row["seconds"] / middle["naive"]["seconds"],
            "gradient norm": seen[way][0]["gradient_norm"],
        }
        for way, row in middle.items()
    ]


def once(way: str, tokens: int, vocabulary: int, hidden: int, threads: int) -> dict[str, float]:
    """One forward and backward pass of a policy gradient; the peak is of this process, so call it in a fresh one."""
    import torch

    from stabilizer.training.head import stats_of_logits, token_stats

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    states = torch.empty(tokens, hidden).normal_().requires_grad_()
    weight = (
        torch.empty(vocabulary, hidden).normal_(std=hidden**-0.5).requires_grad_()
    )  # no copy, which would be reused
    target = torch.randint(vocabulary, (tokens,))
    advantage = torch.randn(tokens)
    warm = torch.randn(64, 64, requires_grad=True)
    (warm @ warm).logsumexp(-1).sum().backward()  # threads and libraries take their memory before
    before, began = _peak_mb(), time.perf_counter()
    if way == "fused":
        logp, _ = token_stats(states, weight, None, target, 1.0)
    else:
        logp, _ = stats_of_logits(states @ weight.T, target, 1.0)
    (logp * advantage).mean().backward()
    return {
        "seconds": time.perf_counter() - began,
        "megabytes": _peak_mb() - before,
        "gradient_norm": float(weight.grad.norm()),
    }


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    print(json.dumps(once(sys.argv[1], *(int(word) for word in sys.argv[2:]))))
    sys.stdout.flush()
    os._exit(0)  # nothing to clean up, and the next measurement waits
