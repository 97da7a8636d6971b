"""How the metrics of one chart are placed: decided once, used by the first drawing and by growth alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Literal, get_args

import numpy as np

from stabilizer.core.points import log_floor, wants_log
from stabilizer.core.records import Finding
from stabilizer.core.text import short
from stabilizer.figures.axes import Axis, X, axis
from stabilizer.figures.lineage import Lineage, on_lineage
from stabilizer.figures.smoothing import head, smoothed, steps_of
from stabilizer.figures.theme import Palette
from stabilizer.figures.words import definition
from stabilizer.runs.history import History, RunView, Series

CONSTANT = 1e-9
"""Span of values, as a share of their size, up to which they are a constant with rounding."""
MARGIN = 0.1
"""What a y axis shows around a constant, as a share of its size."""
Y = Literal["auto", "linear", "log"]
YS: tuple[Y, ...] = get_args(Y)
OFF_AXIS = ("x", "y", "text", "colour", "symbol")


@dataclass(frozen=True, slots=True)
class Branch:
    """The part of an attempt after the step to which a later attempt went back."""

    view: RunView
    from_step: int
    findings: tuple[Finding, ...] = ()
    """Findings on it after that step."""

    def tail(self, name: str) -> Series:
        """Its points, with the last one before it left."""
        series = self.view.series(name)
        start = max(0, int(np.searchsorted(series.steps, self.from_step)) - 1)
        return Series(series.steps[start:], series.values[start:])


def abandoned(histories: Mapping[int, History], findings: Iterable[Finding] = ()) -> list[Branch]:
    """The branches the current lineage left behind, by attempt, with what of `findings` happened on them."""
    current = max(histories)
    rows = histories[current].about.get("attempts")
    left: dict[int, int] = {}
    for row in rows if isinstance(rows, list) else []:
        parent, start = (row.get("parent"), row.get("from_step")) if isinstance(row, dict) else (None, None)
        if isinstance(parent, int) and isinstance(start, int) and parent in histories and parent != current:
            left[parent] = min(start, left.get(parent, start))
    about, findings = histories[current].about, list(findings)
    return [
        Branch(histories[attempt].view(), start, _after(start, on_lineage(findings, Lineage.of(attempt, about))))
        for attempt, start in left.items()
    ]


def _after(step: int, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(replace(f, onset_step=max(f.onset_step, step)) for f in findings if f.last_step >= step)


@dataclass
class Plan:
    """A chart's axes and the columns of its traces. `smooth` is in steps; 0 shows the values as they are."""

    view: RunView
    names: tuple[str, ...]
    x: X = "step"
    y: Y = "auto"
    smooth: float = 0.0
    branches: Sequence[Branch] = ()
    axis: Axis = field(init=False)
    log: bool = field(init=False)
    floor: float = field(init=False)
    """What a log axis does not show: values up to this one are marked at its lower end."""
    bounds: tuple[float, float] | None = field(init=False)
    """The lowest and highest value that is drawn where it belongs."""

    def __post_init__(self) -> None:
        self.axis = axis(self.view, self.x)
        columns = [self.view.series(name).values for name in self.names]
        columns += [branch.tail(name).values for name in self.names for branch in self.branches]
        values = np.concatenate(columns) if columns else np.empty(0)
        self.log = self.y != "linear" and self._log(values)
        self.floor = log_floor(values) if self.log else 0.0
        shown = values[self.fits(values)]
        self.bounds = (float(shown.min()), float(shown.max())) if len(shown) else None

    def _log(self, values: np.ndarray) -> bool:
        if self.y == "log":  # as chosen, unless most values could not be shown
            return bool(2 * np.count_nonzero(values > 0) > np.count_nonzero(np.isfinite(values)))
        return all(definition(self.view, name).kind == "positive" for name in self.names) and wants_log(values)

    def shown(self, name: str, start: int = 0) -> Series:
        """The line of a metric from its point `start` on: its values, or their means."""
        series = self.view.series(name)
        over = steps_of(name, self.smooth)
        values = smoothed(series.steps, series.values, over, start) if over else series.values[start:]
        return Series(series.steps[start:], values)

    def begins(self, counts: Sequence[int]) -> list[int]:
        """The point at which each line begins, when its metric has so many points."""
        smooth = [steps_of(name, self.smooth) for name in self.names]
        columns = [self.view.series(name) for name in self.names]
        return [head(s.steps[:n], s.values[:n], over) for s, n, over in zip(columns, counts, smooth, strict=True)]

    def column(self, series: Series) -> dict[str, Any]:
        """Columns of a line trace; a value the axis can't hold is a gap."""
        fits = self.fits(series.values).tolist()
        values = [value if ok else None for value, ok in zip(series.values.tolist(), fits, strict=True)]
        column: dict[str, Any] = {"x": self.axis.places(series.steps), "y": values}
        return column if self.axis.by_step else {**column, "customdata": series.steps.tolist()}

    def fits(self, values: np.ndarray) -> np.ndarray:
        """Which values can be drawn where they belong."""
        finite: np.ndarray = np.isfinite(values)
        return finite & (values > self.floor) if self.log else finite

    def off_axis(self, columns: Iterable[Series], colours: Palette) -> dict[str, list[Any]]:
        """Points for the values of each metric that can't: NaN and Inf in alarm colour, those below a log axis grey."""
        out: dict[str, list[Any]] = {key: [] for key in OFF_AXIS}
        for name, series in zip(self.names, columns, strict=True):
            self._add_off_axis(out, name, series, colours)
        return out

    def _add_off_axis(self, out: dict[str, list[Any]], name: str, series: Series, colours: Palette) -> None:
        for index in np.flatnonzero(~self.fits(series.values)):
            step, value = int(series.steps[index]), float(series.values[index])
            finite = np.isfinite(value)
            low = finite or value == -np.inf
            words = f"{short(value)} (below the log axis)" if finite else short(value)
            out["x"].append(self.axis.place(step))
            out["y"].append(0.03 if low else 0.93)
            out["text"].append(f"{escape(name)}: <b>{words}</b> at step {step}")
            out["colour"].append(colours.muted if finite else colours.severity["critical"])
            out["symbol"].append("circle-open" if finite else "x-thin-open" if np.isnan(value) else "arrow-up-open")


def margin(low: float, high: float) -> tuple[float, ...]:
    """Values around a constant that its axis includes, so that rounding is not drawn as noise; none for other lines."""
    size = max(abs(low), abs(high))
    if high - low > CONSTANT * size:
        return ()
    return (low - MARGIN * size, high + MARGIN * size) if size else (-1.0, 1.0)
