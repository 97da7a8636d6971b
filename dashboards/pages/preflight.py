"""Problems in a configuration before the first step: paste one, take a run's, or open an example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html
from dash.exceptions import PreventUpdate

from dashboards.components.elements import empty, severity
from dashboards.components.links import address
from dashboards.components.rich_text import detector_link, inline
from dashboards.data.preflight import (
    FORMS,
    MAX_TEXT,
    TITLES,
    PreflightAnswer,
    PreflightInput,
    example,
    from_run,
    judged,
)
from dashboards.data.run_registry import Runs
from stabilizer.figures import ICONS, Theme
from stabilizer.output.preflight_terminal import SURE, VERDICTS, changes
from stabilizer.preflight.rules.base import Finding
from stabilizer.trainers.configs import TRAINERS

PATH = "/preflight"
NAME = "Preflight"
OF_A_RUN = False
AUTO = "auto"
FIELDS = {
    "text": "preflight-text",
    "form": "preflight-form",
    "trainer": "preflight-trainer",
    "version": "preflight-version",
    "gpus": "preflight-gpus",
    "processes": "preflight-processes",
    "model_size": "preflight-size",
    "prompts": "preflight-prompts",
}
"""Fields of the question, and the parts of the form they are filled in."""
TYPED = {
    "version": ("Trainer version", "0.18.0"),
    "gpus": ("GPUs", "8"),
    "processes": ("Training processes", "7"),
    "model_size": ("Model size", "7B"),
    "prompts": ("Dataset prompts", "12000"),
}
"""Fields that are typed: label and an example."""


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The form; an example or a run in the address is judged at once."""
    asked, problem = PreflightInput(""), ""
    if name := query.get("example"):
        asked = example(name) or asked
        problem = "" if asked.text else f"there is no example {name[:80]!r}"
    elif run := query.get("run"):
        asked = from_run(runs, run) or asked
        problem = "" if asked.text else f"run {run[:200]!r} has no recorded configuration"
    if problem:
        shown: Any = _refused(problem)
    elif asked.text:
        shown = _found(judged(asked))
    else:
        shown = empty("No configuration yet", "Paste a configuration and press Check. It is read, never run or stored.")
    return html.Div(
        [
            html.Div(
                [
                    html.H1("Preflight"),
                    html.P(
                        "Finds problems in a configuration before the first step. The text is read, never run;"
                        " nothing is written.",
                        className="lead",
                    ),
                ],
                className="card head",
            ),
            html.Div(
                [_form(runs, asked, query.get("run")), html.Section(shown, id="preflight-found", className="column")],
                className="two even",
            ),
        ],
        className="page",
    )


def register(app: Dash, runs: Runs) -> None:
    """Judge the text in the form; a chosen run goes into the address."""

    @app.callback(
        output=Output("preflight-found", "children"),
        inputs={"clicks": Input("preflight-check", "n_clicks")},
        state={"form": {name: State(id, "value") for name, id in FIELDS.items()}},
        prevent_initial_call=True,
    )
    def check(clicks: Any, form: dict[str, Any]) -> Any:
        given = {name: value for name, value in form.items() if isinstance(value, str) and value != AUTO}
        return _found(judged(PreflightInput(**{"text": "", **given})))

    @app.callback(
        output=Output("url", "search", allow_duplicate=True),
        inputs={"run": Input("preflight-run", "value")},
        state={"search": State("url", "search")},
        prevent_initial_call=True,
    )
    def take(run: Any, search: Any) -> str:
        wanted = "?" + urlencode({"run": run}) if isinstance(run, str) and run else ""
        if not wanted or wanted == search:
            raise PreventUpdate
        return wanted


def _form(runs: Runs, asked: PreflightInput, run: str | None) -> html.Section:
    trainers = [
        {"value": AUTO, "label": "auto-detect"},
        *({"value": trainer.name, "label": trainer.title} for trainer in TRAINERS),
    ]
    forms = [{"value": AUTO, "label": "auto-detect"}, *({"value": k, "label": v} for k, v in FORMS.items())]
    known = [line.id for line in runs.lines()][:300]
    return html.Section(
        [
            html.Div(
                [
                    html.Label("Configuration, or the script that starts the training", htmlFor="preflight-text"),
                    dcc.Textarea(
                        id="preflight-text",
                        value=asked.text,
                        maxLength=MAX_TEXT,
                        spellCheck=False,
                        rows=22,
                        placeholder="learning_rate: 1e-6\nnum_generations: 8\n…",
                        className="paste",
                    ),
                    html.Div(
                        [
                            _choice("form", "Format", forms, asked.form or AUTO),
                            _choice("trainer", "Trainer", trainers, asked.trainer or AUTO),
                            *[
                                dmc.TextInput(id=FIELDS[name], label=label, value="", placeholder=example, size="sm")
                                for name, (label, example) in TYPED.items()
                            ],
                        ],
                        className="fields",
                    ),
                    html.Button("Check", id="preflight-check", className="ask main"),
                ],
                className="card pad",
            ),
            html.Div(
                [
                    dmc.Select(
                        id="preflight-run",
                        label="Or the configuration of a run",
                        data=known,
                        value=run if run in known else None,
                        searchable=True,
                        placeholder="choose a run",
                        nothingFoundMessage="no such run",
                        size="sm",
                    ),
                    html.Div("Or an example", className="quiet small"),
                    html.Ul(
                        [html.Li(dcc.Link(title, href=address(PATH, example=name))) for name, title in TITLES.items()],
                        className="points",
                    ),
                ],
                className="card pad",
            ),
        ],
        className="column",
    )


def _choice(name: str, label: str, data: list[dict[str, str]], value: str) -> dmc.Select:
    return dmc.Select(id=FIELDS[name], label=label, data=data, value=value, allowDeselect=False, size="sm")


def _found(done: PreflightAnswer) -> list[Any]:
    if done.result is None:
        return _refused(done.problem)
    config, verdict = done.result.config, done.result.verdict
    icon = ICONS.get(verdict, "✓")
    facts = [
        f"{config.trainer.title}, {config.trainer_why}",
        f"version {config.version_used} ({config.version_why})",
        f"{len(config.settings)} settings" + (f", {config.processes} processes" if config.processes else ""),
    ]
    notes = [*(f"Not known: {text.partition(': give')[0]}" for text in done.result.unknown), *config.parsed.notes]
    return [
        html.Div(
            [
                html.H2(f"{icon} {VERDICTS[verdict]}", className=f"severity {verdict}"),
                html.P(inline("; ".join(facts)), className="quiet small text"),
                html.Ul([html.Li(text) for text in notes], className="points quiet small") if notes else None,
            ],
            className="card pad",
        ),
        *[_finding(finding) for finding in done.result.findings],
        *_fixed(done),
    ]


def _refused(problem: str) -> list[Any]:
    return [empty("This could not be judged", problem)]


def _finding(finding: Finding) -> html.Article:
    where = f"line {finding.line}" if finding.line else "not set"
    return html.Article(
        [
            html.Div([severity(finding.severity), detector_link(finding.id)], className="incident-head"),
            html.Div(
                [html.Strong(finding.key[:200]), html.Span(f" = {_value(finding.value)} · {where}", className="quiet")],
                className="text",
            ),
            html.P(finding.summary, className="summary"),
            html.P([html.Span("Why: ", className="quiet"), *inline(finding.why)]),
            html.P([html.Span("Set instead: ", className="quiet"), *inline(finding.how)]) if finding.how else None,
            html.Code(changes(finding), className="change") if finding.change else None,
            *[
                html.P([html.Span("Alternatively: ", className="quiet"), *inline(other)])
                for other in finding.alternatives
            ],
            html.P(f"How sure: {SURE[finding.sure]} ({finding.source})", className="quiet small text"),
        ],
        className=f"card incident {finding.severity}",
    )


def _value(value: Any) -> str:
    words = "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return words if len(words) <= 120 else words[:120] + " …"


def _fixed(done: PreflightAnswer) -> list[Any]:
    if not done.fixed:
        return []
    left = f" Left for you: {', '.join(dict.fromkeys(done.left))}." if done.left else ""
    words = f"Fixes {', '.join(dict.fromkeys(done.applied))}. Verdict afterwards: {VERDICTS[done.verdict_after]}.{left}"
    return [
        html.H2("A corrected copy"),
        html.Div(
            [
                html.P(words, className="text"),
                html.Div(
                    [
                        dcc.Clipboard(
                            target_id="preflight-fixed", title="copy the corrected configuration", className="copy"
                        ),
                        html.Span("copy", className="quiet small"),
                    ],
                    className="copying",
                ),
                html.Pre(done.fixed, id="preflight-fixed", className="source", tabIndex=0),
            ],
            className="card pad",
        ),
    ]
