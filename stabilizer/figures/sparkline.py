"""A metric's trend as a sparkline for a table cell: an SVG made of numbers alone.

It comes as a `data:` address, which a strict content policy allows for pictures. Gaps are values that were not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stabilizer.figures.theme import PALETTES, Theme

WIDTH, HEIGHT, EDGE = 72, 20, 2

Trend = Sequence[float | None]


def spark(trend: Trend, theme: Theme) -> str:
    """The address of the picture; empty with nothing to draw."""
    values = [value for value in trend if value is not None and math.isfinite(value)]
    if not values:
        return ""
    colour = PALETTES[theme].lines[0].replace("#", "%23")
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' fill='none' stroke='{colour}'"
        f" stroke-width='1.5' stroke-linejoin='round' stroke-linecap='round'>"
        f"<path d='{_path(trend, min(values), max(values))}'/></svg>"
    )
    return "data:image/svg+xml," + svg.replace("<", "%3C").replace(">", "%3E").replace(" ", "%20")


def _path(trend: Trend, low: float, high: float) -> str:
    room = high / 2 - low / 2
    across = (WIDTH - 2 * EDGE) / max(1, len(trend) - 1)
    pieces, pen = [], "M"
    for place, value in enumerate(trend):
        if value is None or not math.isfinite(value):
            pen = "M"
            continue
        share = (value / 2 - low / 2) / room if room > 0 else 0.5
        pieces.append(f"{pen}{EDGE + across * place:.0f},{HEIGHT - EDGE - share * (HEIGHT - 2 * EDGE):.1f}")
        pen = "L"
    return "".join(pieces)
