"""The form for what viewers note about a run: name, tags, note, archived. It is kept beside the run, not in it."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, Dash, Input, Output, State, ctx, html
from dash.exceptions import PreventUpdate

from dashboards.components.actions import TOKEN, known
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import NAME, Remarks
from dashboards.security.request_guard import of_this_page

FIELDS = {"name": "value", "tags": "value", "note": "value", "archived": "checked"}
OLD = "Not saved: this page is older than the dashboard. Reload it."


def form(runs: Runs, run: str) -> html.Details | None:
    """The form, folded while nothing is noted; None for a run that is not there."""
    followed = runs.get(run)
    if followed is None:
        return None
    told = runs.remarks(followed.path)

    def id(field: str) -> dict[str, str]:
        return {"remark": field, "run": run}

    return html.Details(
        [
            html.Summary("Name, tags and notes"),
            html.Div(
                [
                    dmc.TextInput(id=id("name"), label="name", value=told.name, placeholder=run, size="xs"),
                    dmc.TextInput(
                        id=id("tags"),
                        label="tags",
                        value=", ".join(told.tags),
                        placeholder="baseline, to repeat",
                        size="xs",
                    ),
                    dmc.Textarea(
                        id=id("note"),
                        label="note",
                        value=told.note,
                        autosize=True,
                        minRows=2,
                        size="xs",
                    ),  # fmt: skip
                    dmc.Switch(id=id("archived"), label="archived: not in the lists", checked=told.archived, size="xs"),
                    html.Div(
                        [
                            html.Button("Save", id=id("save"), className="ask main"),
                            html.Span(id=id("told"), className="quiet small", role="status"),
                        ],
                        className="answers",
                    ),
                ],
                className="remarks",
            ),
        ],
        className="card remarks-form",
        open=bool(told.note),
    )


def register(app: Dash, runs: Runs) -> None:
    """Register the callback of the form."""

    @app.callback(
        output=Output({"remark": "told", "run": MATCH}, "children"),
        inputs={"clicks": Input({"remark": "save", "run": MATCH}, "n_clicks")},
        state={
            "token": State(TOKEN, "data"),
            **{name: State({"remark": name, "run": MATCH}, prop) for name, prop in FIELDS.items()},
        },
        prevent_initial_call=True,
    )
    def save(clicks: Any, token: Any, name: Any, tags: Any, note: Any, archived: Any) -> str:
        if not clicks or not ctx.triggered_id:
            raise PreventUpdate
        if not known(runs, token) or not of_this_page():
            return OLD
        followed = runs.get(str(ctx.triggered_id.get("run", "")))
        if followed is None:
            return "Not saved: this run no longer exists."
        words = tags.split(",") if isinstance(tags, str) else []
        told = Remarks.read({"name": name, "tags": words, "note": note, "archived": archived})
        problem = runs.notes.of(followed.path).note(followed.path.name, told)
        return f"Not saved: {problem}" if problem else f"Saved in {followed.path.parent / NAME}"
