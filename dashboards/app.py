"""The app: one page, three callbacks. What to show comes from `state` and `live`, how it looks from `view`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import dash_mantine_components as dmc
from dash import ALL, ClientsideFunction, Dash, Input, Output, Patch, State, ctx, no_update
from dash.exceptions import PreventUpdate

from dashboards import view
from dashboards.guard import guard
from dashboards.live import FIRST, Change, News, Seen, Whole, news, whole
from dashboards.state import Page, Runs
from stabilizer.figures.metric import marks_trace

_scheme_before_first_paint = cache(dmc.pre_render_color_scheme)
"""A hook on all apps of the process, so it is put there once."""
LIVE_MS, OVER_MS = 1000, 5000
"""Polls of a run that goes on, and of one that is over (a resume may revive it)."""


def build(roots: Sequence[Path]) -> Dash:
    """The app over the runs under `roots`; `app.server` is the WSGI application."""
    runs = Runs(roots)
    _scheme_before_first_paint()
    app = Dash(
        "dashboards",
        title="stabilizer",
        update_title=None,
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        enable_mcp=False,
        add_log_handler=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.runs = runs
    guard(app.server)
    app.layout = lambda: view.skeleton(runs.lines())
    _callbacks(app, runs)
    return app


def _callbacks(app: Dash, runs: Runs) -> None:
    app.clientside_callback(
        ClientsideFunction("stabilizer", "scheme"), Output("scheme", "data"), Input("url", "pathname")
    )
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
        Input("rescan", "n_intervals"),
        State("tick", "disabled"),
        State("tick", "n_intervals"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("picker", "data"),
        Input("rescan", "n_intervals"),
        State("picker", "data"),
        prevent_initial_call=True,
    )
    def rescan(_: int, known: list[dict[str, str]]) -> Any:
        found = view.options(runs.lines())
        return no_update if found == known else found

    @app.callback(
        Output("url", "search"),
        Output("picker", "value"),
        Output("axis", "value"),
        Output("head", "children"),
        Output("grid", "children"),
        Output("incidents", "children"),
        Output("journal", "children"),
        Output("body", "hidden"),
        Output("seen", "data"),
        Output("beat", "data"),
        Output("tick", "interval"),
        Input("url", "search"),
        Input("picker", "value"),
        Input("picker", "data"),
        Input("axis", "value"),
        Input("scheme", "data"),
        State("seen", "data"),
    )
    def show(search: str, picked: str | None, _: Any, axis: str, theme: str | None, seen: Any) -> Any:
        if theme not in ("light", "dark"):
            raise PreventUpdate
        had = Seen.from_json(seen)
        if ctx.triggered_id == "picker" and had and had.run and picked in (None, had.run):
            raise PreventUpdate  # the list of runs changed under a run that is being looked at
        query = parse_qs((search or "").lstrip("?"))
        run = picked if ctx.triggered_id == "picker" and picked else query.get("run", [""])[0]
        x = axis if ctx.triggered_id == "axis" else query.get("x", ["step"])[0]
        x = "tokens" if x == "tokens" else "step"
        if not run:
            run = next((line.id for line in runs.lines()), "")
        if had and (had.run, had.x, had.theme) == (run, x, theme) and had.rev:
            raise PreventUpdate
        address = "?" + urlencode({"run": run, **({"x": x} if x != "step" else {})}) if run else ""
        first = None if had and had.run == run else FIRST  # a page that is scrolled must not become shorter
        return (address, run or None, x, *_drawn(runs, Seen(run, theme, x), first))

    @app.callback(
        Output({"chart": ALL}, "figure"),
        Output("head", "children", allow_duplicate=True),
        Output("grid", "children", allow_duplicate=True),
        Output("incidents", "children", allow_duplicate=True),
        Output("journal", "children", allow_duplicate=True),
        Output("body", "hidden", allow_duplicate=True),
        Output("seen", "data", allow_duplicate=True),
        Output("beat", "data", allow_duplicate=True),
        Output("tick", "interval", allow_duplicate=True),
        Input("tick", "n_intervals"),
        State("seen", "data"),
        State("picker", "value"),
        State("axis", "value"),
        State("scheme", "data"),
        State("visible", "data"),
        running=[(Output("tick", "disabled"), True, False)],  # polls that overlap would add the same points twice
        prevent_initial_call=True,
    )
    def follow(_: int, kept: Any, picked: Any, axis: Any, theme: Any, visible: Any) -> Any:
        seen = Seen.from_json(kept)
        wanted = {"run": picked, "x": axis, "theme": theme}
        if seen and picked and any(getattr(seen, key) != value for key, value in wanted.items()):
            seen = Seen.from_json({**kept, **wanted, "rev": []})  # an answer overtaken by a choice made meanwhile
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
    if not seen.run:
        roots = [str(root) for root in runs.roots]
        return view.no_runs(roots), [], [], [], True, seen.as_json(), None, LIVE_MS
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
