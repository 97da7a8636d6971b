"""The arms of an experiment from one snapshot: a line per change, bold for the mean over seeds, faint for each seed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go

from stabilizer.figures.parts import WIDE, layout, scatter
from stabilizer.figures.theme import Theme, palette

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MAX_SEEDS = 10


def arms_figure(
    arms: Sequence[tuple[str, Sequence[float], Sequence[Sequence[float]]]],
    *,
    x_title: str,
    theme: Theme = "light",
) -> go.Figure:
    """`arms` are (name, x, a row of values per seed); lines differ in colour and in dash."""
    colours = palette(theme)
    traces = []
    for place, (name, x, values) in enumerate(arms):
        colour, shown = colours.lines[place % len(colours.lines)], escape(name).replace("%", "&#37;")
        table = np.asarray(values, dtype=float)
        for row in table[:MAX_SEEDS]:
            line = {"color": colour, "width": 1}
            traces.append(scatter(list(x), row.tolist(), name=shown, opacity=0.2, line=line, hoverinfo="skip"))
        bold = {"color": colour, "width": 2, "dash": DASHES[place % len(DASHES)]}
        hover = f"{shown} <b>%{{y:.3g}}</b> at %{{x:,}}<extra></extra>"
        traces.append(scatter(list(x), table.mean(axis=0).tolist(), name=shown, line=bold, hovertemplate=hover))
    return go.Figure({"data": traces, "layout": layout(theme, WIDE, x_title)})
