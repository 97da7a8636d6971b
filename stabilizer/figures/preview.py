"""A figure of a metric as a picture that needs no script: what to look at until the real one can be drawn.

It shows the lines, the spans of incidents and the lines of what happened, on the figure's own scale, and says the ends
of both axes; what hovers, zooms and is spelled out stays with the figure. Like `spark`, it comes as a `data:` address
and is made of nothing but numbers and the theme's own colours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from stabilizer.core.text import short

SIZE = 1000
"""Units of the picture either way; it is stretched to its place."""
HUGE = 308.0
"""Logarithm of the largest number on an axis."""
ROOM = 0.05
"""Of the height, above and below the lines."""
COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
DASHES = {"dash": "6 4", "dot": "2 3"}


@dataclass(frozen=True)
class Preview:
    """The picture, and what the ends of its axes are called."""

    picture: str
    lowest: str
    highest: str
    first: str
    last: str


def preview(figure: Mapping[str, Any]) -> Preview | None:
    """The preview of what `metric_figure` drew, as plain data; None when there is no finite value to draw."""
    layout = figure["layout"]
    log = layout["yaxis"].get("type") == "log"
    traces = [trace for trace in figure["data"] if str(trace.get("mode", "")).startswith("lines")]
    lines = [(trace, _points(trace, log)) for trace in traces]
    points = [point for _, line in lines for point in line]
    scale = _scale(points, from_zero=layout["yaxis"].get("rangemode") == "tozero")
    if scale is None:
        return None
    shapes = "".join(_shape(shape, scale) for shape in layout.get("shapes", ()))
    paths = "".join(_path(trace, points, scale) for trace, points in reversed(lines))
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {SIZE} {SIZE}' preserveAspectRatio='none' fill='none'"
        f" stroke-linejoin='round'>{shapes}{paths}</svg>"
    )
    return Preview(
        "data:image/svg+xml," + quote(svg, safe=" ='/:,.-"),
        *(short(_value(end, log)) for end in (scale.low, scale.high)),
        *map(short, (scale.left, scale.right)),
    )


@dataclass(frozen=True)
class _Scale:
    """Where numbers are in the picture."""

    left: float
    right: float
    low: float
    high: float

    def x(self, x: float) -> int:
        return round(SIZE * (x - self.left) / ((self.right - self.left) or 1))

    def y(self, y: float) -> int:
        room = (self.high - self.low) or 1
        return round(SIZE * (1 - ROOM - (1 - 2 * ROOM) * (y - self.low) / room))


def _value(height: float, log: bool) -> float:
    """The value at a height; the reverse of `_height`."""
    return float(10 ** min(height, HUGE)) if log else height


def _points(trace: Mapping[str, Any], log: bool) -> list[tuple[Any, float | None]]:
    return [(x, _height(y, log)) for x, y in zip(trace["x"], trace["y"], strict=True)]


def _scale(points: Sequence[tuple[Any, float | None]], *, from_zero: bool) -> _Scale | None:
    """The ranges that hold all points; None where there is no finite one."""
    heights = [y for _, y in points if y is not None]
    places = [x for x, _ in points if x is not None]
    if not heights:
        return None
    low, high = min(heights), max(heights)
    if not math.isfinite(high - low) or not math.isfinite(max(places) - min(places)):
        return None
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    return _Scale(min(places), max(places), low, high)


def _height(y: float | None, log: bool) -> float | None:
    if y is None or not math.isfinite(y) or (log and y <= 0):
        return None
    return math.log10(y) if log else y


def _path(trace: Mapping[str, Any], points: Sequence[tuple[Any, float | None]], scale: _Scale) -> str:
    pieces, pen = [], "M"
    for x, y in points:
        if x is None or y is None:
            pen = "M"
            continue
        pieces.append(f"{pen}{scale.x(x)},{scale.y(y)}")
        pen = "L"
    line = trace.get("line", {})
    return f"<path d='{''.join(pieces)}'{_stroke(line, trace.get('opacity', 1))}/>"


def _shape(shape: Mapping[str, Any], scale: _Scale) -> str:
    start, end = (min(max(scale.x(shape[key]), 0), SIZE) for key in ("x0", "x1"))
    if shape["type"] == "rect":
        colour = _colour(shape.get("fillcolor"))
        width = max(2, end - start)
        return f"<rect x='{start}' width='{width}' height='{SIZE}' fill='{colour}' opacity='{shape['opacity']:g}'/>"
    return f"<path d='M{start},0V{SIZE}'{_stroke(shape['line'], shape.get('opacity', 1))}/>"


def _stroke(line: Mapping[str, Any], opacity: float) -> str:
    dashes = DASHES.get(line.get("dash", ""), "")
    return (
        f" stroke='{_colour(line.get('color'))}' stroke-width='{line.get('width', 1):g}' opacity='{opacity:g}'"
        f" vector-effect='non-scaling-stroke'" + (f" stroke-dasharray='{dashes}'" if dashes else "")
    )


def _colour(words: Any) -> str:
    return words if isinstance(words, str) and COLOUR.fullmatch(words) else "#888888"
