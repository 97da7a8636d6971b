"""The forms for what viewers note about a run: name, tags, note, archived, and notes at steps of its charts.

All of it is kept beside the run, not in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, MATCH, Dash, Input, Output, State, ctx, html, no_update
from dash.exceptions import PreventUpdate

from dashboards.components.actions import TOKEN, known
from dashboards.components.elements import attributes
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import MAX_ANNOTATIONS, NAME, Annotation, Remarks
from dashboards.security.request_guard import of_this_page

FIELDS = {"name": "value", "tags": "value", "note": "value", "archived": "checked"}
OLD = "Not saved: this page is older than the dashboard. Reload it."


def forms(runs: Runs, run: str) -> list[html.Details]:
    """The forms of a run; none for a run that is not there."""
    followed = runs.get(run)
    if followed is None:
        return []
    told = runs.remarks(followed.path)
    return [_form(told, run), _annotations(told, run)]


def _form(told: Remarks, run: str) -> html.Details:
    """What is noted about the run as a whole, folded while there is no note."""

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
                    _confirm("Save", id("save"), id("told")),
                ],
                className="remarks",
            ),
        ],
        className="card remarks-form",
        open=bool(told.note),
    )


def _confirm(word: str, button: dict[str, str], answer: dict[str, str]) -> html.Div:
    """The button of a form, and the place of its answer."""
    return html.Div(
        [
            html.Button(word, id=button, className="ask main"),
            html.Span(id=answer, className="quiet small", role="status"),
        ],
        className="answers",
    )


def _annotations(told: Remarks, run: str) -> html.Details:
    """The form for notes at steps, folded while there are none."""

    def id(field: str) -> dict[str, str]:
        return {"annotation": field, "run": run}

    return html.Details(
        [
            html.Summary("Notes on charts"),
            html.Div(
                [
                    html.Div(_noted(told, run), id=id("list")),
                    dmc.NumberInput(id=id("step"), label="step", min=0, allowDecimal=False, size="xs", value=""),
                    dmc.TextInput(
                        id=id("text"), label="text", placeholder="new reward function from here", size="xs", value=""
                    ),
                    _confirm("Add", id("add"), id("told")),
                ],
                className="remarks",
            ),
        ],
        className="card remarks-form",
        open=bool(told.annotations),
    )


def _noted(told: Remarks, run: str) -> list[Any]:
    return [
        html.Div(
            [
                html.Span([html.Strong(f"step {one.step:,} "), one.text]),
                html.Button(
                    "Remove",
                    id={"unannotate": place, "run": run},
                    className="quiet-button",
                    **attributes(aria_label=f"remove the note at step {one.step:,}"),
                ),
            ],
            className="annotation",
        )
        for place, one in enumerate(told.annotations)
    ]


def _changed(told: Remarks, removed: Any, step: Any, text: Any) -> Remarks | str:
    """The remarks with one note less, or one more; why there is none, in words."""
    if removed is not None:
        return replace(told, annotations=tuple(one for at, one in enumerate(told.annotations) if at != removed))
    added = Annotation.read({"step": step, "text": text})
    if added is None:
        return "a note needs a step and a text"
    if len(told.annotations) >= MAX_ANNOTATIONS:
        return f"there are {MAX_ANNOTATIONS} notes already; remove one first"
    return replace(told, annotations=tuple(sorted((*told.annotations, added), key=lambda one: one.step)))


def register(app: Dash, runs: Runs) -> None:
    """Register the callbacks of the forms."""

    @app.callback(
        output={
            "list": Output({"annotation": "list", "run": MATCH}, "children"),
            "text": Output({"annotation": "text", "run": MATCH}, "value"),
            "told": Output({"annotation": "told", "run": MATCH}, "children"),
        },
        inputs={
            "adds": Input({"annotation": "add", "run": MATCH}, "n_clicks"),
            "removes": Input({"unannotate": ALL, "run": MATCH}, "n_clicks"),
        },
        state={
            "token": State(TOKEN, "data"),
            "step": State({"annotation": "step", "run": MATCH}, "value"),
            "text": State({"annotation": "text", "run": MATCH}, "value"),
        },
        prevent_initial_call=True,
    )
    def annotate(adds: Any, removes: Any, token: Any, step: Any, text: Any) -> dict[str, Any]:
        asked = ctx.triggered_id
        clicked = ctx.triggered and ctx.triggered[0].get("value")
        if not asked or not clicked:
            raise PreventUpdate
        if not known(runs, token) or not of_this_page():
            return {"list": no_update, "text": text, "told": OLD}
        run = str(asked.get("run", ""))
        followed = runs.get(run)
        if followed is None:
            return {"list": no_update, "text": text, "told": "Not saved: this run no longer exists."}
        changed = _changed(runs.remarks(followed.path), asked.get("unannotate"), step, text)
        if isinstance(changed, str):
            return {"list": no_update, "text": text, "told": f"Not saved: {changed}"}
        if problem := runs.notes.of(followed.path).note(followed.path.name, changed):
            return {"list": no_update, "text": text, "told": f"Not saved: {problem}"}
        return {"list": _noted(runs.remarks(followed.path), run), "text": "", "told": "Saved. The charts show it now."}

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
        kept = runs.remarks(followed.path).annotations
        told = replace(
            Remarks.read({"name": name, "tags": words, "note": note, "archived": archived}), annotations=kept
        )
        problem = runs.notes.of(followed.path).note(followed.path.name, told)
        return f"Not saved: {problem}" if problem else f"Saved in {followed.path.parent / NAME}"
