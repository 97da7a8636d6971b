"""How an incident unfolded: one row per signal with the step of its departure, and charts around the onset.

Pure figures, like all here; what is drawn is also said in words beside them, so nothing rests on the picture alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from stabilizer.core.records import Action, Event, Finding
from stabilizer.core.text import short
from stabilizer.figures.metric import metric_figure
from stabilizer.figures.parts import scatter, shade, upright
from stabilizer.figures.theme import TEMPLATES, Palette, Theme, palette
from stabilizer.incidents.diagnosis.order import Departed, Onset
from stabilizer.runs.history import History, RunView
from stabilizer.runs.story import incidents

ROW = 30
"""Pixels of a row of the timeline."""


def order_figure(
    signals: Sequence[Departed],
    onset: Onset,
    findings: Sequence[Finding] = (),
    *,
    noticed: int | None = None,
    theme: Theme = "light",
) -> go.Figure:
    """One row per signal, the earliest departure on top, in colour from its departure on."""
    colours = palette(theme)
    steps = [signal.step for signal in signals] + [onset.earliest, onset.latest] + ([noticed] if noticed else [])
    span = max(20, max(steps) - min(steps))
    low, high = min(steps) - 0.15 * span, max(steps) + 0.3 * span
    traces = [_row(signal, low, high, colours) for signal in signals] + [_departures(signals, colours)]
    traces += [_found(finding, signals, colours) for finding in findings if _metric(finding, signals)]
    return go.Figure({"data": traces, "layout": _layout(signals, onset, noticed, (low, high), theme, colours)})


def around(
    view: RunView,
    names: str | Sequence[str],
    low: int,
    high: int,
    *,
    findings: Iterable[Finding] = (),
    events: Iterable[Event] = (),
    actions: Iterable[Action] = (),
    theme: Theme = "light",
) -> go.Figure:
    """The chart of `names` between two steps, drawn from these steps alone, so that a long run is as sharp as a short
    one; what happened elsewhere is left out."""
    names = (names,) if isinstance(names, str) else tuple(names)
    figure = metric_figure(
        cut(view, names, low, high),
        names,
        findings=within(findings, low, high),
        events=[event for event in events if low <= event.step <= high],
        actions=[action for action in actions if low <= action.step <= high],
        theme=theme,
    )
    return figure.update_xaxes(range=[low, high])


def cut(view: RunView, names: Sequence[str], low: int, high: int) -> RunView:
    """A run as if it had been measured between two steps alone."""
    part = History({"metrics": view.about("metrics")}, attempt=view.attempt)
    for name in names:
        for step, value in zip(*(column.tolist() for column in view.series(name).between(low, high)), strict=True):
            part.append(step, {name: value})
    return part.view(min(high, view.step))


def within(findings: Iterable[Finding], low: int, high: int) -> list[Finding]:
    """The findings of incidents that existed between two steps."""
    findings = list(findings)
    inside = {incident.number for incident in incidents(findings) if incident.onset <= high and incident.last >= low}
    return [finding for finding in findings if finding.incident in inside]


MOST_TIMES = 10_000
"""Largest factor that is written out."""


def how_far(signal: Departed) -> str:
    """The change of a signal in words: `0.42 → 31.2 (×74)`."""
    if signal.before is None or signal.after is None:
        return ""
    words = f"{short(_rounded(signal.before))} → {short(_rounded(signal.after))}"
    return f"{words} ({_times(signal)})" if _times(signal) else words


def _times(signal: Departed) -> str:
    ratio = signal.ratio
    if ratio is not None and ratio > MOST_TIMES:  # from next to nothing: the factor says nothing
        return f">×{MOST_TIMES:,}"
    return "" if ratio is None else f"×{ratio:.2g}" if ratio < 10 else f"×{ratio:,.0f}"


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _row(signal: Departed, low: float, high: float, colours: Palette) -> dict[str, Any]:
    name, line = escape(signal.metric), {"color": colours.lines[0], "width": 5}
    return scatter([signal.step, high], [name, name], hoverinfo="skip", line=line, opacity=0.35, showlegend=False)


def _departures(signals: Sequence[Departed], colours: Palette) -> dict[str, Any]:
    texts = [f"{'↑' if signal.up else '↓'} {_times(signal)}".strip() for signal in signals]
    hover = [
        f"<b>{escape(signal.metric)}</b> departed {'upward' if signal.up else 'downward'} at step {signal.step}"
        + (f"<br>{escape(how_far(signal))}" if how_far(signal) else "")
        for signal in signals
    ]
    symbols = ["triangle-up" if signal.up else "triangle-down" for signal in signals]
    return scatter(
        [signal.step for signal in signals], [escape(signal.metric) for signal in signals], "markers+text",
        text=texts, textposition="top right", textfont={"size": 11, "color": colours.text},
        hovertext=hover, hoverinfo="text", showlegend=False,
        cliponaxis=False,  # the label of the first row lies above it
        marker={"size": 11, "color": colours.lines[0], "symbol": symbols},
    )  # fmt: skip


def _metric(finding: Finding, signals: Sequence[Departed]) -> str:
    named = finding.evidence.get("metric")
    return named if isinstance(named, str) and any(signal.metric == named for signal in signals) else ""


def _found(finding: Finding, signals: Sequence[Departed], colours: Palette) -> dict[str, Any]:
    words = f"<b>{escape(finding.id)}</b> detected at step {finding.detected_step}"
    marker = {"size": 9, "symbol": "square", "color": colours.severity[finding.severity]}
    place = [finding.detected_step], [escape(_metric(finding, signals))]
    return scatter(*place, "markers", hovertext=[words], hoverinfo="text", showlegend=False, marker=marker)


def _layout(
    signals: Sequence[Departed],
    onset: Onset,
    noticed: int | None,
    span: tuple[float, float],
    theme: Theme,
    colours: Palette,
) -> dict[str, Any]:
    lines = [(onset.step, "onset", "dash")] + ([(noticed, "detected", "solid")] if noticed else [])
    return {
        "template": TEMPLATES[theme],
        "height": 64 + ROW * max(1, len(signals)),
        "margin": {"l": 8, "r": 12, "t": 22, "b": 8},
        "hovermode": "closest",
        "xaxis": {"title": {"text": "step"}, "range": list(span), "tickformat": "d"},
        "yaxis": {"autorange": "reversed", "type": "category", "showgrid": True},
        "shapes": [
            shade(onset.earliest, onset.latest, colours.muted, 0.14),
            *[upright(step, colours.muted, dash) for step, _, dash in lines],
        ],
        "annotations": [
            {
                "x": step,
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "right" if word == "onset" else "left",
                "showarrow": False,
                "text": f"{word} {step}",
                "font": {"size": 10.5, "color": colours.muted},
            }
            for step, word, _ in lines
        ],
    }
