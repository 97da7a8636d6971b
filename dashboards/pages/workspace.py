"""The workspace: all runs on the left, all their metrics on the right, a line per run or per group of seeds.

`assets/workspace.js` draws it and keeps its view in the address. It asks for rows and for lines through stores, and
each answer is a store too, so that the browser holds what it has and the server no state of a viewer.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards.components import notices
from dashboards.components.actions import TOKEN, known
from dashboards.components.browser import in_browser
from dashboards.components.elements import STATE_ICONS, attributes, verdict_words
from dashboards.data.run_registry import Runs
from dashboards.data.static_page import static_page
from dashboards.data.viewer_file import MAX_QUERY
from dashboards.data.viewer_settings import SMOOTHS
from dashboards.data.workspace import MAX_RUNS, STATISTICS, Wanted, answer, columns_of, rows
from dashboards.security.request_guard import of_this_page
from stabilizer.figures import CORE, FAMILIES, PALETTES, Theme

PATH = "/workspace"
NAME = "Workspace"
OF_A_RUN = False
LIVE_MS, LARGE_MS, LARGE = 2000, 5000, 300
"""Poll intervals of the list, the longer one from so many runs on."""
MORE_LINES: dict[Theme, tuple[str, ...]] = {
    "light": ("#b0562f", "#27734b", "#4a4fb0", "#a8569c", "#867018", "#2b8a99"),
    "dark": ("#e39a76", "#6ccf97", "#989df2", "#e79cd9", "#d8c064", "#62cfdf"),
}
"""Line colours beyond those of figures, away from the colours of severities."""
OLD = "This page is older than the dashboard. Reload it."


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The page; the script fills it."""
    lines = runs.lines()
    if not lines:
        return notices.missing(runs, "")
    return html.Div(
        [
            html.H1("Workspace", className="runs-hidden"),
            dcc.Interval(id="workspace-tick", interval=LARGE_MS if len(lines) > LARGE else LIVE_MS),
            dcc.Store(id="workspace-options", data=_options(theme)),
            dcc.Store(id="workspace-ask"),
            dcc.Store(id="workspace-known"),
            dcc.Store(id="workspace-rows"),
            dcc.Store(id="workspace-want"),
            dcc.Store(id="workspace-lines"),
            dcc.Store(id="workspace-save"),
            dcc.Store(id="workspace-export"),
            dcc.Store(id="workspace-exported"),
            dcc.Download(id="workspace-file"),
            dcc.Store(id="workspace-views", data={"views": runs.home.views(), "problem": ""}),
            html.Div(id="workspace", className="workspace", **attributes(data_max=str(MAX_RUNS))),
        ],
        className="page workspace-page",
    )


def _options(theme: Theme) -> dict[str, Any]:
    """What the script has to know."""
    return {
        "colours": [*PALETTES[theme].lines, *MORE_LINES[theme]],
        "smooths": list(SMOOTHS),
        "statistics": list(STATISTICS),
        "maxRuns": MAX_RUNS,
        "first": [name for chart in CORE for name in chart.metrics],
        "families": [head for _, heads in FAMILIES.values() for head in heads],
    }


def _listed(runs: Runs, ask: Any) -> dict[str, Any]:
    """All rows with the columns and groups that a browser asks for, with their words."""
    ask = ask if isinstance(ask, dict) else {}
    found = rows(runs, columns_of(ask.get("columns")), str(ask.get("group") or "")[:200])
    for row in found["rows"]:
        row["stateIcon"] = STATE_ICONS.get(row["state"], "?")
        row["verdictWords"] = verdict_words(row["verdict"])
    return found


def register(app: Dash, runs: Runs) -> None:
    """Register the callbacks of this page."""
    for name in ("rows", "lines", "views", "options", "exported"):
        in_browser(
            app,
            "stabilizer_workspace",
            name,
            Output("workspace", f"data-{name}"),
            Input(f"workspace-{name}", "data"),
        )

    @app.callback(
        output={"rows": Output("workspace-rows", "data"), "known": Output("workspace-known", "data")},
        inputs={"polls": Input("workspace-tick", "n_intervals"), "ask": Input("workspace-ask", "data")},
        state={"known": State("workspace-known", "data")},
        running=[(Output("workspace-tick", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    def list_rows(polls: Any, ask: Any, known: Any) -> dict[str, Any]:
        found = _listed(runs, ask)
        stamp = zlib.crc32(repr(found).encode("utf-8", "replace"))
        if stamp == known:
            raise PreventUpdate
        return {"rows": found, "known": stamp}

    @app.callback(
        output=Output("workspace-lines", "data"),
        inputs={"want": Input("workspace-want", "data")},
        prevent_initial_call=True,
    )
    def lines(want: Any) -> dict[str, Any]:
        wanted = Wanted.read(want)
        if wanted is None:
            raise PreventUpdate
        return {**answer(runs, wanted), "asked": want}

    @app.callback(
        output=Output("workspace-views", "data"),
        inputs={"save": Input("workspace-save", "data")},
        state={"token": State(TOKEN, "data")},
        prevent_initial_call=True,
    )
    def keep_view(save: Any, token: Any) -> dict[str, Any]:
        if not isinstance(save, dict) or not isinstance(save.get("name"), str):
            raise PreventUpdate
        if not known(runs, token) or not of_this_page():
            return {"views": runs.home.views(), "problem": f"Not saved. {OLD}"}
        query = save.get("query")
        problem = runs.home.keep_view(save["name"], query if isinstance(query, str) else None)
        return {"views": runs.home.views(), "problem": f"Not saved: {problem}" if problem else ""}

    @app.callback(
        output={"file": Output("workspace-file", "data"), "told": Output("workspace-exported", "data")},
        inputs={"export": Input("workspace-export", "data")},
        state={"ask": State("workspace-ask", "data"), "scheme": State("scheme", "data")},
        prevent_initial_call=True,
    )
    def export(export: Any, ask: Any, scheme: Any) -> dict[str, Any]:
        wanted = Wanted.read(export)
        if wanted is None:
            return {
                "file": no_update,
                "told": {"words": "Nothing to export: show a run first.", "at": str(export)[:40]},
            }
        query, title = str(export.get("query") or "")[:MAX_QUERY], f"{len(wanted.runs)} runs"
        theme: Theme = "dark" if scheme == "dark" else "light"
        text = static_page(runs, wanted, _listed(runs, ask), {**_options(theme), "theme": theme}, query, title)
        words = f"Saved workspace.html ({len(text) / 1e6:.1f} MB). It opens without a server."
        file = {"content": text, "filename": "workspace.html", "type": "text/html"}
        return {"file": file, "told": {"words": words, "at": export.get("at")}}
