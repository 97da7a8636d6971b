"""Which points of a chart are drawn: the whole of it thinned, or a range of the x axis in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stabilizer.core.points import thin
from stabilizer.figures.plan import Plan, margin
from stabilizer.runs.history import Series

Window = tuple[float, ...]
"""A range of the x axis, and of the y axis where that was chosen as well."""
OUTSIDE = 8
"""Fraction of the points that each side of a range gets, for panning until its own points arrive."""
PADDING = 0.06
"""Share of the values' span that a y axis shows beyond them."""


@dataclass(frozen=True)
class Thinning:
    """How the lines of one chart are thinned. `keep` are steps whose points stay in any case."""

    plan: Plan
    window: Window | None = None
    keep: tuple[int, ...] = ()

    def of(self, series: Series, budget: int) -> Series:
        """At most about `budget` points of a line, in the range that is shown."""
        if len(series) <= budget:
            return series
        if self.window is None:
            return self._thinned(series, budget)
        inside = self._within(series)
        start, stop = max(0, inside.start - 1), inside.stop + 1  # lines go on to the edges
        parts = [
            self._thinned(series.part(0, start), budget // OUTSIDE),
            self._thinned(series.part(start, stop), budget),
            self._thinned(series.part(stop, len(series)), budget // OUTSIDE),
        ]
        return Series(*(np.concatenate([getattr(part, field) for part in parts]) for field in ("steps", "values")))

    def title(self, whole: Sequence[Series], drawn: Sequence[Series]) -> str:
        """The title of the x axis; where points are left out, with how many are drawn."""
        most = max(range(len(whole)), key=lambda at: len(whole[at]), default=None)
        if most is None:
            return self.plan.axis.title
        return axis_title(self.plan.axis.title, self._count(drawn[most]), self._count(whole[most]))

    def heights(self, lines: Iterable[Series]) -> list[float] | None:
        """The range of the y axis that fits what is shown of some lines; None where nothing is."""
        values = np.concatenate([line.part(*self._ends(line)).values for line in lines] or [np.empty(0)])
        values = values[self.plan.fits(values)]
        if not len(values):
            return None
        values = np.log10(values) if self.plan.log else values
        low, high = float(values.min()), float(values.max())
        pad = PADDING * (high - low)
        return list(margin(low, high)) or [low - pad, high + pad]

    def _thinned(self, series: Series, budget: int) -> Series:
        if len(series) <= budget:
            return series
        keep = thin(series.values, budget, np.searchsorted(series.steps, list(self.keep)).tolist())
        return Series(series.steps[keep], series.values[keep])

    def _count(self, series: Series) -> int:
        start, stop = self._ends(series)
        return stop - start

    def _ends(self, series: Series) -> tuple[int, int]:
        inside = self._within(series)
        return inside.start, inside.stop

    def _within(self, series: Series) -> slice:
        if self.window is None:
            return slice(0, len(series))
        return self.plan.axis.within(series.steps, (self.window[0], self.window[1]))


def axis_title(title: str, drawn: int, count: int) -> str:
    """The title of an x axis with how many of all points are drawn, where that is not all."""
    return f"{title} · {drawn:,} of {count:,} points" if drawn < count else title
