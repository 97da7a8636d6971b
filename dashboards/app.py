"""The app: the frame around every page, and the mapping from addresses to pages.

Addresses are the only shared state. A page is a path and a query, so reloading or sharing it shows the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, no_update
from dash.dash import _default_index
from dash.exceptions import PreventUpdate

from dashboards.components import actions, app_shell, remarks
from dashboards.components.browser import in_browser
from dashboards.data.run_registry import Runs
from dashboards.pages import PAGES
from dashboards.security.access import Access
from dashboards.security.request_guard import install_request_guard

_scheme_before_first_paint = cache(dmc.pre_render_color_scheme)
"""A hook on all apps of the process, so it is put there once."""


class Dashboard(Dash):
    """The app, with the runs it shows."""

    runs: Runs


def build(roots: Sequence[Path], access: Access | None = None) -> Dashboard:
    """The app over the runs under `roots`; `app.server` is the WSGI application. By default it answers locally only."""
    runs = Runs(roots)
    _scheme_before_first_paint()
    app = Dashboard(
        "dashboards",
        title="stabilizer",
        update_title="",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        enable_mcp=False,
        add_log_handler=False,
        suppress_callback_exceptions=True,  # a page's components exist only while it is shown
        index_string=_default_index.replace("<html>", '<html lang="en">'),  # a screen reader must know how to read it
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.runs = runs
    app.server.debug = False  # whatever the environment sets: a debugger would let viewers run code
    app.enable_dev_tools(
        debug=False,
        dev_tools_ui=False,
        dev_tools_props_check=False,
        dev_tools_serve_dev_bundles=False,
        dev_tools_hot_reload=False,
    )
    install_request_guard(app.server, access or Access(), app.callback_map)
    app.layout = lambda: app_shell.skeleton(runs.lines(), runs.token)
    _frame(app, runs)
    actions.register(app, runs)
    remarks.register(app, runs)
    for page in PAGES:
        page.register(app, runs)
    return app


def query_of(search: str | None) -> dict[str, str]:
    """The query of an address; of a repeated key the last."""
    return dict(parse_qsl(search.lstrip("?"))) if isinstance(search, str) else {}


def _frame(app: Dash, runs: Runs) -> None:
    in_browser(app, "stabilizer", "scheme", Output("scheme", "data"), Input("url", "pathname"))
    in_browser(app, "stabilizer", "chosen", Output("picker", "value"), Input("url", "search"))
    in_browser(
        app,
        "stabilizer",
        "choose",
        Output("url", "pathname"),
        Output("url", "search", allow_duplicate=True),
        Input("picker", "value"),
        State("url", "pathname"),
        State("url", "search"),
        prevent_initial_call=True,
    )

    @app.callback(
        output={"page": Output("page", "children"), "search": Output("url", "search", allow_duplicate=True)},
        inputs={"path": Input("url", "pathname"), "search": Input("url", "search"), "theme": Input("scheme", "data")},
        prevent_initial_call="initial_duplicate",
    )
    def open_page(path: str | None, search: str | None, theme: str | None) -> dict[str, Any]:
        if theme not in ("light", "dark"):
            raise PreventUpdate  # the browser reports its scheme in a moment
        path = path if isinstance(path, str) and path else "/"
        page, query = next((page for page in PAGES if page.PATH == path), None), query_of(search)
        if page is None:
            return {"page": app_shell.nowhere(path), "search": no_update}
        completed = with_newest_run(query) if page.OF_A_RUN else query
        address: Any = no_update if completed == query else "?" + urlencode(completed)
        return {"page": page.layout(runs, completed, theme), "search": address}

    def with_newest_run(query: dict[str, str]) -> dict[str, str]:
        newest = "" if query.get("run") else next((line.id for line in runs.lines()), "")
        return {**query, "run": newest} if newest else query

    @app.callback(
        output=Output("tabs", "children"), inputs={"path": Input("url", "pathname"), "search": Input("url", "search")}
    )
    def tabs(path: str | None, search: str | None) -> Any:
        return app_shell.tabs(PAGES, path if isinstance(path, str) else "/", query_of(search).get("run", ""))

    @app.callback(
        output=Output("picker", "data"),
        inputs={
            "polls": Input("rescan", "n_intervals"),
            "typed": Input("picker", "searchValue"),
            "chosen": Input("picker", "value"),
        },
        state={"known": State("picker", "data")},
        prevent_initial_call=True,
    )
    def rescan(polls: int, typed: str | None, chosen: str | None, known: list[dict[str, str]]) -> Any:
        said = (word if isinstance(word, str) else None for word in (chosen, typed))
        found = app_shell.options(runs.lines(), *said)
        return no_update if found == known else found
