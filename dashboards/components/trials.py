"""A fix as a person reads it: what it promised, what it changed, what became of it, and the buttons to answer it."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from dashboards.components.actions import buttons
from dashboards.components.frame import address
from dashboards.components.parts import pill
from dashboards.components.view import ENTRY_ICONS
from dashboards.data.journal import Hypothesis, Tried
from dashboards.data.state import Entry, Runs


def trial_card(runs: Runs, run: str, tried: Tried, *, to_incident: bool = True) -> html.Article:
    """One trial. `to_incident` adds the way to the incident it was made for."""
    trial = tried.trial
    about: list[Any] = [pill(trial.outcome, f"entry-{trial.outcome}"), html.Span(trial.safety, className="pill tiny")]
    if trial.incident and to_incident:
        href = address("/incident", run=run, n=str(trial.incident))
        about.append(dcc.Link(f"incident {trial.incident}", href=href, className="small"))
    return html.Article(
        [
            html.Div(
                [html.Code(trial.action, className="quiet"), html.Strong(trial.remedy), *about],
                className="incident-head",
            ),
            *[html.Code(line, className="change") for line in trial.change],
            _hypothesis(tried.hypothesis) if tried.hypothesis else None,
            html.Ol([_entry(entry, tried) for entry in trial.entries], className="timeline"),
            html.P([html.Span("Twin: ", className="quiet"), tried.twin], className="twin") if tried.twin else None,
            buttons(runs, run, trial.action),
        ],
        className="card trial",
    )


def _hypothesis(card: Hypothesis) -> html.Dl:
    rows = (
        ("Why", card.why), ("Expects", card.expects), ("Guard", card.guard), ("Judged after", card.horizon),
        ("Undo", "; ".join(card.undo)), ("Rollback", card.rollback),
    )  # fmt: skip
    return html.Dl(
        [part for name, text in rows if text for part in (html.Dt(name), html.Dd(text))], className="hypothesis"
    )


def _entry(entry: Entry, tried: Tried) -> html.Li:
    told = entry.entry == "proposed" and tried.hypothesis is not None  # the card above says it already
    facts = " · ".join(f"{key} {value}" for key, value in entry.facts)
    return html.Li(
        [
            html.Span(ENTRY_ICONS.get(entry.entry, "○"), className=f"dot entry-{entry.entry}"),
            html.Div(
                [
                    html.Div([html.Strong(entry.entry), html.Span(f" step {entry.step:,}", className="quiet small")]),
                    html.Div(entry.text, className="text") if entry.text and not told else None,
                    html.Div(facts, className="quiet small text") if facts else None,
                ]
            ),
        ]
    )
