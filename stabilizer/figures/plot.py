"""Metrics of a run as one figure, for Python and notebooks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import plotly.graph_objects as go

from stabilizer.core.records import Finding
from stabilizer.figures.metric import metric_figure
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError

HEIGHT = 320
"""Pixels: about a third of a screen."""


def plot(run: LoadedRun, metrics: Sequence[str], findings: Sequence[Finding] = (), smooth: int = 0) -> go.Figure:
    """The figure; RunError names the nearest metrics where one was not logged."""
    view = run.history.view()
    logged = sorted(view.names())
    names = tuple(metrics) or tuple(name for name in ("reward/mean",) if name in logged)
    if not names:
        raise RunError(f"{run.name}: no reward is logged; name a metric, one of {', '.join(logged[:12])}")
    for name in names:
        if name not in logged:
            near = difflib.get_close_matches(name, logged, 3, 0.4) or logged[:8]
            raise RunError(f"{run.name}: no metric {name!r}; logged are, among others, {', '.join(near)}")
    figure = metric_figure(
        view,
        names,
        findings=findings,
        events=run.history.events,
        actions=run.actions,
        smooth=smooth,
        title=", ".join(names),
    )
    return figure.update_layout(height=HEIGHT)
