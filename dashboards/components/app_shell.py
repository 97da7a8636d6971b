"""The frame around every page: the run picker, links to the pages, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from dashboards.components.elements import STATE_ICONS, attributes, empty, icon, verdict_words
from dashboards.components.links import address
from stabilizer.figures.theme import FONT
from stabilizer.runs.listing import RunLine

RESCAN_MS = 5000
OFFERED = 50
"""Runs the picker offers at once, the newest; others are found by typing."""


def skeleton(runs: Sequence[RunLine], token: str = "") -> dmc.MantineProvider:
    """The parts that are on every page; callbacks fill them."""
    return dmc.MantineProvider(
        id="mantine",
        defaultColorScheme="auto",
        theme={"fontFamily": FONT, "primaryColor": "indigo", "defaultRadius": "md"},
        children=[
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="scheme"),
            dcc.Store(id="action-token", data=token),
            dcc.Interval(id="rescan", interval=RESCAN_MS),
            html.Header(
                [
                    dcc.Link([html.Span(className="mark"), "stabilizer"], href="/", className="brand"),
                    dmc.Select(
                        id="picker",
                        data=options(runs),
                        searchable=True,
                        allowDeselect=False,
                        size="sm",
                        placeholder="choose a run",
                        nothingFoundMessage="no such run",
                        maxDropdownHeight=420,
                        limit=OFFERED + 1,
                        className="picker",
                        **attributes(aria_label="run"),
                    ),
                    html.Nav(id="tabs", className="tabs", **attributes(aria_label="pages")),
                    html.Div(className="spring"),
                    html.Button(
                        icon("save"),
                        id="save-page",
                        className="bar-button",
                        title="save this page as one HTML file that opens without a server",
                        **attributes(aria_label="save this page"),
                    ),
                    dmc.ColorSchemeToggle(
                        id="toggle",
                        variant="default",
                        size="lg",
                        lightIcon="☀",
                        darkIcon="☾",
                        **attributes(aria_label="switch between light and dark"),
                    ),
                ],
                className="bar",
            ),
            html.Main(id="page"),
        ],
    )


def tabs(pages: Sequence[ModuleType], path: str, run: str) -> list[Any]:
    """Links to the other pages. Those about one run keep the run and appear once there is one."""
    shown = [page for page in pages if page.NAME and (run or not page.OF_A_RUN)]
    return [_tab(page, page.PATH == path, run) for page in shown]


def _tab(page: ModuleType, here: bool, run: str) -> dcc.Link:
    to = address(page.PATH, **({"run": run} if run and page.OF_A_RUN else {}))
    return dcc.Link(page.NAME, href=to, className="tab here" if here else "tab")


def nowhere(path: str) -> html.Div:
    """The page of an address that means nothing."""
    return html.Div(
        html.Div(
            empty("There is no such page", f"{path[:200]!r} is not an address of this dashboard.", whole=True),
            className="card head",
        ),
        className="page",
    )


def options(
    runs: Sequence[RunLine], chosen: str | None = None, typed: str | None = None, *, most: int = OFFERED
) -> list[dict[str, str]]:
    """The run picker's choices, few however many runs there are: the newest that match, and the chosen one."""
    words = (typed or "").casefold().split()
    labels = {line.id: _option(line) for line in runs}
    if typed in labels.values():  # what the picker itself writes there for the chosen run
        words = []
    found = [id for id, label in labels.items() if all(word in label.casefold() for word in words)][:most]
    if chosen in labels and chosen not in found:
        found.append(chosen)
    return [{"value": id, "label": labels[id]} for id in found]


def _option(line: RunLine) -> str:
    parts = (f"{STATE_ICONS.get(line.state, '?')} {line.name}", line.state, verdict_words(line.verdict))
    return " · ".join(part for part in parts if part)
