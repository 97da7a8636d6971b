"""The page of one detector: when it fires, its look-alikes and its measured quality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import Dash, dcc, html

from dashboards.components.elements import empty
from dashboards.components.links import address
from dashboards.components.rich_text import inline, prose
from dashboards.data.detector_info import DetectorInfo, detector_info
from dashboards.data.run_registry import Runs
from stabilizer.figures import Theme

PATH = "/detector"
NAME = ""
OF_A_RUN = False


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The detector named by `?id=`."""
    id = query.get("id", "")
    found = detector_info(id)
    if found is None:
        text = f"No detector is named {id[:80]!r}." if id else "The address names none."
        to = dcc.Link("all detectors", href=address("/detectors"))
        return html.Div(
            html.Div([empty("There is no such detector", text, whole=True), to], className="card head centred"),
            className="page",
        )
    return html.Div(
        [
            html.Div([html.H1(found.id), html.P(inline(found.title), className="lead")], className="card head"),
            html.Div(
                [
                    html.Section(
                        [_section(section.title, prose(section.paragraphs)) for section in found.sections],
                        className="column",
                    ),
                    html.Section([*_measured(found), *_fixes(found), *_options(found)], className="column"),
                ],
                className="two",
            ),
            dcc.Link("all detectors", href=address("/detectors")),
        ],
        className="page",
    )


def register(app: Dash, runs: Runs) -> None:
    """This page has no callbacks."""


def _section(title: str, children: list[Any]) -> html.Div:
    return html.Div([html.H2(title), *children], className="card pad prose")


def _measured(found: DetectorInfo) -> list[Any]:
    title = html.H2("Measured quality")
    if not found.measured:
        return [title, empty("Not measured", "The benchmark has no fault for this detector.")]
    rows = [
        html.Tr([html.Th(one.what, scope="row"), html.Td([one.value, html.Div(one.of, className="quiet small")])])
        for one in found.measured
    ]
    return [
        title,
        html.Div(
            [html.Table(html.Tbody(rows), className="facts-table"), html.P(found.source, className="quiet small")],
            className="card pad",
        ),
    ]


def _fixes(found: DetectorInfo) -> list[Any]:
    if not found.fixes:
        return []
    rows = [
        html.Li(
            [
                html.Div(
                    [html.Strong(fix.id), html.Span(fix.safety, className="pill tiny")], className="incident-head"
                ),
                html.Div(inline(fix.why)),
            ]
        )
        for fix in found.fixes
    ]
    return [html.H2("Fixes it can lead to"), html.Ul(rows, className="card plain-list")]


def _options(found: DetectorInfo) -> list[Any]:
    rows = [
        html.Li([html.Span("Needs: ", className="quiet"), *inline(found.needs)]),
        html.Li([html.Span("Confirm: ", className="quiet"), found.confirm]),
    ]
    rows += [
        html.Li([html.Code(f"{name} = {value}"), html.Div(inline(says), className="quiet small") if says else None])
        for name, value, says in found.options
    ]
    return [html.H2("Settings"), html.Ul(rows, className="card plain-list")]
