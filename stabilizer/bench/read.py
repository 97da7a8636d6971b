"""How long reading takes: a run directory of 1M points (100 metrics x 10,000 steps), and orjson alone on its lines."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stabilizer.runs.directory import RunWriter
from stabilizer.runs.reader import RunReader


def measure(*, seed: int = 0, quick: bool = False) -> list[dict[str, Any]]:
    """Seconds, best of three, for both."""
    steps, metrics = (1_000 if quick else 10_000), 100
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        writer = RunWriter.create(path, config={})
        names = [f"trl/metric_{i}" for i in range(metrics)]
        for step in range(1, steps + 1):
            writer.metrics(step, dict(zip(names, rng.normal(size=metrics).tolist(), strict=True)))
        writer.close()
        lines = path / "metrics" / "r0-a0.jsonl"
        ours = min(_timed(lambda: RunReader(path)) for _ in range(3))
        floor = min(_timed(lambda: [orjson.loads(line) for line in lines.read_bytes().splitlines()]) for _ in range(3))
    points = steps * metrics
    return [
        {"what": "run directory into columns", "points": points, "seconds": ours},
        {"what": "orjson on the same lines", "points": points, "seconds": floor},
    ]


def _timed(function: Any) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
