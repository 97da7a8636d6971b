"""A run over its reference: the logged points faint, their smooth on top, on one axis or each on its own rise."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from stabilizer.core.points import thin
from stabilizer.figures.parts import WIDE as MARGIN
from stabilizer.figures.parts import layout, scatter
from stabilizer.figures.theme import Theme, palette
from stabilizer.figures.words import PLACE, hover_number

RUN, REFERENCE = 0, 2
"""Which of the palette's lines the two sides have."""
WIDE = 8
"""How many times longer one side may be before the x axis is logarithmic: the shorter would be a mark at the edge."""
MAX_POINTS = 800


class Line(NamedTuple):
    """One member of a side: positions, logged values, smooth."""

    name: str
    x: np.ndarray
    y: np.ndarray
    line: np.ndarray


def compared_figure(
    run: Sequence[Line],
    reference: Sequence[Line],
    *,
    x_title: str,
    relative: bool = False,
    theme: Theme = "light",
) -> go.Figure:
    """Both sides in one chart; `relative` puts each between its own start (0) and best (1), so that shapes compare.

    Per member two traces, points then smooth; members of the run first. The reference's smooth is dashed.
    """
    colours = palette(theme)
    ends = [float(item.x[-1]) for item in (*run, *reference)]
    log = min(ends) > 0 and max(ends) / min(ends) > WIDE
    traces: list[dict[str, Any]] = []
    for side, place, dash in ((run, RUN, "solid"), (reference, REFERENCE, "dash")):
        for item in side:
            points, smooth = (item.y, item.line) if not relative else _relative(item)
            colour = colours.lines[place]
            traces.append(_trace(item, points, colour, log, width=1, opacity=0.35, dash="solid"))
            traces.append(_trace(item, smooth, colour, log, width=2, opacity=1, dash=dash))
    if log:
        x_title += ", logarithmic"
    axis = {"type": "log" if log else "linear"}
    return go.Figure({"data": traces, "layout": layout(theme, MARGIN, x_title, xaxis=axis)})


def _relative(item: Line) -> tuple[np.ndarray, np.ndarray]:
    start = float(item.line[0])
    away = item.line - start
    size = float(away[np.argmax(np.abs(away))]) or 1.0
    return (item.y - start) / size, away / size


def _trace(
    item: Line, values: np.ndarray, colour: str, log: bool, *, width: float, opacity: float, dash: str
) -> dict[str, Any]:
    keep = thin(values, MAX_POINTS)
    keep = keep[item.x[keep] > 0] if log else keep
    name, number = escape(item.name), hover_number(values.tolist())
    return scatter(
        item.x[keep].tolist(), values[keep].tolist(), name=name, opacity=opacity,
        line={"color": colour, "width": width, "dash": dash},
        hovertemplate=f"{name.replace('%', '&#37;')} <b>%{{y:{number}}}</b> at %{{x:{PLACE}}}<extra></extra>",
    )  # fmt: skip
