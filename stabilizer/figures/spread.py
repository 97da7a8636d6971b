"""A quantity of single completions over the steps of a run, as a heat map with its median or mean."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from stabilizer.figures.completions import MARGIN
from stabilizer.figures.parts import layout, scatter
from stabilizer.figures.theme import Theme, palette
from stabilizer.figures.words import hover_number

FEW = 12
"""Steps up to which each has a label of its own, however far apart they are."""


class Spread(NamedTuple):
    """The spread of a quantity, step by step."""

    steps: tuple[int, ...]
    middles: tuple[float, ...]
    """The middle of each interval."""
    shares: tuple[tuple[float, ...], ...]
    """Of each step: the share of its values in each interval."""
    lines: tuple[float, ...]
    """Of each step: the number that `line` names."""
    counts: tuple[int, ...]
    """Values of each step."""
    unit: str
    line: str = "median"
    of: str = "completions"


def spread_figure(spread: Spread, *, theme: Theme = "light") -> go.Figure:
    """Darker where more of a step's completions are; the line is the median or mean of each step."""
    colours = palette(theme)
    by_interval = [list(row) for row in zip(*spread.shares, strict=True)]
    words = [
        [f"{share:.0%} of {count}" for share, count in zip(row, spread.counts, strict=True)] for row in by_interval
    ]
    number = hover_number(spread.middles)
    cells = {
        "type": "heatmap",
        "x": list(spread.steps),
        "y": list(spread.middles),
        "z": by_interval,
        "text": words,
        "colorscale": [[0, "rgba(0,0,0,0)"], [1, colours.lines[0]]],
        "zmin": 0,
        "zmax": max((max(row) for row in by_interval), default=1.0) or 1.0,
        "showscale": False,
        "hovertemplate": f"step %{{x}}<br>about %{{y:{number}}}: %{{text}} {spread.of}<extra></extra>",
    }
    line = scatter(
        list(spread.steps), list(spread.lines), "lines+markers" if len(spread.steps) <= 2 * FEW else "lines",
        name=spread.line, line={"color": colours.lines[2 % len(colours.lines)], "width": 1.6},
        hovertemplate=f"{spread.line} %{{y:{number}}}<extra></extra>",
    )  # fmt: skip
    axis = {"nticks": 8, "type": "category" if len(spread.steps) <= FEW else "linear"}
    look = layout(theme, MARGIN, f"step; the line is the {spread.line}", spread.unit, xaxis=axis, yaxis={"nticks": 5})
    return go.Figure({"data": [cells, line], "layout": look})
