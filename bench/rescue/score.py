"""How many runs were saved, how many were harmed, and what that is beside doing something simpler. Pure arithmetic.

A case is *damaged* when its run without any action ends below 95 % of its clean twin, and *rescued* by an arm that ends
at 95 % or above. An arm *harms* a run that ends more than two points below the one without any action. Accuracies are
shares of held-out problems, 0 to 1, and a point is 0.01.

Training is chaotic: two runs that differ in nothing but the draw of their prompts end points apart, a broken run and
its twin more so than two healthy ones, so that a treatment that does nothing "harms" too by this definition. How often
is measured, by an arm that at the first finding draws other prompts and does nothing else (`PLACEBO`), and what an arm
harms *beyond chance* is its share of harmed runs less that arm's, paired by case.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench.detect.score import wilson
from bench.rescue.arms import ARMS, BASELINES, OFF, OURS, PLACEBO

ENOUGH = 0.95
"""Share of the clean twin's accuracy at which a run counts as well."""
HARM = 0.02
"""Accuracy below the run without any action from which an arm did harm."""
RESAMPLES = 2000


def damaged(off: float, clean: float) -> bool:
    """Whether a run that nobody touched ends materially below its clean twin."""
    return off < ENOUGH * clean


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one case ended under every arm. An arm that was not trained, for nothing was said, ended as `OFF` did."""

    name: str
    kind: str
    nature: str
    """Of the fault; empty for a healthy run."""
    severity: str | None
    clean: float
    """Final accuracy of the clean twin; of a healthy run, its own without any action."""
    finals: Mapping[str, float]
    """Final accuracy by arm."""
    actions: Mapping[str, int] = field(default_factory=dict)
    """Changes made, by arm."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Iterations from the onset on at which an arm was not yet, or no longer, well, by arm."""
    heard: bool = True
    """Whether a detector said anything without any action."""

    @property
    def healthy(self) -> bool:
        """Whether nothing was wrong with it."""
        return self.severity is None

    @property
    def damaged(self) -> bool:
        """Whether there was something to save."""
        return not self.healthy and damaged(self.finals[OFF], self.clean)

    def rescued(self, arm: str) -> bool:
        """Whether an arm ended well."""
        return not damaged(self.finals[arm], self.clean)

    def change(self, arm: str) -> float:
        """Accuracy won, or below 0 lost, against doing nothing."""
        return self.finals[arm] - self.finals[OFF]


def lost_iterations(curve: Sequence[tuple[int, float]], clean: Sequence[tuple[int, float]], onset: int) -> int:
    """Iterations from the onset on, counted in whole stretches between measurements, that end below `ENOUGH`."""
    well, lost, before = dict(clean), 0, 0
    for at, value in curve:
        if at >= onset and at in well and value < ENOUGH * well[at]:
            lost += at - max(before, onset - 1)
        before = at
    return lost


# --- figures --------------------------------------------------------------------------------------------------------


def summary(results: Sequence[Result], chance: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Every figure. `chance` holds the ends of clean runs and of the same with other prompts."""
    noise = spread(chance)
    ill = [r for r in results if not r.healthy]
    hurt = [r for r in ill if r.damaged]
    well = [r for r in results if r.healthy]
    return {
        "chance": {
            "n": len(chance),
            "sd": noise,
            "well": share(sum(not damaged(b, a) for a, b in chance), len(chance)),
        },
        "faults": {"n": len(ill), "damaged": len(hurt), "heard": share(sum(r.heard for r in hurt), len(hurt))},
        "arms": {arm: _arm(arm, hurt, ill if arm in (*OURS, PLACEBO) else hurt, noise) for arm in ARMS},
        "against": {arm: against(arm, hurt) for arm in OURS},
        "harm beyond chance": {arm: beyond_chance(arm, ill) for arm in OURS},
        "healthy": {arm: _healthy(arm, well, noise) for arm in OURS},
        "kinds": _groups(hurt, ill, lambda r: r.kind),
        "natures": _groups(hurt, ill, lambda r: r.nature),
        "severities": _groups(hurt, ill, lambda r: str(r.severity)),
    }


def spread(chance: Sequence[tuple[float, float]]) -> float:
    """Deviation between the ends of two runs that differ by their prompts alone."""
    return (sum((b - a) ** 2 for a, b in chance) / len(chance)) ** 0.5 if chance else 0.0


def share(hits: int, n: int) -> dict[str, Any]:
    """A share with its n and its 95 % interval (Wilson)."""
    return {"hits": hits, "n": n, "share": hits / max(n, 1), "interval": wilson(hits, n)}


def _arm(arm: str, hurt: Sequence[Result], all_: Sequence[Result], noise: float) -> dict[str, Any]:
    saved = [r.lost.get(OFF, 0) - r.lost.get(arm, 0) for r in hurt]
    bad = [r for r in all_ if r.change(arm) < -HARM]
    return {
        "rescue": share(sum(r.rescued(arm) for r in hurt), len(hurt)),
        "reached": statistics.fmean([r.finals[arm] / r.clean for r in hurt if r.clean]) if hurt else 0.0,
        "harm": share(len(bad), len(all_)),
        "harm beyond noise": share(sum(r.change(arm) < -max(HARM, 2 * noise) for r in bad), len(all_)),
        "points lost": 100 * statistics.fmean([max(0.0, -r.change(arm)) for r in all_]) if all_ else 0.0,
        "iterations saved": statistics.fmean(saved) if saved else 0.0,
        "actions": statistics.fmean([r.actions.get(arm, 0) for r in hurt]) if hurt else 0.0,
    }


def against(arm: str, hurt: Sequence[Result]) -> dict[str, Any]:
    """Rescues more than the best simple baseline's, as a share, with a paired 95 % interval.

    Cases are drawn anew, and in every draw the baseline that is best in it is taken: choosing it is part of the chance.
    """
    wins = [[r.rescued(name) for name in (arm, OFF, *BASELINES)] for r in hurt]
    if not wins:
        return {"best": "", "difference": 0.0, "interval": [-1.0, 1.0], "n": 0}
    names = (OFF, *BASELINES)

    def gap(rows: Sequence[Sequence[bool]]) -> float:
        ours, *theirs = (sum(column) / len(rows) for column in zip(*rows, strict=True))
        return ours - max(theirs)

    draw = Random(0)  # noqa: S311 (no secret)
    gaps = sorted(gap(draw.choices(wins, k=len(wins))) for _ in range(RESAMPLES))
    best = max(names, key=lambda name: sum(r.rescued(name) for r in hurt))
    ends = [gaps[round(at * (RESAMPLES - 1))] for at in (0.025, 0.975)]
    return {"best": best, "difference": gap(wins), "interval": ends, "n": len(hurt)}


def beyond_chance(arm: str, ill: Sequence[Result]) -> dict[str, Any]:
    """Share of runs that an arm harmed less the share that chance did, with a paired 95 % interval."""
    pairs = [(r.change(arm) < -HARM) - (r.change(PLACEBO) < -HARM) for r in ill]
    if not pairs:
        return {"difference": 0.0, "interval": [-1.0, 1.0], "n": 0}
    draw = Random(0)  # noqa: S311 (no secret)
    gaps = sorted(statistics.fmean(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    ends = [gaps[round(at * (RESAMPLES - 1))] for at in (0.025, 0.975)]
    return {"difference": statistics.fmean(pairs), "interval": ends, "n": len(pairs)}


def _healthy(arm: str, well: Sequence[Result], noise: float) -> dict[str, Any]:
    changes = [r.change(arm) for r in well]
    return {
        "acted on": share(sum(r.actions.get(arm, 0) > 0 for r in well), len(well)),
        "actions": sum(r.actions.get(arm, 0) for r in well),
        "change": statistics.fmean(changes) if changes else 0.0,
        "worst": min(changes, default=0.0),
        "worse beyond chance": share(sum(c < -max(HARM, 2 * noise) for c in changes), len(well)),
    }


def _groups(hurt: Sequence[Result], ill: Sequence[Result], key: Callable[[Result], str]) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys(key(r) for r in ill):
        part = [r for r in hurt if key(r) == name]
        arms = {arm: share(sum(r.rescued(arm) for r in part), len(part)) for arm in (*OURS, *BASELINES)}
        rows.append({"name": name, "n": sum(key(r) == name for r in ill), "damaged": len(part),
                     "heard": sum(r.heard for r in part), "arms": arms})  # fmt: skip
    return rows
