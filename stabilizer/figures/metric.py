"""A chart of one or several metrics of a run, with everything that happened drawn over it.

Figures are plain data: lists, not arrays, so that a page can extend them while a run goes on (`growth`), and nothing
here knows of Dash. Traces come in a fixed order: one line per metric, then the values no axis can hold (`OFF_AXIS`),
then the marks of the story, then abandoned branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from stabilizer.figures.marks import Marks, incidents, story
from stabilizer.figures.points import thin, wants_log
from stabilizer.figures.theme import TEMPLATES, Palette, Theme, palette
from stabilizer.figures.words import definition, meaning_words, short
from stabilizer.records import Action, Event, Finding
from stabilizer.runs.history import History, RunView, Series

X = Literal["step", "tokens"]

MAX_POINTS = 2000
TOKENS = "tokens/total"


@dataclass(frozen=True, slots=True)
class Branch:
    """What an attempt measured after the step a later attempt went back to."""

    view: RunView
    from_step: int


def abandoned(histories: Mapping[int, History]) -> list[Branch]:
    """The branches the current lineage left behind, by attempt."""
    current = max(histories)
    rows = histories[current].about.get("attempts")
    left: dict[int, int] = {}
    for row in rows if isinstance(rows, list) else []:
        parent, start = (row.get("parent"), row.get("from_step")) if isinstance(row, dict) else (None, None)
        if isinstance(parent, int) and isinstance(start, int) and parent in histories and parent != current:
            left[parent] = min(start, left.get(parent, start))
    return [Branch(histories[attempt].view(), start) for attempt, start in left.items()]


@dataclass(frozen=True)
class Drawn:
    """What a figure already shows, enough to tell what must be added: points of each metric and the kind of y axis."""

    counts: tuple[int, ...]
    shown: int
    log: bool


@dataclass(frozen=True)
class Growth:
    """New points for the line traces and the trace of off-axis values, and where on the x axis the present is."""

    lines: tuple[dict[str, list[Any]], ...]
    off_axis: dict[str, list[Any]]
    now: float
    drawn: Drawn


@dataclass
class _Plan:
    """How the metrics of one chart are placed: computed once, used by first drawing and growth alike."""

    view: RunView
    names: tuple[str, ...]
    x: X
    branches: Sequence[Branch] = ()
    log: bool = False
    place: Callable[[int], float] = field(init=False)

    def __post_init__(self) -> None:
        tokens = self.view.series(TOKENS).finite() if self.x == "tokens" else None
        self.by_tokens = bool(tokens)
        self.place = _places(tokens) if tokens else float
        columns = [self.view.series(name).values for name in self.names]
        columns += [_tail(branch, name).values for name in self.names for branch in self.branches]
        positive = all(definition(self.view, name).kind == "positive" for name in self.names)
        self.log = positive and wants_log(np.concatenate(columns))

    def line(self, series: Series) -> dict[str, list[Any]]:
        """Columns of a line trace; a value the axis can't hold is a gap."""
        fits = self.fits(series.values)
        steps = series.steps.tolist()
        return {
            "x": [self.place(step) for step in steps] if self.by_tokens else steps,
            "y": [v if ok else None for v, ok in zip(series.values.tolist(), fits.tolist(), strict=True)],
            "customdata": steps,
        }

    def fits(self, values: np.ndarray) -> np.ndarray:
        """Which values can be drawn where they belong."""
        return np.isfinite(values) & (values > 0) if self.log else np.isfinite(values)

    def off_axis(self, name: str, series: Series, colours: Palette) -> dict[str, list[Any]]:
        """Columns of points for values that can't: NaN and Inf in alarm colour, zeros of a log axis in grey."""
        out: dict[str, list[Any]] = {"x": [], "y": [], "text": [], "colour": [], "symbol": []}
        for index in np.flatnonzero(~self.fits(series.values)):
            step, value = int(series.steps[index]), float(series.values[index])
            finite = np.isfinite(value)
            low = finite or value == -np.inf
            words = f"{short(value)} (below a log axis)" if finite else short(value)
            out["x"].append(self.place(step))
            out["y"].append(0.03 if low else 0.93)
            out["text"].append(f"{escape(name)}: <b>{words}</b> at step {step}")
            out["colour"].append(colours.muted if finite else colours.severity["critical"])
            out["symbol"].append("circle-open" if finite else "x-thin-open" if np.isnan(value) else "arrow-up-open")
        return out


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
    title: str | None = None,
) -> go.Figure:
    """The chart of `names` (one metric, or several of one unit) as known at the view's step.

    `findings` may be the raw records of findings.jsonl: the newest of each counts. `title` is drawn in the figure when
    given, with a legend when there are several metrics; its hover text carries the definitions. With x="tokens", a run
    that counted no tokens falls back to steps.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    colours = palette(theme)
    plan = _Plan(view, names, x, tuple(abandoned))
    findings = list(findings)
    onsets = [incident.onset for incident in incidents(findings)]
    traces: list[dict[str, Any]] = []
    off = {"x": [], "y": [], "text": [], "colour": [], "symbol": []}
    for index, name in enumerate(names):
        series = _thinned(view.series(name), max_points, onsets)
        trace = _line_trace(plan, name, series, colours.lines[index % len(colours.lines)], len(names) > 1)
        traces.append({**trace, "zorder": len(names) - index})  # the first metric is the main one: on top
        for key, values in plan.off_axis(name, series, colours).items():
            off[key] += values
    marks = story(names, view.step, plan.place, colours, findings, events, actions)
    traces += [_off_axis_trace(off), marks_trace(marks)]
    for branch in plan.branches:
        for index, name in enumerate(names):
            series = _thinned(_tail(branch, name), max_points // 2, ())
            if len(series) and series.steps[-1] >= branch.from_step:
                traces.append(_branch_trace(plan, name, series, branch, colours, index))
    return go.Figure({"data": traces, "layout": _layout(plan, theme, colours, marks, title)})


def drawn(
    view: RunView,
    names: Sequence[str],
    *,
    abandoned: Iterable[Branch] = (),
    max_points: int = MAX_POINTS,
    x: X = "step",
) -> Drawn:
    """What `metric_figure` shows of `names` when called now."""
    counts = tuple(len(view.series(name)) for name in names)
    plan = _Plan(view, tuple(names), x, tuple(abandoned))
    return Drawn(counts, max((min(count, max_points) for count in counts), default=0), plan.log)


def growth(
    view: RunView,
    names: Sequence[str],
    before: Drawn,
    *,
    abandoned: Iterable[Branch] = (),
    theme: Theme = "light",
    max_points: int = MAX_POINTS,
    x: X = "step",
) -> Growth | None:
    """What to add to a figure that shows `before`; None when it is better drawn anew."""
    plan = _Plan(view, tuple(names), x, tuple(abandoned))
    colours = palette(theme)
    columns = [view.series(name) for name in names]
    fresh = [Series(s.steps[n:], s.values[n:]) for s, n in zip(columns, before.counts, strict=True)]
    shown = before.shown + max(len(series) for series in fresh)
    shrunk = any(len(s) < n for s, n in zip(columns, before.counts, strict=True))
    if shrunk or plan.log != before.log or shown > 2 * max_points:
        return None
    off = {"x": [], "y": [], "text": [], "colour": [], "symbol": []}
    for name, series in zip(names, fresh, strict=True):
        for key, values in plan.off_axis(name, series, colours).items():
            off[key] += values
    return Growth(
        tuple(plan.line(series) for series in fresh),
        off,
        plan.place(view.step),
        Drawn(tuple(len(series) for series in columns), shown, plan.log),
    )


def marks_of(
    view: RunView,
    names: Sequence[str],
    findings: Iterable[Finding],
    events: Iterable[Event],
    actions: Iterable[Action],
    *,
    theme: Theme = "light",
    x: X = "step",
) -> Marks:
    """The story of a chart by itself, to renew it without sending the lines again."""
    plan = _Plan(view, tuple(names), x)
    return story(names, view.step, plan.place, palette(theme), findings, events, actions)


def marks_trace(marks: Marks) -> dict[str, Any]:
    """The points of a story as a trace on the hidden 0-1 axis."""
    points = marks.points
    return {
        "type": "scatter", "mode": "markers", "yaxis": "y2", "x": points["x"], "y": points["y"],
        "text": points["text"], "hovertemplate": "%{text}<extra></extra>", "showlegend": False, "cliponaxis": False,
        "marker": {
            "size": points["size"], "symbol": points["symbol"], "color": points["colour"], "opacity": 1,
            "line": {"width": 0},
        },
    }  # fmt: skip


def _line_trace(plan: _Plan, name: str, series: Series, colour: str, several: bool) -> dict[str, Any]:
    known = definition(plan.view, name)
    sparse = len(series) <= 30 or int(np.median(np.diff(series.steps))) > 1
    unit = "" if known.unit in ("", "1") else f" {_literal(known.unit)}"
    label = _literal(name)
    return {
        "type": "scatter", "mode": "lines+markers" if sparse else "lines", **plan.line(series),
        "name": escape(name),
        "line": {"color": colour, "width": 1.4}, "marker": {"size": 4, "color": colour},
        "hovertemplate": f"{label} <b>%{{y:.4g}}</b>{unit} · step %{{customdata}}<extra></extra>",
        "showlegend": several,
    }  # fmt: skip


def _branch_trace(
    plan: _Plan, name: str, series: Series, branch: Branch, colours: Palette, index: int
) -> dict[str, Any]:
    attempt = branch.view.attempt
    return {
        "type": "scatter", "mode": "lines", **plan.line(series), "showlegend": False, "zorder": -1, "opacity": 0.7,
        "line": {"color": colours.abandoned, "width": 1.1, "dash": ("solid", "dash", "dot")[index % 3]},
        "hovertemplate": f"{_literal(name)} %{{y:.4g}} · step %{{customdata}} · attempt {attempt}, rolled back"
                         "<extra></extra>",
    }  # fmt: skip


def _off_axis_trace(off: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "yaxis": "y2", "x": off["x"], "y": off["y"], "text": off["text"],
        "hovertemplate": "%{text}<extra></extra>", "showlegend": False, "cliponaxis": False,
        "marker": {"size": 8, "symbol": off["symbol"], "color": off["colour"], "line": {"width": 2}},
    }  # fmt: skip


def _layout(plan: _Plan, theme: Theme, colours: Palette, marks: Marks, title: str | None) -> dict[str, Any]:
    units = [definition(plan.view, name) for name in plan.names]
    fraction = all(known.kind == "fraction" for known in units)
    words = list(dict.fromkeys(known.unit for known in units if known.unit not in ("", "1")))
    unit = words[0] if len(words) == 1 else "share" if fraction else " · ".join(words)
    firsts = [int(steps[0]) for steps, _ in map(plan.view.series, plan.view.names()) if len(steps)]
    from_zero = all(known.kind in ("fraction", "positive") for known in units)
    rows = 1 + any(annotation["yshift"] > 1 for annotation in marks.annotations)
    legend = bool(title) and len(plan.names) > 1
    annotations = list(marks.annotations)
    if title:
        meanings = [_folded(meaning_words(plan.view, name)) for name in plan.names]
        annotations.append(
            {
                "x": 0, "xref": "paper", "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "bottom",
                "yshift": 14 * rows + 4, "showarrow": False, "text": f"<b>{escape(title)}</b>",
                "font": {"size": 14, "color": colours.text}, "hovertext": "<br>".join(meanings),
            }
        )  # fmt: skip
    return {
        "template": TEMPLATES[theme],
        "margin": {"l": 8, "r": 12, "t": 4 + 14 * rows + (26 if title else 0), "b": 34 if legend else 8},
        "hovermode": "closest" if len(plan.names) == 1 else "x",
        "hoverdistance": 30,
        "showlegend": legend,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"},
        "xaxis": {
            "title": {"text": "tokens" if plan.by_tokens else "step"},
            "tickformat": "~s" if plan.by_tokens or plan.view.step >= 10_000 else "d",
            "autorangeoptions": {"minallowed": plan.place(min(firsts))} if firsts else {},
        },
        "yaxis": {
            "title": {"text": escape(unit)},
            "type": "log" if plan.log else "linear",
            "rangemode": "tozero" if from_zero and not plan.log else "normal",
            "nticks": 6,
            "exponentformat": "power",
            "hoverformat": ".4g",
            **({"dtick": 1} if plan.log else {}),
        },
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        "shapes": marks.shapes,
        "annotations": annotations,
    }


def _literal(text: str) -> str:
    """Text as itself inside a hover template, where braces would be read as well as tags."""
    return escape(text).replace("{", "&#123;")


def _folded(text: str, width: int = 70) -> str:
    return "<br>".join(escape(line) for line in wrap(text, width))


def _places(tokens: Series) -> Callable[[int], float]:
    """Position of a step on an axis of tokens: those counted when it ended."""
    steps, totals = tokens

    def place(step: int) -> float:
        return float(totals[max(0, int(np.searchsorted(steps, step, side="right")) - 1)])

    return place


def _tail(branch: Branch, name: str) -> Series:
    series = branch.view.series(name)
    start = max(0, int(np.searchsorted(series.steps, branch.from_step)) - 1)
    return Series(series.steps[start:], series.values[start:])


def _thinned(series: Series, budget: int, steps: Iterable[int]) -> Series:
    if len(series) <= budget:
        return series
    keep = thin(series.values, budget, np.searchsorted(series.steps, list(steps)).tolist())
    return Series(series.steps[keep], series.values[keep])
