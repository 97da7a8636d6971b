"""What monitoring costs per step: writing a record, taking it into the history, asking every detector.

Timed inside the process, call by call, on a stream that looks like a healthy run at 50 metrics; the percentiles are
over the timed steps. Wall-clock comparisons of whole runs could not resolve this: their noise is 5 to 20 %.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.runs.directory import RunWriter
from stabilizer.runs.history import History
from stabilizer.watch import Watch

METRICS = 50
TIMED = 500
CORE = (
    "optim/grad_norm", "optim/lr", "policy/loss", "policy/entropy", "policy/kl_ref", "policy/kl_old",
    "policy/clip_frac",
    "reward/mean", "reward/zero_std_frac", "reward/all_fail_frac", "accuracy/train", "rollout/length_mean",
)  # fmt: skip


def rows(seed: int) -> Iterator[tuple[int, dict[str, float]]]:
    """An endless healthy run: log-normal norms, slowly rising reward, 50 metrics a step."""
    rng = np.random.default_rng(seed)
    names = [*CORE, *(f"trl/extra_{i}" for i in range(METRICS - len(CORE)))]
    step = 0
    while True:
        step += 1
        noise = rng.normal(size=METRICS)
        row = dict(zip(names, np.exp(0.2 * noise).tolist(), strict=True))
        row["reward/mean"] = row["accuracy/train"] = 0.2 + 0.6 * (1 - 1 / (1 + step / 500)) + 0.03 * float(noise[0])
        row["reward/zero_std_frac"] = row["reward/all_fail_frac"] = float(np.clip(0.3 + 0.05 * noise[1], 0, 1))
        yield step, row


def measure(*, seed: int = 0, quick: bool = False) -> list[dict[str, Any]]:
    """One row per length of history: milliseconds per step, median and 95th percentile."""
    lengths = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    out = []
    history, watch, stream = History(), Watch(), rows(seed)
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter.create(Path(folder) / "run", config={})
        for length in lengths:
            while history.step < length - TIMED:
                history.append(*next(stream))
            watch.tick(history.view())  # fills the memoised signals up to here, as a live run would have done
            times: dict[str, list[float]] = {"write": [], "history": [], "detectors": []}
            for _ in range(TIMED):
                step, row = next(stream)
                marks = [time.perf_counter()]
                writer.metrics(step, row)
                marks.append(time.perf_counter())
                history.append(step, row)
                marks.append(time.perf_counter())
                watch.tick(history.view())
                marks.append(time.perf_counter())
                for name, spent in zip(times, np.diff(marks), strict=True):
                    times[name].append(1e3 * spent)
            times["all"] = list(np.sum(list(times.values()), axis=0))
            out += [
                {"steps": length, "part": name, "median_ms": float(np.median(v)), "p95_ms": float(np.percentile(v, 95))}
                for name, v in times.items()
            ]
        writer.close()
    return out
