"""One run as it is now: what matters first, its charts, its incidents and what was done about them.

What to show comes from `state` and `live`, how it looks from `view` and `charts`. The words of the page are there at
once, with pictures of the first charts when the run is read by then; charts follow poll by poll, and each later poll
sends only what is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from dash import ALL, ClientsideFunction, Dash, Input, Output, Patch, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate
from flask import Response, request

from dashboards.components import charts, view
from dashboards.components.actions import buttons
from dashboards.components.packed import LAZY
from dashboards.data.live import News, Seen, news, whole
from dashboards.data.look import Look
from dashboards.data.scene import Change
from dashboards.data.state import Page, Runs
from stabilizer.figures import Theme
from stabilizer.figures.metric import marks_trace
from stabilizer.figures.table import table

PATH = "/run"
NAME = "Run"
OF_A_RUN = True
SOON_MS, LIVE_MS, OVER_MS = 60, 1000, 5000
"""Polls while charts are still to come, of a run that goes on, and of one that is over (a resume may revive it)."""


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The whole page as it is now, but for the charts; callbacks bring them and keep it so."""
    if not query.get("run"):
        waiting = view.no_runs([str(root) for root in runs.roots])
        return html.Div([dcc.Interval(id="wait", interval=LIVE_MS), waiting], className="page")
    look = Look.read(query["run"], theme, query)
    placed, head, asks, now, incidents, journal, hidden, problem, seen, beat, interval = _opening(runs, look)
    return html.Div(
        [
            dcc.Store(id="seen", data=seen),
            dcc.Store(id="look", data=look.words()),
            dcc.Store(id="nudge"),
            dcc.Store(id="beat", data=beat),
            dcc.Store(id="visible"),
            dcc.Store(id="wanted"),
            dcc.Store(id="growth"),
            dcc.Download(id="file"),
            dcc.Interval(id="tick", interval=interval),
            dcc.Interval(id="watchdog", interval=5 * LIVE_MS),
            html.Div([html.Div(head, id="head"), html.Div(asks, id="asks")], className="top"),
            html.Div(now, id="now", className="now"),
            html.Div(
                [
                    html.Div(
                        [charts.tools(look, problem), html.Div(charts.places(placed), id="grid", className="grid")],
                    ),
                    html.Aside(
                        [html.Section(incidents, id="incidents"), html.Section(journal, id="journal")],
                        className="side",
                    ),
                ],
                className="body",
                id="body",
                hidden=hidden,
            ),
            charts.keys(),
        ],
        className="page run",
    )


def register(app: Dash, runs: Runs) -> None:
    """What happens on this page."""
    _in_the_browser(app)

    @app.server.before_request
    def ahead() -> None:
        """Begin to read while the browser still loads its scripts."""
        if request.method == "GET" and request.path == PATH and (followed := runs.get(request.args.get("run", ""))):
            followed.warm()

    @app.server.after_request
    def drawing(response: Response) -> Response:
        """Have the browser fetch what draws charts while it starts, rather than when the first chart is there."""
        if request.method == "GET" and request.path == PATH and runs.get(request.args.get("run", "")):
            response.headers["Link"] = ", ".join(f"<{script}>; rel=preload; as=script" for script in LAZY)
        return response

    @app.callback(
        Output("url", "search", allow_duplicate=True), Input("wait", "n_intervals"), prevent_initial_call=True
    )
    def first_run(_: int) -> str:
        line = next(iter(runs.lines()), None)
        if line is None:
            raise PreventUpdate
        return "?" + urlencode({"run": line.id})

    @app.callback(
        Output("growth", "data"),
        Output({"section": ALL}, "children"),
        Output({"slot": ALL}, "children"),
        Output("head", "children"),
        Output("asks", "children"),
        Output("now", "children"),
        Output("incidents", "children"),
        Output("journal", "children"),
        Output("body", "hidden"),
        Output("find-problem", "children"),
        Output("seen", "data"),
        Output("beat", "data"),
        Output("tick", "interval"),
        Input("tick", "n_intervals"),
        Input("nudge", "data"),
        State("look", "data"),
        State("seen", "data"),
        State("visible", "data"),
        State({"chart": ALL}, "id"),
        running=[(Output("tick", "disabled"), True, False)],  # polls that overlap would add the same points twice
    )
    def follow(_: Any, __: Any, chosen: Any, kept: Any, visible: Any, there: Any) -> Any:
        seen = Seen.from_json(kept)
        followed = runs.get(seen.look.run) if seen and seen.look.run else None
        if followed is None:
            raise PreventUpdate
        look = Look.read(seen.look.run, seen.look.theme, chosen if isinstance(chosen, dict) else {})
        places = [output["id"]["section"] for output in ctx.outputs_list[1]]
        slots = [output["id"]["slot"] for output in ctx.outputs_list[2]]
        told = sorted(seen.charts)
        if charts.mounted(there, "chart") != told:  # two answers crossed: what is there is not what was told
            seen = Seen(seen.look, broken=seen.broken)
        try:
            found = news(followed, seen, look, visible if isinstance(visible, list) else None)
        except Exception as error:  # whatever a directory holds, the page stays up and says so
            if seen.broken:
                raise PreventUpdate from None
            return no_update, [no_update] * len(places), [no_update] * len(slots), *_unreadable(seen, error)
        if found is None:
            raise PreventUpdate
        growth = {id: _patch(change) for id, change in found.changes.items()} or no_update
        placed = {placed.section.id: charts.section(placed) for placed in found.placed}
        graphs = {id: charts.graph(view) for id, view in found.more.items()}
        parts = ([known.get(id, no_update) for id in ids] for known, ids in ((placed, places), (graphs, slots)))
        return growth, *parts, *_news(runs, found)

    @app.callback(Output("file", "data"), Input("wanted", "data"), State("seen", "data"), prevent_initial_call=True)
    def save(wanted: Any, kept: Any) -> Any:
        seen, id = Seen.from_json(kept), wanted.get("chart") if isinstance(wanted, dict) else None
        followed = runs.get(seen.look.run) if seen and seen.look.run else None
        if followed is None:
            raise PreventUpdate
        try:
            names, numbers = followed.chart(str(id))
        except Exception:  # no such chart, or a run that can't be read, which the page says at its next poll
            raise PreventUpdate from None
        text, left_out = table(numbers, names)
        newest = "-newest" if left_out else ""
        return {"content": text, "filename": f"{wanted.get('name') or 'chart'}{newest}.csv", "type": "text/csv"}


def _in_the_browser(app: Dash) -> None:
    def ours(name: str, function: str) -> ClientsideFunction:
        return ClientsideFunction(name, function)

    tick = Input("tick", "n_intervals")
    app.clientside_callback(
        ours("stabilizer", "age"), Output("toggle", "title"), tick, Input("beat", "data"), Input("head", "children")
    )
    app.clientside_callback(
        ours("stabilizer", "visible"), Output("visible", "data"), tick, Input({"section": ALL}, "children"),
        State("visible", "data"),
    )  # fmt: skip
    app.clientside_callback(
        ours("stabilizer", "watchdog"), Output("tick", "disabled"), Input("watchdog", "n_intervals"),
        State("tick", "disabled"), State("tick", "n_intervals"), prevent_initial_call=True,
    )  # fmt: skip
    app.clientside_callback(
        ours("stabilizer", "grow"), Output({"chart": ALL}, "figure"), Input("growth", "data"),
        State({"chart": ALL}, "id"), State({"chart": ALL}, "figure"), prevent_initial_call=True,
    )  # fmt: skip
    app.clientside_callback(
        ours("stabilizer_run", "choose"), Output("look", "data"),
        Input("axis", "value"), Input("scale", "value"), Input("smooth", "value"), Input("find", "value"),
        Input("linked", "checked"), State("look", "data"), prevent_initial_call=True,
    )  # fmt: skip
    app.clientside_callback(ours("stabilizer_run", "astray"), Output("grid", "title"), Input("seen", "data"))
    app.clientside_callback(
        ours("stabilizer_run", "nudge"), Output("nudge", "data"), Input("look", "data"), State("tick", "disabled"),
        prevent_initial_call=True,
    )  # fmt: skip


def _opening(runs: Runs, look: Look) -> tuple[Any, ...]:
    followed = runs.get(look.run)
    if followed is None:
        return (), view.unknown(look.run), [], [], [], [], True, "", Seen(look).as_json(), None, OVER_MS
    try:
        if followed.brief() is None:
            found = whole(followed, look, 0)
            return found.placed, *_news(runs, found)
        page = followed.page()
    except Exception as error:  # whatever a directory holds, the page stays up and says so
        return (), *_unreadable(Seen(look), error)
    told = view.head(page), _asks(runs, look.run), *_story(runs, page, look.run)
    return (), *told, False, "", Seen(look).as_json(), page.heartbeat, LIVE_MS


def _story(runs: Runs, page: Page, run: str) -> tuple[list[Any], list[Any], list[Any]]:
    return view.now(page, runs, run), view.incident_list(page.cards, run, page.standing), view.journal(page, runs, run)


def _asks(runs: Runs, run: str) -> Any:
    """Pause, resume, save; in a place of its own, for the words above change with every step and a press must not."""
    return buttons(runs, run, reasons=False)


def _news(runs: Runs, found: News) -> tuple[Any, ...]:
    page, seen = found.page, found.seen
    if page is None:
        return *[no_update] * 7, seen.as_json(), seen.heartbeat, no_update
    run = seen.look.run
    asks = _asks(runs, run) if found.asks else no_update
    told = _story(runs, page, run) if found.story or found.asks else [no_update] * 3
    hidden = False if found.whole else no_update
    interval = SOON_MS if seen.rest else OVER_MS if page.over and not seen.behind else LIVE_MS
    return view.head(page), asks, *told, hidden, seen.problem, seen.as_json(), page.heartbeat, interval


def _unreadable(seen: Seen, error: Exception) -> tuple[Any, ...]:
    words = str(error) or type(error).__name__
    kept = replace(seen, rev=(), charts={}, sections={}, broken=True).as_json()
    return view.broken(seen.look.run, words), [], [], [], [], True, "", kept, None, OVER_MS


def _patch(change: Change) -> Any:
    """A chart's news as the smallest thing the browser can apply."""
    if change.figure is not None:
        return change.figure
    patch = Patch()
    if change.points is not None:
        charts.extend(patch, change.points, change.lines, change.standing)
    if change.marks is not None:
        patch["data"][change.lines + 1] = marks_trace(change.marks)
        patch["layout"]["shapes"] = change.marks.shapes
        patch["layout"]["annotations"] = change.marks.annotations
    return patch
