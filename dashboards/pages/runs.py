"""All runs: what state each is in, and the way to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import Dash, dcc, html

from dashboards import view
from dashboards.frame import address
from dashboards.parts import STATE_ICONS, pill, verdict_words
from dashboards.state import RunLine, Runs
from stabilizer.figures import Theme

PATH = "/"
NAME = "Runs"
OF_A_RUN = False


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """A line for each run, the newest first."""
    lines = runs.lines()
    if not lines:
        return html.Div(view.no_runs([str(root) for root in runs.roots]), className="page")
    return html.Div([_row(line) for line in lines], className="page")


def register(app: Dash, runs: Runs) -> None:
    """Nothing happens here yet."""


def _row(line: RunLine) -> html.Div:
    return html.Div(
        [
            dcc.Link(line.id, href=address("/run", run=line.id)),
            pill(f"{STATE_ICONS.get(line.state, '?')} {line.state}", f"state-{line.state}"),
            pill(verdict_words(line.verdict), f"verdict-{line.verdict}"),
        ],
        className="card head",
    )
