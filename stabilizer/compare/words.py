"""A comparison as rows of words: what the terminal and the page show alike."""

from __future__ import annotations

import math
from typing import NamedTuple

from stabilizer.compare import Comparison
from stabilizer.compare.gaps import Compared, Gap
from stabilizer.compare.measure import Measure
from stabilizer.core.text import short

STATES = {
    "same": "same within noise",
    "different": "different",
    "undetermined": "undetermined",
    "not-comparable": "not comparable",
}


LEVELS = {
    "identical": "healthy",
    "same": "healthy",
    "different": "warn",
    "rescaled": "warn",
    "not-comparable": "critical",
    "undetermined": "info",
}
"""How verdicts and states are coloured, as the severity of the same colour."""


class Row(NamedTuple):
    """One measure: both sides with 95 % intervals, the difference with its 99 % interval, and what it says."""

    what: str
    estimator: str
    run: str
    reference: str
    difference: str
    state: str
    why: str
    note: str = ""


def rows(item: Compared, comparison: Comparison) -> list[Row]:
    """The measures of one metric."""
    out = []
    for gap in item.gaps:
        run, reference = (_side(measure) for measure in (gap.run, gap.reference))
        out.append(Row(gap.label, gap.estimator, run, reference, difference(gap), gap.state, gap.why, gap.note))
        if gap.id == "time-to-peak" and item is comparison.main:
            mine, theirs = zip(comparison.peak_steps, comparison.highest_steps, strict=True)
            out.append(Row("in steps", "", _steps(*mine), _steps(*theirs), "", "", ""))
    return out


def gap_labels(comparison: Comparison) -> dict[str, str]:
    """What the gaps that explanations refer to are called."""
    return {"support": "reward range"} | {gap.id: gap.label for gap in comparison.main.gaps}


def how(row: Row) -> str:
    """How a measure is estimated, and what else there is to say of it; its numbers stand beside it already."""
    reason = row.why if row.difference == "–" and row.state == "undetermined" else row.note
    return "; ".join(part for part in (row.estimator, reason) if part)


def difference(gap: Gap) -> str:
    """Run minus reference, or how many times it, with the 99 % interval."""
    if gap.difference is None or gap.low is None or gap.high is None:
        return "–"
    if gap.scale == "ratio":
        return f"× {_two(gap.difference)} [{_two(gap.low)}, {_two(gap.high)}]"
    return f"{_signed(gap.difference)} ± {_two(gap.difference - gap.low)}"


def number(value: float) -> str:
    """Three significant digits: more than an interval leaves room for."""
    if not math.isfinite(value) or value == 0:
        return short(float(value))
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    rounded = round(value, 2 - int(math.floor(math.log10(abs(value)))))
    return short(int(rounded) if abs(rounded) >= 100 and rounded == int(rounded) else rounded)


def seeds(comparison: Comparison) -> tuple[str, str]:
    """How many runs each side is, in words."""
    made = []
    for side in (comparison.run, comparison.reference):
        count = len(side.members)
        kind = "published curve" if side.first.kind == "curve" else "table" if side.first.kind == "csv" else "run"
        made.append(f"{count} seeds" if count > 1 else f"1 {kind}")
    return made[0], made[1]


def sentence(text: str) -> str:
    """Beginning with a capital, where that is a word and not a metric's name."""
    return text if "/" in text.split(" ")[0] else text[:1].upper() + text[1:]


def support_rows(item: Compared) -> list[tuple[str, str, str]]:
    """Range, resolution and terms of the reward: (what, run, reference)."""
    mine, theirs = item.supports
    table = [("values", mine.words, theirs.words)]
    if mine.single or theirs.single:
        table.append(("smallest reward step", _maybe(mine.single), _maybe(theirs.single)))
    elif mine.resolution or theirs.resolution:
        table.append(("smallest step of means", _maybe(mine.resolution), _maybe(theirs.resolution)))
    if mine.components or theirs.components:
        table.append(("terms", ", ".join(mine.components) or "unknown", ", ".join(theirs.components) or "unknown"))
    return table


def _steps(reached: float, highest: float) -> str:
    if math.isnan(reached):
        return "unknown"
    return f"{reached:,.0f}, best at {highest:,.0f}"


def _maybe(value: float | None) -> str:
    return number(value) if value else "unknown"


def _side(measure: Measure | None) -> str:
    if measure is None:
        return "not measured"
    low, high = measure.interval
    if measure.scale == "ratio":
        return f"{number(measure.value)} [{number(low)}, {number(high)}]"
    return f"{number(measure.value)} ± {_two(measure.value - low)}"


def _two(value: float) -> str:
    """Two significant digits, enough for an uncertainty."""
    return number(float(f"{value:.2g}"))


def _signed(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value).replace("-", "−")
