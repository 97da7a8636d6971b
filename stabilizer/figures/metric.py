"""A chart of one or several metrics of a run, with everything that happened drawn over it.

Figures are plain data: lists, not arrays, so that a page can extend them while a run goes on (`growth.py`), and nothing
here knows of Dash. Traces come in a fixed order: one line per metric, when smoothed one more for each with the values
as they were, then the values no axis can hold, then the marks of the story, then abandoned branches, each with a shade
for every incident on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stabilizer.core.records import Action, Event, Finding
from stabilizer.core.severity import ICONS, WORDS
from stabilizer.figures.axes import X
from stabilizer.figures.marks import MAX_HOVER, Marks, paragraph, story
from stabilizer.figures.parts import TEXT, scatter
from stabilizer.figures.plan import Branch, Plan, Y, margin
from stabilizer.figures.smoothing import steps_of
from stabilizer.figures.theme import TEMPLATES, Palette, Theme, palette
from stabilizer.figures.thinning import Thinning, Window
from stabilizer.figures.words import concerns, definition, hover_number, meaning_words
from stabilizer.runs.history import RunView, Series
from stabilizer.runs.story import Incident, incidents

MAX_POINTS = 2000
LABELLED = 5
"""Decades of a log axis up to which each of them has a label; more would touch."""
DOTTED = 200
"""Points up to which a line that has gaps of steps between them shows each of them."""


def metric_figure(
    view: RunView,
    names: str | Sequence[str],
    *,
    findings: Iterable[Finding] = (),
    events: Iterable[Event] = (),
    actions: Iterable[Action] = (),
    abandoned: Iterable[Branch] = (),
    theme: Theme = "light",
    max_points: int = MAX_POINTS,
    x: X = "step",
    y: Y = "auto",
    smooth: float = 0.0,
    window: Window | None = None,
    title: str | None = None,
) -> go.Figure:
    """The chart of `names` (one metric, or several of one unit) as known at the view's step.

    `findings` may be the raw records of findings.jsonl: the newest of each counts. `title` is drawn in the figure when
    given, with a legend when there are several metrics; its hover text carries the definitions. With x="tokens" or
    "time", a run that did not count or time its steps falls back to steps. `smooth` is a mean over so many steps, taken
    before anything is thinned, with the values as they were faint behind it. `window` is the shown range of the x axis:
    its points come in full, up to `max_points`, and the y axis fits them.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    colours = palette(theme)
    plan = Plan(view, names, x, y, smooth, tuple(abandoned))
    findings = list(findings)
    onsets = [incident.onset for incident in incidents(findings)]
    lines: list[dict[str, Any]] = []
    behind: list[dict[str, Any]] = []
    thinning = Thinning(plan, window, tuple(onsets))
    columns = [thinning.of(view.series(name), max_points // 2 if smooth else max_points) for name in names]
    means = [thinning.of(plan.shown(name), max_points) for name in names] if smooth else columns
    for index, (name, raw, shown) in enumerate(zip(names, columns, means, strict=True)):
        trace = _line_trace(plan, name, shown, colours.lines[index % len(colours.lines)], len(names) > 1)
        lines.append({**trace, "zorder": len(names) - index})  # the first metric is the main one: on top
        if smooth:
            behind.append(_raw_trace(plan, raw, trace))
    marks = story(names, view.step, plan.axis.place, colours, findings, events, actions)
    traces = [*lines, *behind, _off_axis_trace(plan.off_axis(columns, colours)), _marks_trace(marks)]
    for branch in plan.branches:
        for index, name in enumerate(names):
            series = thinning.of(branch.tail(name), max_points // 2)
            if len(series) and series.steps[-1] >= branch.from_step:
                traces.append(_branch_trace(plan, name, series, branch, colours, index))
                traces += [
                    _branch_incident(plan, name, incident, series, branch, colours)
                    for incident in incidents(branch.findings)
                ]
    layout = _layout(plan, theme, colours, marks, title)
    layout["xaxis"]["title"]["text"] = thinning.title([view.series(name) for name in names], means)
    if window:
        layout["xaxis"]["range"] = list(window[:2])
        layout["yaxis"]["range"] = list(window[2:]) or thinning.heights([*means, *columns])
    return go.Figure({"data": traces, "layout": layout})


def _marks_trace(marks: Marks) -> dict[str, Any]:
    """The points of a story as a trace on the hidden 0-1 axis."""
    points = marks.points
    marker = {"size": points["size"], "symbol": points["symbol"], "color": points["colour"], "opacity": 1}
    return _beside(points, marker | {"line": {"width": 0}})


def _line_trace(plan: Plan, name: str, series: Series, colour: str, several: bool) -> dict[str, Any]:
    known = definition(plan.view, name)
    count = len(plan.view.series(name))
    sparse = count <= 30 or (count <= DOTTED and int(np.median(np.diff(series.steps))) > 1)
    unit = "" if known.unit in ("", "1") else f" {_literal(known.unit)}"
    label = _literal(name)
    over = steps_of(name, plan.smooth)
    mean = f" (mean over {over:g} steps)" if over else ""
    return scatter(
        **plan.column(series), mode="lines+markers" if sparse else "lines", name=escape(name),
        line={"color": colour, "width": 1.4}, marker={"size": 4, "color": colour},
        hovertemplate=f"{label} <b>%{{y:{_number(plan)}}}</b>{unit}{mean} · step {_step(plan)}<extra></extra>",
        showlegend=several,
    )  # fmt: skip


def _raw_trace(plan: Plan, series: Series, trace: dict[str, Any]) -> dict[str, Any]:
    return {
        **trace,
        **plan.column(series),
        "mode": "lines",
        "opacity": 0.28,
        "zorder": 0,
        "showlegend": False,
        "line": {**trace["line"], "width": 1},
        "hoverinfo": "skip",
        "hovertemplate": None,
    }


def _step(plan: Plan) -> str:
    """The step of a point, in a hover template."""
    return "%{x:d}" if plan.axis.by_step else "%{customdata}"


def _number(plan: Plan) -> str:
    """The format of a value, in a hover template."""
    return hover_number(plan.bounds or ())


def _branch_trace(
    plan: Plan, name: str, series: Series, branch: Branch, colours: Palette, index: int
) -> dict[str, Any]:
    hover = f"{_literal(name)} %{{y:{_number(plan)}}} · step {_step(plan)} · attempt {branch.view.attempt}"
    line = {"color": colours.abandoned, "width": 1.1, "dash": ("solid", "dash", "dot")[index % 3]}
    drawn: dict[str, Any] = {"showlegend": False, "zorder": -1, "opacity": 0.7, "line": line}
    return scatter(**plan.column(series), **drawn, hovertemplate=f"{hover}, rolled back<extra></extra>")


def _branch_incident(
    plan: Plan, name: str, incident: Incident, series: Series, branch: Branch, colours: Palette
) -> dict[str, Any]:
    """An incident of an abandoned branch, as a shade along that branch's line only."""
    start, end = (int(np.searchsorted(series.steps, step)) for step in (incident.onset, incident.last + 1))
    part = Series(series.steps[max(0, start - 1) : end], series.values[max(0, start - 1) : end])
    mine = any(name in concerns(finding) for finding in incident.findings)
    lines = [
        f"<b>{ICONS[incident.severity]} {WORDS[incident.severity]}</b> {escape(incident.lead.id)}, steps"
        f" {incident.onset}–{incident.last}, on attempt {branch.view.attempt}, rolled back",
        *paragraph(incident.lead.summary[:MAX_HOVER]),
    ]
    line = {"color": colours.severity[incident.severity], "width": 7}
    drawn: dict[str, Any] = {"showlegend": False, "zorder": -2, "opacity": 0.45 if mine else 0.2, "line": line}
    return scatter(**plan.column(part), **drawn, text="<br>".join(lines), hovertemplate=TEXT)


def _off_axis_trace(off: dict[str, list[Any]]) -> dict[str, Any]:
    return _beside(off, {"size": 8, "symbol": off["symbol"], "color": off["colour"], "line": {"width": 2}})


def _beside(points: dict[str, list[Any]], marker: dict[str, Any]) -> dict[str, Any]:
    """Points on the hidden 0-1 axis, each with a text."""
    place = {"yaxis": "y2", "x": points["x"], "y": points["y"], "text": points["text"]}
    drawn = {"hovertemplate": TEXT, "showlegend": False, "cliponaxis": False, "marker": marker}
    return {"type": "scatter", "mode": "markers", **place, **drawn}


def _layout(plan: Plan, theme: Theme, colours: Palette, marks: Marks, title: str | None) -> dict[str, Any]:
    firsts = [int(steps[0]) for steps, _ in map(plan.view.series, plan.view.names()) if len(steps)]
    rows = 1 + any(annotation["yshift"] > 1 for annotation in marks.annotations)
    legend = bool(title) and len(plan.names) > 1
    return {
        "template": TEMPLATES[theme],
        "margin": {"l": 8, "r": 12, "t": 4 + 14 * rows + (26 if title else 0), "b": 34 if legend else 8},
        "hovermode": "closest" if len(plan.names) == 1 else "x",
        "hoverdistance": 30,
        "showlegend": legend,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"},
        "xaxis": {
            "title": {"text": plan.axis.title},
            "tickformat": _ticks(plan),
            "autorangeoptions": {"minallowed": plan.axis.place(min(firsts))} if firsts else {},
        },
        "yaxis": _y_axis(plan),
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        "shapes": marks.shapes,
        "annotations": [*marks.annotations, *([_title(plan, title, rows, colours)] if title else [])],
    }


def _y_axis(plan: Plan) -> dict[str, Any]:
    kinds = {definition(plan.view, name).kind for name in plan.names}
    around = margin(*plan.bounds) if plan.bounds else ()
    decades = float(np.log10(plan.bounds[1] / plan.bounds[0])) if plan.bounds and plan.log else 0.0
    return {
        "title": {"text": escape(_unit(plan))},
        "type": "log" if plan.log else "linear",
        "rangemode": "tozero" if kinds <= {"fraction", "positive"} and not plan.log else "normal",
        "nticks": 6,
        "exponentformat": "power",
        "autorangeoptions": {"include": list(around)} if around else {},
        "hoverformat": _number(plan),
        **({"tickformat": "~g"} if plan.log else {}),  # plotly draws powers of ten in a larger font
        **({"dtick": 1} if plan.log and 2 <= decades <= LABELLED else {}),
    }


def _unit(plan: Plan) -> str:
    metrics = [definition(plan.view, name) for name in plan.names]
    units = list(dict.fromkeys(known.unit for known in metrics if known.unit not in ("", "1")))
    if len(units) == 1:
        return units[0]
    return "share" if all(known.kind == "fraction" for known in metrics) else " · ".join(units)


def _title(plan: Plan, title: str, rows: int, colours: Palette) -> dict[str, Any]:
    """The title above `rows` rows of labels; its hover text defines the metrics."""
    meanings = [_folded(meaning_words(plan.view, name)) for name in plan.names]
    return {
        "x": 0,
        "xref": "paper",
        "y": 1,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": 14 * rows + 4,
        "showarrow": False,
        "text": f"<b>{escape(title)}</b>",
        "font": {"size": 14, "color": colours.text},
        "hovertext": "<br>".join(meanings),
    }


def _literal(text: str) -> str:
    """Text as itself inside a hover template, where braces would be read as well as tags."""
    return escape(text).replace("{", "&#123;")


def _folded(text: str) -> str:
    return "<br>".join(escape(line) for line in wrap(text, 70))


def _ticks(plan: Plan) -> str:
    if plan.axis.title.startswith("time"):
        return "~g"
    return "d" if plan.axis.by_step and plan.view.step < 10_000 else "~s"
