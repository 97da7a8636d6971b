"""What values a reward can take, as far as a log shows: range, sign, resolution, and the terms it is the sum of.

This comes before any other comparison. A reward that is never above zero cannot meet a curve drawn from 0 to 1,
whatever the learning rate; then the two axes show different quantities, and levels say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stabilizer.compare.align import per_step
from stabilizer.compare.sides import Side
from stabilizer.core.text import short

Sign = Literal["negative", "unit", "positive", "both"]
_WORDS = {
    "negative": "never above 0",
    "unit": "between 0 and 1",
    "positive": "never below 0, and above 1",
    "both": "on both sides of 0",
}
_GRAIN = 1e-3
"""Share of a step by which a value may miss a multiple of it: logs are rounded."""


@dataclass(frozen=True)
class Support:
    """Range of the logged means, sign of single rewards as far as it can be known; `stated` is the source's word."""

    low: float
    high: float
    sign: Sign
    resolution: float | None
    single: float | None
    """Step between values of a single reward, where the completions per step are known."""
    components: tuple[str, ...]
    stated: tuple[float, float] | None

    @property
    def words(self) -> str:
        """In one phrase."""
        said = f"{short(self.low)} to {short(self.high)}, {_WORDS[self.sign]}"
        return f"{said} (stated range {short(self.stated[0])} to {short(self.stated[1])})" if self.stated else said


def support(side: Side, metric: str) -> Support:
    """The support of a metric over all members of a side."""
    values = np.concatenate(
        [member.on("step" if "step" in member.clocks else side.clocks()[0], metric)[1] for member in side.members]
    )
    bounds = _stated_bounds(side)
    low, high = float(values.min()), float(values.max())
    sign = "both" if bounds is None and _crosses(side, metric) else _sign(*(bounds or (low, high)))
    grain = None if side.first.kind == "curve" else resolution(values)
    single = (grain or 0.0) * (per_step(side) or 0.0)
    return Support(
        low=low,
        high=high,
        sign=sign,
        resolution=grain,
        single=single if single > 1e-9 else None,
        components=_components(side, metric),
        stated=bounds,
    )


def _stated_bounds(side: Side) -> tuple[float, float] | None:
    stated = side.first.about.get("support")
    return (float(stated[0]), float(stated[1])) if isinstance(stated, list) and len(stated) == 2 else None


def resolution(values: np.ndarray) -> float | None:
    """The largest 1/k that all values are multiples of, or None: fewer than 5 levels, or none coarser than 1/2048."""
    distinct = np.unique(values)
    if len(distinct) < 5:
        return None
    some = distinct[:: max(1, len(distinct) // 50)]
    every = some * np.arange(1, 2049)[:, None]
    near = (np.abs(every - np.round(every)) < _GRAIN).all(axis=1)
    for parts in np.flatnonzero(near) + 1:
        multiples = distinct * parts
        whole = np.round(multiples)
        if len(np.unique(whole)) >= 5 and np.all(np.abs(multiples - whole) < _GRAIN):
            return 1 / int(parts)
    return None


def conflict(run: Support, reference: Support) -> str:
    """Why the two cannot be the same quantity, or ""."""
    sides = (("the run's", run), ("the reference's", reference))
    return _signs(sides) or _stated(run, reference) or _ranges(sides) or _terms(run, reference)


def _stated(run: Support, reference: Support) -> str:
    if not run.stated or not reference.stated or run.stated == reference.stated:
        return ""
    return f"the stated ranges differ: {short(list(run.stated))} and {short(list(reference.stated))}"


def _terms(run: Support, reference: Support) -> str:
    if min(len(run.components), len(reference.components)) < 2 or run.components == reference.components:
        return ""
    return f"the reward is the sum of {_list(run.components)} here and of {_list(reference.components)} there"


Sides = tuple[tuple[str, Support], tuple[str, Support]]
"""Each side with whose it is, in words."""


def _signs(sides: Sides) -> str:
    for (mine, low), (theirs, high) in (sides, sides[::-1]):
        if low.sign == "negative" and high.sign in ("unit", "positive"):
            return (
                f"{mine} reward is never above 0 ({short(low.low)} to {short(low.high)}) and {theirs} is never below "
                f"it ({short(high.low)} to {short(high.high)}): the two axes show different quantities"
            )
    return ""


def _ranges(sides: Sides) -> str:
    for (mine, bounded), (theirs, other) in (sides, sides[::-1]):
        if bounded.stated is None:
            continue
        low, high = bounded.stated
        if other.low < low - 0.02 * (high - low) or other.high > high * 1.02:
            return (
                f"{mine} reward is stated to lie between {short(low)} and {short(high)}, {theirs} takes "
                f"{short(other.low)} to {short(other.high)}"
            )
    return ""


def remarks(run: Support, reference: Support) -> list[str]:
    """What else is worth knowing before levels are compared."""
    said = []
    for item, who in ((run, "the run"), (reference, "the reference")):
        if len(item.components) > 1:
            said.append(f"{who}'s reward is made of {len(item.components)} terms: {_list(item.components)}")
    if not run.stated and not reference.stated and {run.sign, reference.sign} == {"unit", "positive"}:
        over = "run" if run.sign == "positive" else "reference"
        said.append(f"only the {over}'s reward goes above 1: the scale of the reward may differ")
    if run.single and reference.single and abs(run.single / reference.single - 1) > 0.01:
        said.append(
            f"single rewards come in steps of {short(run.single)} here and {short(reference.single)} in the reference"
        )
    return said


def _crosses(side: Side, metric: str) -> bool:
    """Whether single rewards must lie on both sides of 0 although their means do not.

    n rewards of one sign with mean m have a standard deviation of at most sqrt(n) |m| (one of them carries it all).
    """
    completions = per_step(side)
    for member in side.members:
        mean, spread = member.series[metric], member.series.get("reward/std")
        if metric != "reward/mean" or spread is None or len(spread) != len(mean) or not completions:
            continue
        keep = np.isfinite(spread.values) & np.isfinite(mean.values)
        if np.any(spread.values[keep] > 1.001 * np.sqrt(completions) * np.abs(mean.values[keep]) + 1e-9):
            return True
    return False


def _sign(low: float, high: float) -> Sign:
    slack = 1e-9 * max(abs(low), abs(high), 1e-9)
    if high <= slack:
        return "negative" if low < -slack else "unit"
    if low < -slack:
        return "both"
    return "unit" if high <= 1 + 1e-9 else "positive"


def _components(side: Side, metric: str) -> tuple[str, ...]:
    stated = side.first.about.get("components")
    if isinstance(stated, list):
        return tuple(str(item) for item in stated)
    if metric != "reward/mean":
        return ()
    names = [n for n in side.first.series if n.startswith("reward/") and n.endswith("/mean") and n.count("/") == 2]
    return tuple(sorted(name.split("/")[1] for name in names))


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)
