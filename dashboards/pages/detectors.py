"""The list of detectors: when each fires, what it needs and its measured quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, html

from dashboards.components.elements import attributes, empty
from dashboards.components.rich_text import detector_link, inline
from dashboards.data.detector_info import DetectorRow, detector_rows, source
from dashboards.data.run_registry import Runs
from stabilizer.figures import Theme

PATH = "/detectors"
NAME = "Detectors"
OF_A_RUN = False


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """All detectors; a search narrows them."""
    found = detector_rows()
    words = query.get("q", "")[:200]
    measured = source()
    note = (
        "Recall: share of injected faults found (95 % interval). False alarms: per 1,000 healthy steps. Source: "
        f"{measured}."
    )
    return html.Div(
        [
            html.Div(
                [
                    html.H1("Detectors"),
                    html.P(f"{len(found)} failure modes, with the measured quality of each detector."),
                    html.P(note, className="quiet small") if measured else None,
                    dmc.TextInput(
                        id="detectors-search",
                        value=words,
                        placeholder="search: a word of the id, the failure or a metric",
                        className="search",
                        **attributes(aria_label="search detectors"),
                    ),
                ],
                className="card head",
            ),
            html.Div(_table(found, words), id="detectors-found"),
        ],
        className="page",
    )


def register(app: Dash, runs: Runs) -> None:
    """The list follows the search."""

    @app.callback(
        output=Output("detectors-found", "children"),
        inputs={"words": Input("detectors-search", "value")},
        prevent_initial_call=True,
    )
    def search(words: Any) -> Any:
        return _table(detector_rows(), words[:200] if isinstance(words, str) else "")


def _table(found: Sequence[DetectorRow], words: str) -> Any:
    rows = [line for line in found if line.matches(words)]
    if not rows:
        return empty("No such detector", "No detector matches all words; try fewer.")
    return html.Div(
        html.Table(
            [
                html.Thead(
                    html.Tr(
                        [
                            html.Th(text, scope="col")
                            for text in ("detector", "fires when", "needs", "recall; false alarms")
                        ]
                    )
                ),
                html.Tbody([_row(line) for line in rows]),
            ],
            className="wide",
        ),
        className="card scroll",
        tabIndex=0,
        role="region",
        **attributes(aria_label="detectors"),
    )


def _row(line: DetectorRow) -> html.Tr:
    return html.Tr(
        [
            html.Th(detector_link(line.id), scope="row"),
            html.Td(inline(line.title)),
            html.Td(line.needs, className="quiet small"),
            html.Td(line.measured, className="small"),
        ]
    )
