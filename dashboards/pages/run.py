"""One run as it is now: what matters first, its charts, its incidents and what was done about them.

What to show comes from `state` and `live`, how it looks from `view`; a poll sends only what is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import ALL, ClientsideFunction, Dash, Input, Output, Patch, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards import view
from dashboards.live import FIRST, Change, News, Seen, Whole, news, whole
from dashboards.state import Page, Runs
from stabilizer.figures import Theme
from stabilizer.figures.metric import X, marks_trace

PATH = "/run"
NAME = "Run"
OF_A_RUN = True
LIVE_MS, OVER_MS = 1000, 5000
"""Polls of a run that goes on, and of one that is over (a resume may revive it)."""


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The whole page as it is now; callbacks keep it so."""
    if not query.get("run"):
        waiting = view.no_runs([str(root) for root in runs.roots])
        return html.Div([dcc.Interval(id="wait", interval=LIVE_MS), waiting], className="page")
    x: X = "tokens" if query.get("x") == "tokens" else "step"
    now = _drawn(runs, Seen(query["run"], theme, x), FIRST)
    head, grid, incidents, journal, hidden, seen, beat, interval = now
    return html.Div(
        [
            dcc.Store(id="seen", data=seen),
            dcc.Store(id="beat", data=beat),
            dcc.Store(id="visible"),
            dcc.Interval(id="tick", interval=interval),
            dcc.Interval(id="watchdog", interval=5 * LIVE_MS),
            html.Div(head, id="head"),
            html.Div(
                dmc.SegmentedControl(
                    id="axis", value=x, size="xs",
                    data=[{"value": "step", "label": "steps"}, {"value": "tokens", "label": "tokens"}],
                ),
                className="tools",
            ),
            html.Div(
                [
                    html.Div(grid, id="grid", className="charts"),
                    html.Aside(
                        [html.Section(incidents, id="incidents"), html.Section(journal, id="journal")],
                        className="side",
                    ),
                ],
                className="body",
                id="body",
                hidden=hidden,
            ),
        ],
        className="page",
    )  # fmt: skip


def register(app: Dash, runs: Runs) -> None:
    """What happens on this page."""

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("wait", "n_intervals"), prevent_initial_call=True
    )
    def first_run(_: int) -> str:
        line = next(iter(runs.lines()), None)
        if line is None:
            raise PreventUpdate
        return "?" + urlencode({"run": line.id})

    app.clientside_callback(
        ClientsideFunction("stabilizer", "age"),
        Output("toggle", "title"),
        Input("tick", "n_intervals"),
        Input("beat", "data"),
        Input("head", "children"),
    )

    app.clientside_callback(
        ClientsideFunction("stabilizer", "visible"),
        Output("visible", "data"),
        Input("tick", "n_intervals"),
        State("visible", "data"),
    )

    app.clientside_callback(
        ClientsideFunction("stabilizer", "watchdog"),
        Output("tick", "disabled"),
        Input("watchdog", "n_intervals"),
        State("tick", "disabled"),
        State("tick", "n_intervals"),
        prevent_initial_call=True,
    )

    app.clientside_callback(
        ClientsideFunction("stabilizer", "keep"), Output("axis", "className"), Input("axis", "value")
    )

    @app.callback(
        Output({"chart": ALL}, "figure"),
        Output("head", "children"),
        Output("grid", "children"),
        Output("incidents", "children"),
        Output("journal", "children"),
        Output("body", "hidden"),
        Output("seen", "data"),
        Output("beat", "data"),
        Output("tick", "interval"),
        Input("tick", "n_intervals"),
        Input("axis", "value"),
        State("seen", "data"),
        State("visible", "data"),
        running=[(Output("tick", "disabled"), True, False)],  # polls that overlap would add the same points twice
        prevent_initial_call=True,
    )
    def follow(_: int, axis: Any, kept: Any, visible: Any) -> Any:
        seen = Seen.from_json(kept)
        if seen and axis != seen.x:
            seen = Seen.from_json({**kept, "x": axis, "rev": []})
        followed = runs.get(seen.run) if seen and seen.run else None
        if followed is None:
            raise PreventUpdate
        mounted = [output["id"]["chart"] for output in ctx.outputs_list[0]]
        try:
            found = news(followed, seen, visible if isinstance(visible, list) else None)
        except Exception as error:  # whatever a directory holds, the page stays up and says so
            if not seen.rev:
                raise PreventUpdate from None
            return ([no_update] * len(mounted), *_unreadable(seen, error))
        if found is None:
            raise PreventUpdate
        if isinstance(found, Whole):
            return ([no_update] * len(mounted), *_whole(found))
        figures = [_patch(found.changes.get(id)) for id in mounted]
        return (figures, *_news(found))


def _drawn(runs: Runs, seen: Seen, first: int | None) -> tuple[Any, ...]:
    followed = runs.get(seen.run)
    if followed is None:
        return view.unknown(seen.run), [], [], [], True, seen.as_json(), None, OVER_MS
    try:
        return _whole(whole(followed, seen.run, seen.theme, seen.x, first))
    except Exception as error:  # whatever a directory holds, the page stays up and says so
        return _unreadable(seen, error)


def _whole(found: Whole) -> tuple[Any, ...]:
    page = found.page
    return (
        view.head(page),
        view.grid(found.charts),
        view.incident_list(page.cards),
        view.journal(page.journal),
        False,
        found.seen.as_json(),
        _beat(page),
        OVER_MS if page.over and not found.seen.rest else LIVE_MS,
    )


def _news(found: News) -> tuple[Any, ...]:
    page, seen = found.page, found.seen.as_json()
    if page is None:
        return no_update, no_update, no_update, no_update, no_update, seen, found.seen.heartbeat, no_update
    grid = no_update
    if found.more:
        grid = Patch()
        grid.extend(view.grid(found.more))
    told = (view.incident_list(page.cards), view.journal(page.journal)) if found.story else (no_update, no_update)
    rests = page.over and not found.seen.behind
    return view.head(page), grid, *told, no_update, seen, _beat(page), OVER_MS if rests else LIVE_MS


def _unreadable(seen: Seen, error: Exception) -> tuple[Any, ...]:
    words = str(error) or type(error).__name__
    kept = replace(seen, rev=(), charts={}).as_json()
    return view.broken(seen.run, words), [], [], [], True, kept, None, OVER_MS


def _beat(page: Page) -> float | None:
    return None if page.over else page.heartbeat


def _patch(change: Change | None) -> Any:
    """A chart's news as the smallest thing the browser can apply."""
    if change is None:
        return no_update
    if change.figure is not None:
        return change.figure
    patch = Patch()
    if change.points is not None:
        for index, line in enumerate(change.points.lines):
            for key, values in line.items():
                if values:
                    patch["data"][index][key].extend(values)
        off = change.points.off_axis
        if off["x"]:
            trace = patch["data"][change.lines]
            for key in ("x", "y", "text"):
                trace[key].extend(off[key])
            trace["marker"]["color"].extend(off["colour"])
            trace["marker"]["symbol"].extend(off["symbol"])
        for index in change.standing:
            patch["layout"]["shapes"][index]["x1"] = change.points.now
    if change.marks is not None:
        patch["data"][change.lines + 1] = marks_trace(change.marks)
        patch["layout"]["shapes"] = change.marks.shapes
        patch["layout"]["annotations"] = change.marks.annotations
    return patch
