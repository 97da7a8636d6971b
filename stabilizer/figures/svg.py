"""A line chart as a small SVG file, for places where no script runs: model cards, mail, a README."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from stabilizer.core.points import thin
from stabilizer.core.text import rounded
from stabilizer.figures.theme import PALETTES

LIGHT = PALETTES["light"]
WARN = LIGHT.severity["warn"]
WIDTH, HEIGHT, LEFT, TOP, BELOW = 640, 200, 56, 26, 28
POINTS = 400


def line_chart(lines: Sequence[tuple[str, np.ndarray, np.ndarray]], *, spans: Sequence[tuple[int, int]] = ()) -> str:
    """One panel per (name, steps, values), below each other; `spans` of steps are shaded in all of them."""
    first = min((float(steps[0]) for _, steps, _ in lines), default=0.0)
    last = max((float(steps[-1]) for _, steps, _ in lines), default=1.0)
    panels = [_panel(i, *line, spans, first, max(last, first + 1)) for i, line in enumerate(lines)]
    height = max(1, len(lines)) * HEIGHT
    if not lines:
        panels = ['<text x="20" y="40">nothing was measured</text>']
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        f' font-size="12" fill="{LIGHT.muted}"><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(panels)}</svg>\n"
    )


def _panel(
    index: int,
    name: str,
    steps: np.ndarray,
    values: np.ndarray,
    spans: Sequence[tuple[int, int]],
    first: float,
    last: float,
) -> str:
    low, high = float(values.min()), float(values.max())
    room = (high - low) or 1.0
    top, bottom = index * HEIGHT + TOP, (index + 1) * HEIGHT - BELOW

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - 16) * (float(step) - first) / (last - first)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (float(value) - low) / room

    shown = thin(values, POINTS)
    path = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(steps[shown], values[shown], strict=True))
    shades = "".join(
        f'<rect x="{x(max(a, first)):.1f}" y="{top}" width="{max(2.0, x(min(b, last)) - x(max(a, first))):.1f}"'
        f' height="{bottom - top}" fill="{WARN}" opacity="0.15"/>'
        for a, b in spans
    )
    return (
        f'{shades}<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(name)}</text>'
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{rounded(high)}</text>'
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">{rounded(low)}</text>'
        f'<text x="{LEFT}" y="{bottom + 16}">step {first:g}</text>'
        f'<text x="{WIDTH - 16}" y="{bottom + 16}" text-anchor="end">{last:g}</text>'
        f'<polyline points="{path}" fill="none" stroke="{LIGHT.lines[0]}" stroke-width="1.5"/>'
    )
