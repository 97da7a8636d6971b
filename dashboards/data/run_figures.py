"""One run as one viewer draws it now: figures of charts, and what to add to those that are drawn already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any

import plotly.graph_objects as go

from dashboards.data.followed_run import Reader
from dashboards.data.run_verdict import RunVerdict
from dashboards.data.viewer_settings import ViewerSettings
from stabilizer.core.records import Event, Finding
from stabilizer.figures import Theme, abandoned, metric_figure
from stabilizer.figures.default_charts import Chart
from stabilizer.figures.growth import Drawn, Growth, drawn, growth
from stabilizer.figures.lineage import Lineage, on_lineage
from stabilizer.figures.marks import open_spans as open_spans_of
from stabilizer.figures.metric import MAX_POINTS
from stabilizer.figures.plan import Branch
from stabilizer.figures.preview import Preview, preview
from stabilizer.runs.history import RunView

PREVIEW_POINTS = 600
"""Points of a line in the picture shown until the figure is ready."""


@dataclass(frozen=True)
class ChartView:
    """A chart as it comes to the page: its definition, its figure (None when that follows, meanwhile a picture where
    one is wanted), and what tooltips need."""

    chart: Chart
    figure: go.Figure | None
    view: RunView
    theme: Theme
    pinned: bool = False
    preview: Preview | None = None


@dataclass(frozen=True)
class Change:
    """One chart's news: a figure to take the place of the old one, or points to add to its line traces.

    `open_spans` are the spans of the figure that reach to the present and have to be drawn on.
    """

    lines: int
    figure: go.Figure | None = None
    points: Growth | None = None
    open_spans: Sequence[int] = ()
    title: str = ""
    """The new title of the x axis, where it says how many of all points are drawn."""


@dataclass
class RunFigures:
    """A run's records, and how they are looked at. Use it under the lock of what is followed."""

    reader: Reader
    settings: ViewerSettings
    checkpoints: Sequence[Event] = ()
    annotations: Sequence[Event] = ()
    verdict: RunVerdict | None = None
    view: RunView = field(init=False)

    def __post_init__(self) -> None:
        self.view = self.reader.history.view()

    @cached_property
    def branches(self) -> list[Branch]:
        """The abandoned branches."""
        return abandoned(self.reader.histories, self.reader.findings)

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings on the current lineage."""
        return on_lineage(self.reader.findings, Lineage.of(self.view.attempt, self.reader.about))

    @cached_property
    def open_spans(self) -> list[int]:
        """Drawn spans that reach to the present."""
        return open_spans_of(self.findings) if self.settings.marks else []

    @property
    def events(self) -> list[Event]:
        """Declared events, saved checkpoints and annotations of viewers."""
        return [*self.reader.events, *self.checkpoints, *self.annotations]

    @property
    def _story(self) -> dict[str, Any]:
        """What is marked on the charts."""
        if not self.settings.marks:
            return {"findings": (), "events": (), "actions": ()}
        return {"findings": self.findings, "events": self.events, "actions": self.reader.actions}

    def card(self, chart: Chart) -> ChartView:
        """A chart whose figure follows."""
        return ChartView(chart, None, self.view, self.settings.theme, chart.id in self.settings.pins)

    def placeholder(self, chart: Chart) -> ChartView:
        """A chart whose figure follows, with a picture to look at until then."""
        return replace(self.card(chart), preview=preview(self._figure(chart, PREVIEW_POINTS).to_plotly_json()))

    def chart(self, chart: Chart) -> tuple[ChartView, Drawn]:
        """A chart that is not on the page yet."""
        figure = self._figure(chart)
        return replace(self.card(chart), figure=figure), self._drawn(chart, figure)

    def redrawn(self, chart: Chart) -> tuple[Change, Drawn]:
        """A chart that is on the page already, drawn again."""
        figure = self._figure(chart)
        return Change(self._lines(chart), figure=figure), self._drawn(chart, figure)

    def change(self, chart: Chart, before: Drawn) -> tuple[Change | None, Drawn]:
        """What to add to a chart on the page."""
        if tuple(len(self.view.series(name)) for name in chart.metrics) == before.counts:
            return None, before
        points = growth(
            self.view, chart.metrics, before, abandoned=self.branches, theme=self.settings.theme, **self.settings.axes
        )
        if points is None:
            return self.redrawn(chart)
        thinned = before.shown < max(before.counts) and self.settings.window(chart.id) is None
        title = points.title if thinned else ""
        return Change(self._lines(chart), points=points, open_spans=self.open_spans, title=title), points.drawn

    def _lines(self, chart: Chart) -> int:
        return len(chart.metrics) * (2 if self.settings.smooth else 1)

    def _drawn(self, chart: Chart, figure: go.Figure) -> Drawn:
        known = drawn(self.view, chart.metrics, abandoned=self.branches, **self.settings.axes)
        longest = known.counts.index(max(known.counts))
        return replace(known, shown=len(figure.data[longest].x))

    def _figure(self, chart: Chart, max_points: int = MAX_POINTS) -> go.Figure:
        figure = metric_figure(
            self.view,
            chart.metrics,
            **self._story,
            abandoned=self.branches,
            theme=self.settings.theme,
            max_points=max_points,
            window=self.settings.window(chart.id),
            **self.settings.axes,
        )
        return figure.update_layout(uirevision=escape(f"{self.settings.run}|{self.settings.x}|{chart.id}"))
