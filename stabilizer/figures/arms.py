"""The arms of an experiment from one snapshot: a line per change, bold for the mean over seeds, faint for each seed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go

from stabilizer.figures.theme import TEMPLATES, Theme, palette

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MAX_SEEDS = 10


def arms_figure(
    arms: Sequence[tuple[str, Sequence[float], Sequence[Sequence[float]]]],
    *,
    x_title: str,
    y_title: str = "",
    theme: Theme = "light",
) -> go.Figure:
    """`arms` are (name, x, a row of values per seed); lines differ in colour and in dash."""
    colours = palette(theme)
    traces = []
    for place, (name, x, values) in enumerate(arms):
        colour, shown = colours.lines[place % len(colours.lines)], escape(name).replace("%", "&#37;")
        table = np.asarray(values, dtype=float)
        for row in table[:MAX_SEEDS]:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": list(x),
                    "y": row.tolist(),
                    "name": shown,
                    "opacity": 0.2,
                    "line": {"color": colour, "width": 1},
                    "hoverinfo": "skip",
                }
            )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": list(x),
                "y": table.mean(axis=0).tolist(),
                "name": shown,
                "line": {"color": colour, "width": 2, "dash": DASHES[place % len(DASHES)]},
                "hovertemplate": f"{shown} <b>%{{y:.3g}}</b> at %{{x:,}}<extra></extra>",
            }
        )
    layout = {
        "template": TEMPLATES[theme],
        "margin": {"l": 52, "r": 14, "t": 14, "b": 44},
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": {"title": {"text": escape(x_title)}},
        "yaxis": {"title": {"text": escape(y_title)}},
    }
    return go.Figure({"data": traces, "layout": layout})
