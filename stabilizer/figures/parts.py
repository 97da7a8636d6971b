"""The parts of plotly's figures that several figures share, as plain data."""

from __future__ import annotations

from html import escape
from typing import Any

from stabilizer.figures.theme import TEMPLATES, Theme

WIDE = {"l": 52, "r": 14, "t": 14, "b": 44}
"""Margin of a figure whose axes have titles."""
NARROW = {"l": 8, "r": 12, "t": 8, "b": 8}
"""Margin of a figure whose axes make room for themselves."""
TEXT = "%{text}<extra></extra>"
"""Hover template of points that bring their own text."""


def scatter(x: list[Any], y: list[Any], mode: str = "lines", **more: Any) -> dict[str, Any]:
    """A trace of lines or markers."""
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **more}


def layout(
    theme: Theme, margin: dict[str, int], x: str, y: str = "", *, xaxis: Any = (), yaxis: Any = (), **more: Any
) -> dict[str, Any]:
    """A layout with the titles `x` and `y`; `xaxis` and `yaxis` are what else their axes need."""
    return {
        "template": TEMPLATES[theme],
        "margin": margin,
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": {"title": {"text": escape(x)}, **dict(xaxis)},
        "yaxis": {"title": {"text": escape(y)}, **dict(yaxis)},
        **more,
    }


def shade(start: float, end: float, colour: str, strength: float) -> dict[str, Any]:
    """A shade from top to bottom, below the lines."""
    place = {"x0": start, "x1": end, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    return {"type": "rect", **place, "fillcolor": colour, "opacity": strength, "line": {"width": 0}}


def upright(x: float, colour: str, dash: str = "solid") -> dict[str, Any]:
    """A vertical line through the whole chart, below the lines."""
    place = {"x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    return {"type": "line", **place, "line": {"color": colour, "width": 1, "dash": dash}}
