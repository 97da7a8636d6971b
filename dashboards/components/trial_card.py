"""A trial as a person reads it: what it promised, what it changed, what became of it, and the buttons to answer it."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from dashboards.components.actions import buttons
from dashboards.components.elements import pill
from dashboards.components.links import address
from dashboards.data.run_registry import Runs
from dashboards.data.trials import Entry, Hypothesis, Trial

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
    runs: Runs, run: str, trial: Trial, *, brief: bool = False, over: bool = False, to_incident: bool = True
) -> html.Article:
    """One trial. A `brief` card leaves out the hypothesis and the control run; `to_incident` adds the link to the
    incident it was proposed for; of a run that is `over` nothing can be answered any more."""
    outcome = ("never answered" if over else "waits for your answer") if brief and trial.waiting else trial.outcome
    head: list[Any] = [
        html.Code(trial.action, className="quiet"),
        html.Strong(trial.remedy),
        pill(outcome, f"entry-{trial.outcome}"),
        pill(trial.safety, "tiny") if trial.safety else None,
    ]
    if trial.incident and to_incident:
        href = address("/incident", run=run, n=str(trial.incident))
        head.append(dcc.Link(f"incident {trial.incident}", href=href, className="small"))
    hypothesis = None if brief else trial.hypothesis
    answers = buttons(runs, run, trial.action, reasons=trial.waiting)
    return html.Article(
        [
            html.Div(head, className="incident-head"),
            *[html.Code(line, className="change") for line in trial.change],
            answers if brief else None,  # before the entries: on the run's page the answer comes first
            _hypothesis(hypothesis) if hypothesis else None,
            html.Ol([_entry(entry, hypothesis) for entry in trial.entries], className="timeline"),
            html.P([html.Span("Twin: ", className="quiet"), trial.twin], className="twin")
            if trial.twin and not brief
            else None,
            None if brief else answers,
        ],
        className="card trial waiting" if brief and trial.waiting else "card trial",
    )


def _hypothesis(hypothesis: Hypothesis) -> html.Dl:
    rows = (
        ("Why", hypothesis.why),
        ("Expects", hypothesis.expects),
        ("Guard", hypothesis.guard),
        ("Judged after", hypothesis.horizon),
        ("Undo", "; ".join(hypothesis.undo)),
        ("Rollback", hypothesis.rollback),
    )
    return html.Dl(
        [part for name, text in rows if text for part in (html.Dt(name), html.Dd(text))], className="hypothesis"
    )


def _entry(entry: Entry, hypothesis: Hypothesis | None) -> html.Li:
    repeated = entry.entry == "proposed" and hypothesis is not None  # the hypothesis above has the same text
    facts = " · ".join(f"{key} {value}" for key, value in entry.facts)
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
