"""The form for what viewers note about a run: name, tags, note, archived, and notes at steps of its charts.

All of it is kept beside the run, not in it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, Dash, Input, Output, State, ctx, html
from dash.exceptions import PreventUpdate

from dashboards.components.actions import TOKEN, known
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import MAX_ANNOTATIONS, NAME, Annotation, Remarks
from dashboards.security.request_guard import of_this_page

FIELDS = {"name": "value", "tags": "value", "note": "value", "annotations": "value", "archived": "checked"}
OLD = "Not saved: this page is older than the dashboard. Reload it."


def form(runs: Runs, run: str) -> html.Details | None:
    """The form of a run, folded while there is no note; None for a run that is not there."""
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
                    dmc.Textarea(
                        id=id("annotations"),
                        label="notes on charts: a step and a text in each line",
                        value="\n".join(f"{one.step} {one.text}" for one in told.annotations),
                        placeholder="120 new reward function from here",
                        autosize=True,
                        minRows=1,
                        size="xs",
                    ),
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
        open=bool(told.note or told.annotations),
    )


def typed(annotations: Any) -> tuple[list[Annotation], str]:
    """The notes on charts in what was typed, and what is wrong with it."""
    lines = [line for line in annotations.splitlines() if line.strip()] if isinstance(annotations, str) else []
    if len(lines) > MAX_ANNOTATIONS:
        return [], f"there are at most {MAX_ANNOTATIONS} notes on charts"
    marked: list[Annotation] = []
    for line in lines:
        if (one := Annotation.of_line(line)) is None:
            return [], f"no step and text: {line[:60]!r}; write it as `120 new reward function`"
        marked.append(one)
    return marked, ""


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
    def save(clicks: Any, token: Any, name: Any, tags: Any, note: Any, annotations: Any, archived: Any) -> str:
        if not clicks or not ctx.triggered_id:
            raise PreventUpdate
        if not known(runs, token) or not of_this_page():
            return OLD
        followed = runs.get(str(ctx.triggered_id.get("run", "")))
        if followed is None:
            return "Not saved: this run no longer exists."
        marked, wrong = typed(annotations)
        if wrong:
            return f"Not saved: {wrong}"
        given = {"name": name, "tags": tags.split(",") if isinstance(tags, str) else [], "note": note}
        told = Remarks.read(given | {"archived": archived, "annotations": [asdict(one) for one in marked]})
        problem = runs.notes.of(followed.path).note(followed.path.name, told)
        return f"Not saved: {problem}" if problem else f"Saved in {followed.path.parent / NAME}"
