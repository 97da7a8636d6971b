"""How the benchmark talks to the two trainers it compares: one JSON object per line, requests in, answers out.

Whatever a trainer prints goes to stderr, so that stdout holds answers alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Line:
    """A trainer's end of the conversation."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def ask(self) -> dict[str, Any] | None:
        """The next request; None when nobody will ask again."""
        text = sys.stdin.readline()
        return json.loads(text) if text.strip() else None

    def answer(self, value: object) -> None:
        """Answer the request."""
        self._out.write(json.dumps(value) + "\n")
        self._out.flush()


def peak_memory() -> dict[str, float]:
    """The most memory since the last question: of tensors on a GPU, otherwise of the process, on Linux."""
    import torch

    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
        return {"peak_gb": peak}
    try:
        words = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()
        Path("/proc/self/clear_refs").write_text("5")  # begins a new peak
        return {"peak_gb": int(words[0]) * 1024 / 1e9}
    except (OSError, IndexError, ValueError):
        return {"peak_gb": float("nan")}


def serve(run: Callable[[dict[str, Any], Line], None]) -> None:
    """Serve jobs until nobody asks."""
    line = Line()
    while job := line.ask():
        run(job, line)
