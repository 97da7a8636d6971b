"""What a viewer already sees, and what to send so that it sees the present: nothing, new points, or all of it.

The browser holds a `Seen` and sends it back with every poll, so the server keeps no state per viewer; a poll that
finds nothing new costs a few `stat`-like reads and sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any

import plotly.graph_objects as go

from dashboards.state import Followed, Page, heartbeat_of, page_of, state_of
from stabilizer.figures import Theme, abandoned, charts, metric_figure
from stabilizer.figures.core import Chart
from stabilizer.figures.marks import Marks, open_spans
from stabilizer.figures.metric import Drawn, Growth, X, drawn, growth, marks_of
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import RunReader

FIRST = 6
"""Charts drawn at once, about a screenful; the others follow with the next poll, so the page is there sooner."""


@dataclass(frozen=True)
class Seen:
    """A viewer's picture of a run: which one, how drawn, and how much of everything."""

    run: str
    theme: Theme = "light"
    x: X = "step"
    rev: tuple[Any, ...] = ()
    heartbeat: float | None = None
    charts: Mapping[str, Drawn] = field(default_factory=dict)
    rest: tuple[str, ...] = ()
    """Charts the page does not hold yet."""
    behind: tuple[str, ...] = ()
    """Charts that were out of sight when something came, and are drawn anew when they come into view."""

    def as_json(self) -> dict[str, Any]:
        """For the browser to keep."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Any) -> Seen | None:
        """What the browser kept; None when it is not what we once sent."""
        try:
            shown = {
                str(id): Drawn(tuple(int(n) for n in d["counts"]), int(d["shown"]), d["log"] is True)
                for id, d in row["charts"].items()
            }
            theme = "dark" if row["theme"] == "dark" else "light"
            x = "tokens" if row["x"] == "tokens" else "step"
            rest, behind = tuple(map(str, row["rest"])), tuple(map(str, row["behind"]))
            return cls(str(row["run"]), theme, x, tuple(row["rev"]), row["heartbeat"], shown, rest, behind)
        except (TypeError, KeyError, ValueError, AttributeError):
            return None


@dataclass(frozen=True)
class ChartView:
    """A chart as first drawn: its definition, figure, and the view its tooltips are made from."""

    chart: Chart
    figure: go.Figure
    view: RunView
    theme: Theme


@dataclass(frozen=True)
class Whole:
    """A run from scratch."""

    page: Page
    charts: tuple[ChartView, ...]
    seen: Seen


@dataclass(frozen=True)
class Change:
    """One chart's news: a figure to take the place of the old one, or points and marks to add to its `lines` lines.

    `standing` are the spans of the figure that reach to the present and have to be drawn on.
    """

    lines: int
    figure: go.Figure | None = None
    points: Growth | None = None
    marks: Marks | None = None
    standing: Sequence[int] = ()


@dataclass(frozen=True)
class News:
    """What changed since `Seen`. `changes` holds only charts that have news; no page means only the heartbeat moved."""

    seen: Seen
    page: Page | None
    changes: Mapping[str, Change] = field(default_factory=dict)
    more: tuple[ChartView, ...] = ()
    story: bool = False


def whole(followed: Followed, run: str, theme: Theme, x: X, first: int | None = None) -> Whole:
    """Everything about a run, to draw the page with; with `first`, so many charts now and the others a poll later."""
    with followed.lock:
        reader = followed.refresh()
        view = reader.history.view()
        now = followed.clock()
        page = page_of(reader, now)
        seen = Seen(run, theme, x, _revision(followed, reader, now), page.heartbeat)
        present = charts(view)
        now_drawn = present[:first]
        drawn_charts, marks = _draw(reader, view, now_drawn, seen)
        rest = tuple(chart.id for chart in present[len(now_drawn) :])
        return Whole(page, drawn_charts, replace(seen, charts=marks, rest=rest))


def news(followed: Followed, seen: Seen, visible: Sequence[str] | None = None) -> News | Whole | None:
    """What a viewer must be told: None for nothing, News for growth, Whole when growth can't express it.

    With `visible`, only those charts get their news now: drawing is what a poll costs the browser.
    """
    with followed.lock:
        reader = followed.refresh()
        now = followed.clock()
        rev = _revision(followed, reader, now)
        due = [id for id in seen.behind if visible is None or id in visible]
        if rev == seen.rev and not seen.rest and not due:
            heartbeat = heartbeat_of(reader.status)
            return None if heartbeat == seen.heartbeat else News(replace(seen, heartbeat=heartbeat), None)
        view = reader.history.view()
        present = charts(view)
        if rev[:2] != seen.rev[:2] or not _same_charts(present, seen):
            return whole(followed, seen.run, seen.theme, seen.x)
        if seen.rest:  # by itself: a page can't take new charts and new points of old ones in one answer
            more, marks = _draw(reader, view, [chart for chart in present if chart.id in seen.rest], seen)
            return News(replace(seen, charts={**seen.charts, **marks}, rest=()), page_of(reader, now), more=more)
        story = rev[3:6] != seen.rev[3:6]
        standing = open_spans(reader.findings)
        changes: dict[str, Change] = {}
        shown: dict[str, Drawn] = {}
        behind = [] if rev != seen.rev else [id for id in seen.behind if id not in due]
        for chart in present:
            if visible is not None and chart.id not in visible:
                shown[chart.id] = seen.charts[chart.id]
                if rev != seen.rev:
                    behind.append(chart.id)
                continue
            if chart.id in due:
                change, shown[chart.id] = _anew(reader, view, chart, seen)
            else:
                change, shown[chart.id] = _change(reader, view, chart, seen, story, standing)
            if change is not None:
                changes[chart.id] = change
        page = page_of(reader, now)
        now_seen = replace(seen, rev=rev, heartbeat=page.heartbeat, charts=shown, behind=tuple(behind))
        return News(now_seen, page, changes, story=story)


def _same_charts(present: Sequence[Chart], seen: Seen) -> bool:
    metrics = {chart.id: len(chart.metrics) for chart in present}
    return metrics.keys() == {*seen.charts, *seen.rest} and all(
        metrics[id] == len(before.counts) for id, before in seen.charts.items()
    )


def _draw(
    reader: RunReader, view: RunView, wanted: Sequence[Chart], seen: Seen
) -> tuple[tuple[ChartView, ...], dict[str, Drawn]]:
    branches = abandoned(reader.histories)
    views = tuple(ChartView(chart, _figure(reader, view, chart, seen), view, seen.theme) for chart in wanted)
    return views, {chart.id: drawn(view, chart.metrics, abandoned=branches, x=seen.x) for chart in wanted}


def _change(
    reader: RunReader, view: RunView, chart: Chart, seen: Seen, story: bool, standing: Sequence[int]
) -> tuple[Change | None, Drawn]:
    before = seen.charts[chart.id]
    branches = abandoned(reader.histories)
    points = growth(view, chart.metrics, before, abandoned=branches, theme=seen.theme, x=seen.x)
    if points is None:
        return _anew(reader, view, chart, seen)
    grown = points.drawn.counts != before.counts
    if not grown and not story:
        return None, before
    marks = None
    if story:
        marks = marks_of(
            view, chart.metrics, reader.findings, reader.events, reader.actions, theme=seen.theme, x=seen.x
        )
    return Change(len(chart.metrics), points=points if grown else None, marks=marks, standing=standing), points.drawn


def _anew(reader: RunReader, view: RunView, chart: Chart, seen: Seen) -> tuple[Change, Drawn]:
    branches = abandoned(reader.histories)
    figure = _figure(reader, view, chart, seen)
    return Change(len(chart.metrics), figure=figure), drawn(view, chart.metrics, abandoned=branches, x=seen.x)


def _figure(reader: RunReader, view: RunView, chart: Chart, seen: Seen) -> go.Figure:
    figure = metric_figure(
        view,
        chart.metrics,
        findings=reader.findings,
        events=reader.events,
        actions=reader.actions,
        abandoned=abandoned(reader.histories),
        theme=seen.theme,
        x=seen.x,
    )
    return figure.update_layout(uirevision=escape(f"{seen.run}|{seen.x}|{chart.id}"))


def _revision(followed: Followed, reader: RunReader, now: float) -> tuple[Any, ...]:
    return (
        followed.rewrites,
        reader.history.attempt,
        len(reader.ticks),
        len(reader.findings),
        len(reader.actions),
        len(reader.events),
        state_of(reader.status, now),
        reader.skipped,
    )
