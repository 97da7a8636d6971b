"""The rewards of each group of a step: groups as columns, a dot per reward, larger where several are equal.

A column with a single dot has no learning signal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import plotly.graph_objects as go

from stabilizer.figures.parts import TEXT, layout, scatter
from stabilizer.figures.theme import Theme, palette

MAX_GROUPS = 300
MAX_DOTS = 3000
MARGIN = {"l": 8, "r": 8, "t": 6, "b": 6}


class GroupRewards(NamedTuple):
    """A group: its prompt in a few words, and what each completion got."""

    prompt: str
    rewards: tuple[float, ...]


def group_rewards_figure(groups: Sequence[GroupRewards], *, unit: str = "reward", theme: Theme = "light") -> go.Figure:
    """Groups from the lowest mean to the highest; of very many, evenly chosen ones."""
    colours = palette(theme)
    finite = [(group, [v for v in group.rewards if math.isfinite(v)]) for group in groups]
    ranked = sorted(((g, v) for g, v in finite if v), key=lambda pair: sum(pair[1]) / len(pair[1]))
    if len(ranked) > MAX_GROUPS:
        ranked = [ranked[round(i * (len(ranked) - 1) / (MAX_GROUPS - 1))] for i in range(MAX_GROUPS)]
    traces = []
    for name, alike, colour, symbol in (
        ("rewards differ", False, colours.lines[0], "circle"),
        ("all equal: no learning signal", True, colours.muted, "circle-open"),
    ):
        x: list[int] = []
        y: list[float] = []
        size: list[float] = []
        text: list[str] = []
        for place, (group, values) in enumerate(ranked, 1):
            counted = Counter(round(value, 4) for value in values)
            if (len(counted) == 1) is not alike:
                continue
            for value, count in counted.items():
                if len(x) >= MAX_DOTS:
                    break
                x.append(place)
                y.append(value)
                size.append(round(6 + 10 * math.sqrt(count / len(values)), 1))
                text.append(f"{escape(group.prompt)}<br><b>{value:.4g}</b>: {count} of {len(values)}")
        marker = {"size": size, "color": colour, "symbol": symbol, "opacity": 0.85, "line": {"width": 1.2}}
        traces.append(scatter(x, y, "markers", name=name, text=text, hovertemplate=TEXT, marker=marker))
    marks = {"dtick": 1} if len(ranked) <= 20 else {"nticks": 8}
    axis = {"tickformat": "d", **marks, "range": [0.4, max(len(ranked), 1) + 0.6]}
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    look = layout(theme, MARGIN, "groups, lowest mean first", unit, xaxis=axis, yaxis={"nticks": 5})
    look |= {"showlegend": True, "legend": legend}
    return go.Figure({"data": traces, "layout": look})
