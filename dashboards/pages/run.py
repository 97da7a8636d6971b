"""The page of one run: its charts, its incidents and its trials.

The data comes from `run_page` and `live_updates`, the components from `run_overview` and `charts`. The page opens with
its text and pictures of the first charts. Charts follow poll by poll, and each later poll sends only what is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from dash import ALL, Dash, Input, Output, Patch, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate
from flask import Response, request

from dashboards.components import charts, notices, remarks, run_overview
from dashboards.components.actions import buttons
from dashboards.components.browser import in_browser
from dashboards.compression import LAZY
from dashboards.data.live_updates import BrowserState, Placed, Update, full_update, update_since
from dashboards.data.run_figures import Change
from dashboards.data.run_page import Page, changed_now, outlook_now
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import Remarks
from dashboards.data.viewer_settings import ViewerSettings
from stabilizer.figures import Theme
from stabilizer.figures.table import table

PATH = "/run"
NAME = "Run"
OF_A_RUN = True
PARTS = {
    "head": ("head", "children"),
    "asks": ("asks", "children"),
    "now": ("now", "children"),
    "changed": ("changed", "children"),
    "incidents": ("incidents", "children"),
    "journal": ("journal", "children"),
    "hidden": ("body", "hidden"),
    "problem": ("find-problem", "children"),
    "seen": ("seen", "data"),
    "beat": ("beat", "data"),
    "interval": ("tick", "interval"),
}
"""Parts that a poll may change beside the charts: a name for each, and its property on the page."""
SOON_MS, LIVE_MS, OVER_MS = 60, 1000, 5000
"""Poll intervals: while charts are pending, of a live run, and of a finished one (a resume may revive it)."""


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The whole page as it is now, without the charts; callbacks add them and keep it current."""
    if not query.get("run"):
        waiting = notices.no_runs(runs.roots)
        return html.Div([dcc.Interval(id="wait", interval=LIVE_MS), waiting], className="page")
    settings = ViewerSettings.read(query["run"], theme, query)
    placed, parts = _opening(runs, settings)
    return html.Div(
        [
            dcc.Store(id="seen", data=parts["seen"]),
            dcc.Store(id="settings", data=settings.words()),
            dcc.Store(id="nudge"),
            dcc.Store(id="beat", data=parts["beat"]),
            dcc.Store(id="visible"),
            dcc.Store(id="wanted"),
            dcc.Store(id="growth"),
            dcc.Download(id="file"),
            dcc.Interval(id="tick", interval=parts["interval"]),
            dcc.Interval(id="watchdog", interval=5 * LIVE_MS),
            html.Div([html.Div(parts["head"], id="head"), html.Div(parts["asks"], id="asks")], className="top"),
            html.Div(
                [
                    html.Div(
                        [
                            charts.tools(settings, parts["problem"]),
                            html.Div(charts.places(placed), id="grid", className="grid"),
                        ],
                    ),
                    html.Aside(
                        [
                            html.Div(parts["now"], id="now", className="now"),
                            html.Section(parts["changed"], id="changed"),
                            html.Section(id="outlook"),
                            html.Section(parts["incidents"], id="incidents"),
                            html.Section(parts["journal"], id="journal"),
                            html.Section(remarks.form(runs, settings.run), id="remarks"),
                        ],
                        className="side",
                    ),
                ],
                className="body",
                id="body",
                hidden=parts["hidden"],
            ),
            charts.keys(),
        ],
        className="page run",
    )


def register(app: Dash, runs: Runs) -> None:
    """Register the callbacks of this page."""
    _in_the_browser(app)

    def read_ahead() -> None:
        """Begin to read while the browser still loads its scripts."""
        if request.method == "GET" and request.path == PATH and (followed := runs.get(request.args.get("run", ""))):
            followed.warm()

    def preload_charts(response: Response) -> Response:
        """Have the browser fetch the chart library while it starts, before the first chart."""
        if request.method == "GET" and request.path == PATH and runs.get(request.args.get("run", "")):
            response.headers["Link"] = ", ".join(f"<{script}>; rel=preload; as=script" for script in LAZY)
        return response

    app.server.before_request(read_ahead)
    app.server.after_request(preload_charts)

    @app.callback(
        output=Output("url", "search", allow_duplicate=True),
        inputs={"polls": Input("wait", "n_intervals")},
        prevent_initial_call=True,
    )
    def first_run(polls: int) -> str:
        line = next(iter(runs.lines()), None)
        if line is None:
            raise PreventUpdate
        return "?" + urlencode({"run": line.id})

    @app.callback(
        output={
            "growth": Output("growth", "data"),
            "sections": Output({"section": ALL}, "children"),
            "slots": Output({"slot": ALL}, "children"),
            **{name: Output(id, property) for name, (id, property) in PARTS.items()},
        },
        inputs={"polls": Input("tick", "n_intervals"), "nudge": Input("nudge", "data")},
        state={
            "chosen": State("settings", "data"),
            "kept": State("seen", "data"),
            "visible": State("visible", "data"),
            "mounted": State({"chart": ALL}, "id"),
        },
        running=[(Output("tick", "disabled"), True, False)],  # polls that overlap would add the same points twice
    )
    def follow(polls: Any, nudge: Any, chosen: Any, kept: Any, visible: Any, mounted: Any) -> Any:
        seen = BrowserState.from_json(kept)
        followed = runs.get(seen.settings.run) if seen and seen.settings.run else None
        if seen is None or followed is None:
            raise PreventUpdate
        settings = ViewerSettings.read(
            seen.settings.run, seen.settings.theme, chosen if isinstance(chosen, dict) else {}
        )
        sections = [output["id"]["section"] for output in ctx.outputs_grouping["sections"]]
        slots = [output["id"]["slot"] for output in ctx.outputs_grouping["slots"]]
        unchanged = {
            "growth": no_update,
            "sections": [no_update] * len(sections),
            "slots": [no_update] * len(slots),
            **dict.fromkeys(PARTS, no_update),
        }
        if charts.mounted(mounted, "chart") != sorted(seen.charts):  # two answers crossed: start over
            seen = BrowserState(seen.settings, broken=seen.broken)
        try:
            found = update_since(followed, seen, settings, visible if isinstance(visible, list) else None)
        except Exception as error:  # whatever a directory holds, the page stays up and reports it
            if seen.broken:
                raise PreventUpdate from None
            return unchanged | _unreadable(seen, error)
        if found is None:
            raise PreventUpdate
        placed = {placed.section.id: charts.section(placed) for placed in found.placed}
        graphs = {id: charts.graph(view) for id, view in found.more.items()}
        return (
            unchanged
            | _news(runs, found)
            | {
                "growth": {id: _patch(change) for id, change in found.changes.items()} or no_update,
                "sections": [placed.get(id, no_update) for id in sections],
                "slots": [graphs.get(id, no_update) for id in slots],
            }
        )

    @app.callback(
        output=Output("outlook", "children"),
        inputs={"story": Input("incidents", "children")},
        state={"kept": State("seen", "data")},
    )
    def look_ahead(story: Any, kept: Any) -> Any:
        seen = BrowserState.from_json(kept)
        followed = runs.get(seen.settings.run) if seen and seen.settings.run else None
        if followed is None:
            raise PreventUpdate
        return run_overview.outlook(outlook_now(followed))

    @app.callback(
        output=Output("file", "data"),
        inputs={"wanted": Input("wanted", "data")},
        state={"kept": State("seen", "data")},
        prevent_initial_call=True,
    )
    def save(wanted: Any, kept: Any) -> Any:
        seen, id = BrowserState.from_json(kept), wanted.get("chart") if isinstance(wanted, dict) else None
        followed = runs.get(seen.settings.run) if seen and seen.settings.run else None
        if followed is None:
            raise PreventUpdate
        try:
            names, numbers = followed.chart(str(id))
        except Exception:  # no such chart, or a run that can't be read, which the next poll reports
            raise PreventUpdate from None
        text, left_out = table(numbers, names)
        newest = "-newest" if left_out else ""
        return {"content": text, "filename": f"{wanted.get('name') or 'chart'}{newest}.csv", "type": "text/csv"}


def _in_the_browser(app: Dash) -> None:
    tick = Input("tick", "n_intervals")
    in_browser(
        app, "stabilizer", "age", Output("toggle", "title"), tick, Input("beat", "data"), Input("head", "children")
    )
    in_browser(
        app,
        "stabilizer",
        "visible",
        Output("visible", "data"),
        tick,
        Input({"section": ALL}, "children"),
        State("visible", "data"),
    )
    in_browser(
        app,
        "stabilizer",
        "watchdog",
        Output("tick", "disabled"),
        Input("watchdog", "n_intervals"),
        State("tick", "disabled"),
        State("tick", "n_intervals"),
        prevent_initial_call=True,
    )
    in_browser(
        app,
        "stabilizer",
        "grow",
        Output({"chart": ALL}, "figure"),
        Input("growth", "data"),
        State({"chart": ALL}, "id"),
        State({"chart": ALL}, "figure"),
        prevent_initial_call=True,
    )
    in_browser(
        app,
        "stabilizer_run",
        "choose",
        Output("settings", "data"),
        Input("axis", "value"),
        Input("scale", "value"),
        Input("smooth", "value"),
        Input("find", "value"),
        Input("linked", "checked"),
        Input("marks", "checked"),
        State("settings", "data"),
        prevent_initial_call=True,
    )
    in_browser(app, "stabilizer_run", "astray", Output("grid", "title"), Input("seen", "data"))
    in_browser(
        app,
        "stabilizer_run",
        "nudge",
        Output("nudge", "data"),
        Input("settings", "data"),
        State("tick", "disabled"),
        prevent_initial_call=True,
    )


def _opening(runs: Runs, settings: ViewerSettings) -> tuple[tuple[Placed, ...], dict[str, Any]]:
    """The sections of a page that opens, as far as they are known, and its other parts by name."""
    followed = runs.get(settings.run)
    if followed is None:
        return (), _without_run(notices.unknown(settings.run), BrowserState(settings))
    try:
        found = full_update(followed, settings, 0)
    except Exception as error:  # whatever a directory holds, the page stays up and reports it
        return (), _unreadable(BrowserState(settings), error)
    return found.placed, _news(runs, found)


def _head(runs: Runs, page: Page, run: str) -> Any:
    followed = runs.get(run)
    return run_overview.head(page, run, runs.remarks(followed.path) if followed else Remarks())


def _story(runs: Runs, page: Page, run: str) -> dict[str, Any]:
    followed = runs.get(run)
    return {
        "changed": run_overview.changed(changed_now(followed) if followed else None, run),
        "now": run_overview.now(page, runs, run),
        "incidents": run_overview.incident_list(page.incidents, run, page.run_verdict, page.over),
        "journal": run_overview.journal(page, runs, run),
    }


def _asks(runs: Runs, run: str) -> Any:
    """Pause, resume, save: apart from the header, which changes at every step and would swallow a click."""
    return buttons(runs, run, reasons=False)


def _news(runs: Runs, found: Update) -> dict[str, Any]:
    """The parts of the page that changed, by name."""
    page, seen = found.page, found.seen
    if page is None:
        return {"seen": seen.as_json(), "beat": seen.heartbeat}
    run = seen.settings.run
    parts = {
        "head": _head(runs, page, run),
        "problem": seen.problem,
        "seen": seen.as_json(),
        "beat": page.heartbeat,
        "interval": SOON_MS if seen.rest else OVER_MS if page.over and not seen.behind else LIVE_MS,
    }
    if found.asks:
        parts["asks"] = _asks(runs, run)
    if found.story or found.asks:
        parts |= _story(runs, page, run)
    if found.whole:
        parts["hidden"] = False
    return parts


def _unreadable(seen: BrowserState, error: Exception) -> dict[str, Any]:
    words = str(error) or type(error).__name__
    return _without_run(
        notices.broken(seen.settings.run, words), replace(seen, rev=(), charts={}, sections={}, broken=True)
    )


def _without_run(head: Any, seen: BrowserState) -> dict[str, Any]:
    """The parts of a page that shows a notice and nothing of a run."""
    return {
        "head": head,
        **dict.fromkeys(("asks", "now", "changed", "incidents", "journal"), []),
        "hidden": True,
        "problem": "",
        "seen": seen.as_json(),
        "beat": None,
        "interval": OVER_MS,
    }


def _patch(change: Change) -> Any:
    """A chart's news as the smallest thing the browser can apply."""
    if change.figure is not None:
        return change.figure
    patch = Patch()
    if change.points is not None:
        charts.extend(patch, change.points, change.lines, change.open_spans)
    if change.title:
        patch["layout"]["xaxis"]["title"]["text"] = change.title
    return patch
