"""Additions to a chart that is drawn already, so that a live run sends only its new points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stabilizer.figures.axes import X
from stabilizer.figures.metric import MAX_POINTS
from stabilizer.figures.plan import Branch, Plan, Y
from stabilizer.figures.theme import Theme, palette
from stabilizer.figures.thinning import axis_title
from stabilizer.runs.history import RunView, Series


@dataclass(frozen=True)
class Drawn:
    """What a figure already shows: the points of each metric and the kind of axes."""

    counts: tuple[int, ...]
    shown: int
    log: bool
    along: str = "step"


@dataclass(frozen=True)
class Growth:
    """New points for the line traces and the trace of off-axis values, and where on the x axis the present is."""

    lines: tuple[dict[str, list[Any]], ...]
    off_axis: dict[str, list[Any]]
    now: float
    drawn: Drawn
    title: str
    """The title of the x axis, with how many points of the whole line are drawn."""


def drawn(
    view: RunView,
    names: Sequence[str],
    *,
    abandoned: Iterable[Branch] = (),
    max_points: int = MAX_POINTS,
    x: X = "step",
    y: Y = "auto",
    smooth: float = 0.0,
) -> Drawn:
    """What `metric_figure` shows of `names` when called now."""
    counts = tuple(len(view.series(name)) for name in names)
    plan = Plan(view, tuple(names), x, y, smooth, tuple(abandoned))
    return Drawn(counts, max((min(count, max_points) for count in counts), default=0), plan.log, plan.axis.title)


def growth(
    view: RunView,
    names: Sequence[str],
    before: Drawn,
    *,
    abandoned: Iterable[Branch] = (),
    theme: Theme = "light",
    max_points: int = MAX_POINTS,
    x: X = "step",
    y: Y = "auto",
    smooth: float = 0.0,
) -> Growth | None:
    """The additions to a figure that shows `before`; None when it has to be redrawn."""
    columns = [view.series(name) for name in names]
    counts = tuple(len(series) for series in columns)
    added = [now - then for now, then in zip(counts, before.counts, strict=True)]
    shown = before.shown + max(added, default=0)
    if min(added, default=0) < 0 or shown > 2 * max_points:
        return None
    plan = Plan(view, tuple(names), x, y, smooth, tuple(abandoned))
    looks = (plan.log, plan.axis.title, plan.begins(counts))
    if looks != (before.log, before.along, plan.begins(before.counts)):
        return None
    fresh = _behind(columns, before.counts)
    lines = fresh
    if smooth:
        lines = [plan.shown(name, start) for name, start in zip(names, before.counts, strict=True)] + fresh
    return Growth(
        tuple(plan.column(series) for series in lines),
        plan.off_axis(fresh, palette(theme)),
        plan.axis.place(view.step),
        Drawn(counts, shown, plan.log, plan.axis.title),
        axis_title(plan.axis.title, shown, max(counts, default=0)),
    )


def _behind(columns: Sequence[Series], counts: Sequence[int]) -> list[Series]:
    """The points of each column beyond its first so many."""
    return [Series(s.steps[n:], s.values[n:]) for s, n in zip(columns, counts, strict=True)]
