"""A run with a fault beside its clean twin: what the fault moved, and when the reward fell."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.detect import faults
from bench.detect.live_plan import Case
from stabilizer.runs.history import RunView
from stabilizer.runs.loaded import load_own

WINDOW = 10
"""Steps over which rewards of a run and of its twin are averaged before they are compared."""
VISIBLE = 1 / 3
"""Deviations by which a metric must differ from the twin's, to be called moved."""
PEAK = 1.5
"""Times the twin's largest value that a spike must reach."""


@dataclass(frozen=True)
class Effect:
    """What a fault did to one metric: its means before and after the onset, and the twin's after it."""

    metric: str
    before: float
    after: float
    twin: float
    size: float
    """(after - twin) / the deviation of both."""
    peak: float
    """The largest value after the onset / the twin's largest: rare spikes hardly move a mean."""


def effects(path: Path, twin: Path, onset: int) -> list[Effect]:
    """What differs from the twin after the onset, largest first. Of the times only that of rollouts."""
    ill, well = view(path), view(twin)
    found = []
    for name in sorted({*ill.names(), *well.names()}):
        before, after = _values(ill, name, 1, onset - 1), _values(ill, name, onset)
        clean = _values(well, name, onset)
        if not name.startswith("time/") or name == "time/rollout_s":
            peak = max(after, default=0.0) / (max(clean, default=0.0) or 1.0)
            found.append(Effect(name, _mean(before), _mean(after), _mean(clean), _distance(after, clean), peak))
    return sorted(found, key=lambda effect: -abs(effect.size))


def shows(fault: faults.Fault, found: Sequence[Effect]) -> bool:
    """Whether anything of what the fault should move has moved that way."""
    moved = {f"{effect.metric}+" for effect in found if effect.size > VISIBLE}
    moved |= {f"{effect.metric}-" for effect in found if effect.size < -VISIBLE}
    moved |= {f"{effect.metric}^" for effect in found if effect.peak > PEAK}
    return bool(moved & set(fault.shows))


def falls_at(ill: dict[int, float], twin: dict[int, float], onset: int) -> int | None:
    """The first step from which a run's reward stays below its twin's to the end, beyond what chance does; or None.

    The gap counts as chance below twice the standard error of a difference of two means over `WINDOW` steps, and as a
    fall when it passes four of them; the noise is that from one step of the twin to the next.
    """
    steps = [step for step in sorted(twin) if step >= onset and step in ill]
    values = [twin[step] for step in sorted(twin)]
    if len(steps) < 2 * WINDOW:
        return None
    noise = statistics.stdev(b - a for a, b in zip(values, values[1:], strict=False)) / math.sqrt(2)
    error = noise * math.sqrt(2 / WINDOW)
    gaps = [twin[step] - ill[step] for step in steps]
    means = [statistics.fmean(gaps[i : i + WINDOW]) for i in range(len(gaps) - WINDOW + 1)]
    first = next((i + 1 for i in reversed(range(len(means))) if means[i] < 2 * error), 0)
    if len(means) - first < WINDOW or max(means[first:]) < 4 * error:
        return None
    half = means[min(first + WINDOW, len(means) - 1)] / 2  # the window that begins at `first` still holds sound steps
    return next(step for step, gap in zip(steps[first:], gaps[first:], strict=True) if gap > half)


def rewards(path: Path) -> dict[int, float]:
    """Mean reward by step; steps whose reward is no number are left out."""
    series = view(path).series("reward/mean").finite()
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def view(path: Path) -> RunView:
    """All that a run logged."""
    return load_own(path).history.view()


def print_effects(cases: Iterable[Case], folder: Path, only: str = "") -> None:
    """What every fault did and how every healthy run fared, of the cases that are there."""
    for case in cases:
        path = folder / case.half / case.name
        if not (path / "truth.json").exists() or (only and case.kind != only):
            continue
        if not case.severity:
            known = list(rewards(path).values())
            first, last = _mean(known[:30]), _mean(known[-30:])
            print(f"       {case.kind:20s} {case.task:9s} seed {case.seed:4d}  reward {first:.3g} -> {last:.3g}")
            continue
        fault, told = faults.BY_KIND[case.kind], json.loads((path / "truth.json").read_text())
        found = effects(path, folder / case.half / case.twin.name, case.onset)
        wanted = [effect for effect in found if effect.metric in {name[:-1] for name in fault.shows}]
        print(
            f"{'shows ' if shows(fault, found) else 'HIDDEN'} {case.kind:20s} {case.severity:6s} {case.strength:<7g}"
            f" {case.algorithm:4s} onset {case.onset:3d}, reward falls at {told['reward_falls_at']}"
        )
        for e in dict.fromkeys([*wanted, *found[:3]]):
            print(f"         {e.metric:28s} {e.before:9.3g} -> {e.after:9.3g}, twin {e.twin:9.3g} ({e.size:+.1f} sd)")


def _values(run: RunView, name: str, first: int, last: int | None = None) -> list[float]:
    return run.series(name).between(first, run.step if last is None else last).finite().values.tolist()


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _distance(after: Sequence[float], clean: Sequence[float]) -> float:
    """Infinite for a metric that only one of the two runs has, or that is constant in both and not the same."""
    if not after or not clean:
        return math.inf if after or clean else 0.0
    spread = math.sqrt((statistics.pvariance(after) + statistics.pvariance(clean)) / 2)
    gap = statistics.fmean(after) - statistics.fmean(clean)
    return gap / spread if spread else math.copysign(math.inf, gap) if gap else 0.0
