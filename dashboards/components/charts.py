"""Charts as components: a card each, in sections that can be searched, folded and pinned.

Clicks are handled in `assets/run.js` through the buttons' `data-` attributes. Text of a run is only ever a component's
child or such an attribute, which React escapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Patch, dcc, html

from dashboards.components.elements import GRAPH_CONFIG, attributes, empty, explained, icon, saved
from dashboards.data.chart_sections import SECTIONS, Section
from dashboards.data.live_updates import Placed
from dashboards.data.run_figures import ChartView
from dashboards.data.viewer_settings import SMOOTHS, ViewerSettings
from stabilizer.figures import FAMILIES, PALETTES
from stabilizer.figures.growth import Growth
from stabilizer.figures.preview import Preview
from stabilizer.figures.words import meaning_words


def tools(settings: ViewerSettings, problem: str = "") -> html.Div:
    """How charts are drawn, and which, and what is wrong with the search for them."""
    return html.Div(
        [
            html.Div(
                [
                    dmc.TextInput(
                        id="find",
                        value=settings.find,
                        placeholder="search metrics (a*b, a|b)   /",
                        size="xs",
                        debounce=300,
                        className="find",
                        **attributes(aria_label="search metrics: * is any text, | is or"),
                    ),
                    html.Span(problem, id="find-problem", className="problem", role="status"),
                ],
                className="finder",
            ),
            _choice("axis", "x axis", settings.x, (("step", "steps"), ("tokens", "tokens"), ("time", "time"))),
            _choice("scale", "y axis", settings.y, (("auto", "auto"), ("linear", "linear"), ("log", "log"))),
            dmc.Select(
                id="smooth",
                value=str(settings.smooth),
                size="xs",
                w=150,
                allowDeselect=False,
                data=[{"value": str(n), "label": f"mean over {n} steps" if n else "No smoothing"} for n in SMOOTHS],
                **attributes(aria_label="smoothing: the mean of the last so many steps"),
            ),
            dmc.Switch(id="linked", checked=settings.linked, label="Sync zoom", size="xs"),
            dmc.Switch(id="marks", checked=settings.marks, label="Marks", size="xs"),
            html.Button(
                "?",
                id="help",
                className="help",
                title="keyboard shortcuts, and what the marks mean",
                **attributes(aria_label="keyboard shortcuts, and what the marks mean", data_keys="1"),
            ),
        ],
        className="tools",
    )


def _choice(id: str, label: str, value: str, of: Sequence[tuple[str, str]]) -> dmc.SegmentedControl:
    data = [{"value": value, "label": words} for value, words in of]
    return dmc.SegmentedControl(id=id, value=value, size="xs", data=data, **attributes(aria_label=label))


def mounted(ids: Any, kind: str) -> list[str]:
    """The charts mounted on a page, from ids that a browser sent; anything malformed is ignored."""
    told = [id.get(kind) for id in ids if isinstance(id, dict)] if isinstance(ids, list) else []
    return sorted(name for name in told if isinstance(name, str))


def places(placed: Sequence[Placed]) -> list[Any]:
    """The sections, with what is in them as far as that is known."""
    there: dict[str, list[Any]] = {each.section.id: section(each) for each in placed}
    if not placed:
        there["first"] = [html.P("Loading charts …", className="quiet reading")]
    return [html.Section(there.get(id, []), id={"section": id}, className="charts") for id in SECTIONS]


def section(placed: Placed) -> list[Any]:
    """The contents of a section: its heading, where it has one, and its charts."""
    there = placed.section
    head = _heading(there)
    if there.id == "first" and not there.count and there.open:
        return [empty("No numbers", "Charts appear when the trainer has written its first step.")]
    return [*head, *map(_card, placed.charts), *_left_out(there)]


def graph(item: ChartView) -> dcc.Graph | None:
    """The chart itself, in a slot of its own, so that filling one slot leaves the others alone."""
    if item.figure is None:
        return None
    return dcc.Graph(
        id={"chart": item.chart.id},
        figure=item.figure,
        config=GRAPH_CONFIG,
        className="graph",
        style={"height": "236px"},
        responsive=True,
    )


def extend(patch: Patch, points: Growth, lines: int, open_spans: Sequence[int]) -> None:
    """Have a figure of so many lines grow: new points, and the spans that reach to the present."""
    for index, line in enumerate(points.lines):
        for key, values in line.items():
            if values:
                patch["data"][index][key].extend(values)
    off = points.off_axis
    if off["x"]:
        trace = patch["data"][lines]
        for key in ("x", "y", "text"):
            trace[key].extend(off[key])
        trace["marker"]["color"].extend(off["colour"])
        trace["marker"]["symbol"].extend(off["symbol"])
    for index in open_spans:
        patch["layout"]["shapes"][index]["x1"] = points.now


def _heading(there: Section) -> list[Any]:
    if there.id in FAMILIES and (there.count or there.still):
        words = (
            f"{there.count} more {'metric' if there.count == 1 else 'metrics'}"
            if there.count
            else "the others are unchanged"
        )
        return [
            html.Button(
                [
                    html.Span("▾" if there.open else "▸", className="arrow"),
                    html.Strong(FAMILIES[there.id][0]),
                    html.Span(words, className="quiet small"),
                ],
                className="family",
                **attributes(data_family=there.id, aria_expanded="true" if there.open else "false"),
            )
        ]
    if there.id == "pinned" and there.count:
        return [html.H2("Pinned", className="wide")]
    if there.id == "found" and there.open:
        words = "1 chart" if there.count == 1 else f"{there.count} charts"
        return [html.H2(f"{words} found", className="wide")] if not there.problem else []
    return []


def _left_out(there: Section) -> list[Any]:
    if there.still and there.open and there.count <= len(there.charts):
        return [html.P(f"unchanged: {there.still}", className="quiet wide")]
    if not there.open or there.count <= len(there.charts):
        return []
    left = there.count - len(there.charts)
    return [html.P(f"{left} more charts not shown; search for them by name.", className="quiet wide")]


def _card(item: ChartView) -> html.Figure:
    chart = item.chart
    help_text = "\n\n".join(meaning_words(item.view, name) for name in chart.metrics)
    return html.Figure(
        [
            html.Figcaption(
                [
                    html.Span(chart.title, className="chart-title", title=chart.title),
                    html.Span([_key(item, index) for index in range(len(chart.metrics))], className="names"),
                    explained(chart.title, help_text),
                    html.Button(
                        icon("star"),
                        className="help tool",
                        title="unpin" if item.pinned else "pin to the top",
                        **attributes(
                            data_pin=chart.id,
                            aria_label=f"pin {chart.title}",
                            aria_pressed="true" if item.pinned else "false",
                        ),
                    ),
                    html.Button(
                        icon("enlarge"),
                        className="help tool",
                        title="enlarge",
                        **attributes(data_large="1", aria_label=f"enlarge {chart.title}"),
                    ),
                    saved(chart.title, chart.id),
                ]
            ),
            html.Div(
                [*_glimpse(item.preview), html.Div(graph(item), id={"slot": chart.id}, className="slot")],
                className="stage",
            ),
        ],
        className="card chart",
    )


def _glimpse(there: Preview | None) -> list[Any]:
    """The picture shown until the chart is drawn over it; hidden from screen readers."""
    if there is None:
        return []
    ends = [html.Span(getattr(there, end), className=end) for end in ("lowest", "highest", "first", "last")]
    return [
        html.Div([html.Img(src=there.picture, alt=""), *ends], className="glimpse", **attributes(aria_hidden="true"))
    ]


def _key(item: ChartView, index: int) -> Any:
    """A metric's name; in a chart of several beside its line colour, as a button that hides and shows the line."""
    metrics = item.chart.metrics
    if metrics == (item.chart.title,):
        return html.Span()
    family = metrics[0].partition("/")[0]
    shared = len(metrics) > 1 and all(name.startswith(f"{family}/") for name in metrics)
    words = metrics[index].removeprefix(f"{family}/") if shared else metrics[index]
    name = html.Span(words, className="quiet small", title=metrics[index])
    if len(metrics) == 1:
        return name
    colours = PALETTES[item.theme].lines
    return html.Button(
        [html.Span(className="swatch", style={"background": colours[index % len(colours)]}), name],
        className="line-switch",
        title=f"hide or show {metrics[index]}",
        **attributes(data_line=str(index), aria_pressed="true"),
    )


MARKS = (
    ("▒", "an incident, while it lasts; ■ where it began"),
    ("▼", "a fix was applied"),
    ("●", "a fix was verified"),
    ("✕", "a fix was reverted"),
    ("◀", "a rollback; ▶ a resume"),
    ("◆", "a manual change; ◇ a schedule or data stage"),
    ("▲", "a checkpoint was saved"),
    ("★", "a note of a viewer"),
)
"""What the marks above a chart mean, as `figures.marks` draws them."""
KEYS = (
    ("/", "search metrics"),
    ("j", "next incident"),
    ("k", "previous incident"),
    ("Enter", "open the incident"),
    ("Esc", "close, or leave the search"),
    ("?", "this list"),
)


def keys() -> html.Dialog:
    """The dialog with the keyboard shortcuts and the legend of the marks."""
    rows = [html.Div([html.Kbd(key), html.Span(words)]) for key, words in KEYS]
    return html.Dialog(
        [
            html.H2("Keyboard shortcuts"),
            *rows,
            html.H2("Marks on charts"),
            *[html.Div([html.Span(mark, className="mark-key"), html.Span(words)]) for mark, words in MARKS],
            html.Button("close", className="plain", **attributes(data_keys="0")),
        ],
        id="keys",
        className="keys",
        **attributes(aria_label="keyboard shortcuts"),
    )
