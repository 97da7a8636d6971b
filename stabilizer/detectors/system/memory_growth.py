"""Memory growth: memory in use rises steadily, so that the run will end when it is gone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.runs.history import RunView

SHARES = {
    "system/gpu_memory_frac": "memory of the GPU",
    "system/container_memory_frac": "memory of the container",
    "system/memory_frac": "memory of the machine",
}
"""Memory in use as a share of all there is: the step at which it is gone can be said."""
AMOUNTS = {
    "system/gpu_memory_gb": "memory of the GPU",
    "system/process_memory_gb": "memory of the process",
    "verl/perf/cpu_memory_used_gb": "memory of the machine",
    "verl/perf/max_memory_reserved_gb": "memory of the GPU",
    "easyr1/perf/cpu_memory_used_gb": "memory of the machine",
    "easyr1/perf/max_memory_reserved_gb": "memory of the GPU",
}
"""Memory in use in GB."""
_COLUMN = re.compile(r"(?:^|[/_.-])(?:v?ram|rss|mem(?:ory)?)[/_.-](?:[a-z]+[/_.-])?gi?b$", re.IGNORECASE)
"""A column of memory in GB under a name of the log's own."""
FULL = 0.97
"""Share of the memory at which an allocation is likely to fail: what remains is in pieces, or the system keeps it."""
PARTS = 6
"""Parts of the time that is judged. The lowest value of each must lie above that of the part before: by chance 6 values
are in order once in 720 times."""
STEADY = 0.6
"""Growth in the later half, at least so many times that of the earlier half: what fills caches slows down."""
WARM = 0.1
"""Share of the rows at the start of the run that are left out, in which caches fill."""


class Growth(NamedTuple):
    """Memory that grows: the lowest values of the first and last part of the time, and the growth a step."""

    onset: int
    before: float
    now: float
    per_step: float


@dataclass(frozen=True, kw_only=True)
class MemoryGrowth(Detector):
    """Memory in use rises steadily and without slowing down, and at this pace it will be gone.

    Signature
        After the first tenth of the run, the lowest memory in use of each of six equal parts of the time is above that
        of the part before, the later half grows at least 0.6 times as much as the earlier one, and all of it is more
        than `share` of the memory (or `part` of what is in use, where only an amount is logged). `warn` where the
        memory is gone before the last planned step, or within as many steps as were done; otherwise `info`.

    Why it matters
        The process is killed when the memory is gone, often without a message: the system ends it (host memory) or an
        allocation fails (GPU). What was trained since the last checkpoint is lost.

    Look-alikes
        Caches that fill at the start slow down. Answers that grow need more memory: the summary says so where lengths
        are logged. A single long batch is a peak, which the lowest values do not see. Another program on the machine
        counts in shares of the machine and not in the memory of the process.

    False alarms
        A buffer that is meant to grow and is emptied later, such as a replay buffer or a log kept in memory.

    Remedies
        `stop-the-growth`: find what grows (lists that keep tensors or completions, a data loader's workers, a metric
        that is never reduced), or save often and restart before it ends. Fragmented GPU memory grows as well:
        `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

    References
        PyTorch: "My model reports cuda runtime error(2): out of memory"; Linux `oom_kill`.
    """

    id = "system/memory-growth"
    needs = ("|".join((*SHARES, *AMOUNTS)),)

    least: int = 80
    """Rows that are needed: 20 minutes, where the machine is sampled every 15 s."""
    most: int = 3000
    """Newest rows that are judged."""
    share: float = 0.04
    """Growth as a share of the memory that counts."""
    part: float = 0.1
    """Growth as a part of what was in use that counts, where all there is is not known."""

    def check(self, view: RunView) -> Finding | None:
        for name, words in SHARES.items():
            if (grown := self._growth(view, name)) and grown.now - grown.before >= self.share:
                return self._filling(view, name, words, grown)
        for name, words in (AMOUNTS | _others(view)).items():
            if (grown := self._growth(view, name)) and grown.now - grown.before >= self.part * grown.before:
                return self.finding(
                    view, "info", grown.onset,
                    f"{words} in use rose steadily from {grown.before:.3g} GB (step {grown.onset:,}) to {grown.now:.3g}"
                    f" GB, {1000 * grown.per_step:.3g} GB per 1,000 steps{_longer(view, grown)}",
                    metric=name, baseline=grown.before, now=grown.now,
                )  # fmt: skip
        return None

    def _filling(self, view: RunView, name: str, words: str, grown: Growth) -> Finding:
        left = max(0.0, (FULL - grown.now) / grown.per_step)
        end, planned = view.step + round(left), view.about("steps")
        soon = end <= planned if isinstance(planned, int) and planned > view.step else left <= view.step
        within = f" of {planned:,} planned" if isinstance(planned, int) and planned > view.step else ""
        return self.finding(
            view, "warn" if soon else "info", grown.onset,
            f"{words} in use rose steadily from {grown.before:.0%} (step {grown.onset:,}) to {grown.now:.0%}; at this"
            f" pace it is gone near step {end:,}{within}{_longer(view, grown)}",
            metric=name, baseline=grown.before, now=grown.now, end=end,
        )  # fmt: skip

    def _growth(self, view: RunView, name: str) -> Growth | None:
        """Steady growth of a metric; None where it is steady, slows down, or rises and falls."""
        series = view.series(name).last(self.most).finite()
        first = int(WARM * len(series))
        values, steps = series.values[first:], series.steps[first:]
        if len(values) < self.least:
            return None
        lows = np.array([part.min() for part in np.array_split(values, PARTS)])
        half = PARTS // 2
        early, late = lows[half - 1] - lows[0], lows[-1] - lows[half]
        if (np.diff(lows) <= 0).any() or late < STEADY * early:
            return None
        apart = (steps[-1] - steps[0]) * (PARTS - 1) / PARTS  # between the middles of the first and the last part
        return Growth(int(steps[0]), float(lows[0]), float(lows[-1]), float((lows[-1] - lows[0]) / apart))


def _others(view: RunView) -> dict[str, str]:
    """Columns of a log that are amounts of memory in GB by their names."""
    return {name: f"`{name.rpartition('/')[2]}`" for name in view.names() if _COLUMN.search(name)}


def _longer(view: RunView, grown: Growth) -> str:
    """A remark where answers grew as well."""
    lengths = view.series("rollout/length_mean").between(grown.onset, view.step).finite().values
    if len(lengths) < PARTS:
        return ""
    first, last = (float(np.median(part)) for part in (lengths[: len(lengths) // 3], lengths[-len(lengths) // 3 :]))
    return f"; answers grew as well, from {first:.0f} to {last:.0f} tokens" if last > 1.15 * first > 0 else ""
