"""A trial as a person reads it: what it promised, what it changed, what became of it, and the buttons to answer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import dcc, html

from dashboards.components.actions import buttons
from dashboards.components.elements import pill
from dashboards.components.links import address
from dashboards.data.run_registry import Runs
from dashboards.data.trials import entry_facts, promise, twin_of
from stabilizer.core.knobs import change_words
from stabilizer.core.records import Action
from stabilizer.runs.story import TrialStory

ENTRY_ICONS = {
    "proposed": "○",
    "approved": "◔",
    "rejected": "–",
    "expired": "–",
    "applied": "▼",
    "verified": "✓",
    "reverted": "↺",
    "failed": "■",
}


def trial_card(
    runs: Runs, run: str, trial: TrialStory, *, brief: bool = False, over: bool = False, to_incident: bool = True
) -> html.Article:
    """One trial. A `brief` card leaves out the hypothesis and the control run; `to_incident` adds the link to the
    incident it was proposed for; of a run that is `over` nothing can be answered any more."""
    newest, waits = trial.newest.entry, trial.waiting
    outcome = ("never answered" if over else "waits for your answer") if brief and waits else newest
    head: list[Any] = [
        html.Code(trial.action, className="quiet"),
        html.Strong(trial.remedy),
        pill(outcome, f"entry-{newest}"),
        pill(trial.safety, "tiny") if trial.safety else None,
    ]
    if trial.incident and to_incident:
        href = address("/incident", run=run, n=str(trial.incident))
        head.append(dcc.Link(f"incident {trial.incident}", href=href, className="small"))
    promised = {} if brief else promise(trial)
    twin = "" if brief else twin_of(trial)
    answers = buttons(runs, run, trial.action, reasons=waits)
    return html.Article(
        [
            html.Div(head, className="incident-head"),
            *[html.Code(line, className="change") for line in change_words(trial.change)],
            answers if brief else None,  # before the entries: on the run's page the answer comes first
            _promise(promised) if promised else None,
            html.Ol([_entry(entry, repeated=bool(promised)) for entry in trial.entries], className="timeline"),
            html.P([html.Span("Twin: ", className="quiet"), twin], className="twin") if twin else None,
            None if brief else answers,
        ],
        className="card trial waiting" if brief and waits else "card trial",
    )


def _promise(promised: Mapping[str, str]) -> html.Dl:
    parts = [part for name, text in promised.items() if text for part in (html.Dt(name), html.Dd(text))]
    return html.Dl(parts, className="hypothesis")


def _entry(entry: Action, *, repeated: bool) -> html.Li:
    repeated = repeated and entry.entry == "proposed"  # the promise above has the same text
    facts = " · ".join(f"{key} {value}" for key, value in entry_facts(entry.data))
    return html.Li(
        [
            html.Span(ENTRY_ICONS.get(entry.entry, "○"), className=f"dot entry-{entry.entry}"),
            html.Div(
                [
                    html.Div([html.Strong(entry.entry), html.Span(f" step {entry.step:,}", className="quiet small")]),
                    html.Div(entry.text, className="text") if entry.text and not repeated else None,
                    html.Div(facts, className="quiet small text") if facts else None,
                ]
            ),
        ]
    )
