"""Groups of runs in one chart: median and band of each, the runs themselves faint behind; and when what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import plotly.graph_objects as go

from stabilizer.core.severity import ICONS, WORDS
from stabilizer.core.text import cut
from stabilizer.figures.parts import NARROW, TEXT, layout, scatter, upright
from stabilizer.figures.theme import Palette, Theme, palette
from stabilizer.figures.words import PLACE, hover_number

if TYPE_CHECKING:
    from stabilizer.compare.many import GroupCurve

DASHES = ("solid", "dash", "dot")
"""Beyond as many groups as there are colours, the same colours come again dashed."""
ROW = 26
"""Height of a timeline's row in pixels."""


class Span(NamedTuple):
    """Something that lasted: an incident, from its onset to when it was last seen."""

    start: float
    end: float
    severity: str
    text: str
    open: bool = False


class Mark(NamedTuple):
    """Something that happened: a fix that was applied, or a viewer's note."""

    x: float
    text: str


class Timeline(NamedTuple):
    """One run: from where to where it goes, what went wrong in it, and what was done."""

    name: str
    start: float
    end: float
    spans: tuple[Span, ...] = ()
    marks: tuple[Mark, ...] = ()
    notes: tuple[Mark, ...] = ()


def line_style(place: int, theme: Theme) -> tuple[str, str]:
    """Colour and dash of a group, by its place among all groups."""
    lines = palette(theme).lines
    return lines[place % len(lines)], DASHES[place // len(lines) % len(DASHES)]


def many_figure(
    curves: Sequence[GroupCurve],
    places: Sequence[int],
    *,
    x_title: str,
    y_title: str = "",
    theme: Theme = "light",
    notes: Sequence[tuple[Mark, int]] = (),
) -> go.Figure:
    """One metric of all groups. `places` says which place, and so which colour, each group has on the page; `notes` are
    those of their runs, each with the place of its group.

    Behind: logged points and the runs' smooths; then bands; on top the medians, which alone answer to the mouse.
    """
    behind: list[dict[str, Any]] = []
    bands: list[dict[str, Any]] = []
    front: list[dict[str, Any]] = []
    for curve, place in zip(curves, places, strict=True):
        colour, dash = line_style(place, theme)
        several = len(curve.members) > 1
        for member in curve.members:
            if member.raw_x:
                behind.append(
                    _line(member.name, member.raw_x, member.raw_y, colour, 1, opacity=0.13 if several else 0.28)
                )
            if several:
                behind.append(_line(member.name, member.x, member.y, colour, 1, opacity=0.45, hover=True))
        if curve.band:
            bands.append(_line(curve.label, curve.x, curve.high, colour, 0, opacity=1))
            fill = {"fill": "tonexty", "fillcolor": _faded(colour)}
            bands.append({**_line(curve.label, curve.x, curve.low, colour, 0, opacity=1), **fill})
        words = f"{curve.label}, median of {len(curve.members)}" if several else curve.label
        front.append(_line(words, curve.x, curve.middle, colour, 2.2, dash=dash, hover=True))
    look = layout(theme, NARROW, x_title, y_title, yaxis={"nticks": 6})
    look |= _stars([(mark, line_style(place, theme)[0]) for mark, place in notes])
    return go.Figure({"data": behind + bands + front, "layout": look})


def _stars(notes: Sequence[tuple[Mark, str]]) -> dict[str, Any]:
    """Notes as upright lines with a star on top, each in its colour."""
    top = {"y": 1, "yref": "paper", "yanchor": "bottom", "yshift": -8, "showarrow": False, "text": "★"}
    return {
        "shapes": [upright(mark.x, colour, "dashdot") for mark, colour in notes],
        "annotations": [
            {**top, "x": mark.x, "font": {"color": colour}, "hovertext": escape(mark.text)} for mark, colour in notes
        ],
    }


def timelines_figure(rows: Sequence[Timeline], *, x_title: str, theme: Theme = "light") -> go.Figure:
    """Runs one above the other on one axis, the first at the top; thick where something was wrong."""
    colours = palette(theme)
    names = [f"{place + 1}. {escape(row.name)}" for place, row in enumerate(rows)]
    traces: list[dict[str, Any]] = []
    base = {"color": colours.grid, "width": 6}
    for name, row in zip(names, rows, strict=True):
        ends: dict[str, Any] = {"x": [row.start, row.end], "y": [name, name]}
        traces.append(scatter(**ends, hoverinfo="skip", line=base))
    for name, row in zip(names, rows, strict=True):
        traces += [_incident(name, row, span, colours) for span in row.spans]
    fixes = [(mark, name) for name, row in zip(names, rows, strict=True) for mark in row.marks]
    notes = [(mark, name) for name, row in zip(names, rows, strict=True) for mark in row.notes]
    traces += [_points(fixes, "triangle-down", colours.fix, colours), _points(notes, "star", colours.text, colours)]
    axis = {
        "type": "category", "categoryorder": "array", "categoryarray": names[::-1], "showgrid": False,
        "ticklabelstandoff": 8, "range": [-0.7, len(rows) - 0.3], "tickvals": names,
        "ticktext": [cut(name, 34) for name in names],
    }  # fmt: skip
    look = layout(theme, NARROW, x_title, height=70 + ROW * len(rows))
    return go.Figure({"data": traces, "layout": look | {"yaxis": axis}})


def _points(marks: Sequence[tuple[Mark, str]], symbol: str, colour: str, colours: Palette) -> dict[str, Any]:
    """Marks, each in the row of its run."""
    marker = {"symbol": symbol, "size": 11, "color": colour, "line": {"width": 1, "color": colours.surface}}
    x, y, text = [mark.x for mark, _ in marks], [name for _, name in marks], [escape(mark.text) for mark, _ in marks]
    return scatter(x, y, "markers", text=text, hovertemplate=TEXT, marker=marker)


def _incident(name: str, row: Timeline, span: Span, colours: Palette) -> dict[str, Any]:
    end = max(span.end, span.start + 0.004 * (row.end - row.start))
    state = "open" if span.open else "resolved"
    text = f"{ICONS.get(span.severity, '')} <b>{WORDS.get(span.severity, span.severity)}</b>, {state}"
    line = {"color": colours.severity.get(span.severity, colours.muted), "width": 12}
    words = [f"{text}<br>{escape(span.text)}"] * 3
    x = [span.start, (span.start + end) / 2, end]
    return scatter(x, [name] * 3, opacity=1 if span.open else 0.6, line=line, text=words, hovertemplate=TEXT)


def _line(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    colour: str,
    width: float,
    *,
    opacity: float = 1,
    dash: str = "solid",
    hover: bool = False,
) -> dict[str, Any]:
    label = escape(name).replace("{", "&#123;").replace("%", "&#37;")
    shown = (
        {"hovertemplate": f"{label} <b>%{{y:{hover_number(y)}}}</b> at %{{x:{PLACE}}}<extra></extra>"}
        if hover
        else {"hoverinfo": "skip"}
    )
    line = {"color": colour, "width": width, "dash": dash}
    return scatter(list(x), list(y), name=escape(name), opacity=opacity, line=line, **shown)


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"
