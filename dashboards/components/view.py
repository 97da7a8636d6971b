"""The parts of a run's page as components: each function turns plain data into what is seen.

Text of a run is only ever a component's child, which React renders as text; none becomes markup, a link or a style.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from dashboards.components.actions import buttons, check_button
from dashboards.components.frame import address
from dashboards.components.parts import STATE_ICONS, empty, pill, severity, verdict_words
from dashboards.components.plain import detector_link
from dashboards.data.standing import Standing
from dashboards.data.state import Card, KeyNumber, Page, Runs, Trial

MOST = 20
"""Cards of one list; older ones have their pages."""
ENTRY_ICONS = {
    "proposed": "○", "approved": "◔", "rejected": "–", "expired": "–", "applied": "▼", "verified": "✓", "reverted": "↺",
    "failed": "■",
}  # fmt: skip
STATE_WORDS = {
    "running": "last sign of life {age} ago",
    "paused": "waits to be told to go on; last sign of life {age} ago",
    "stalled": "no sign of life for {age}: the trainer is gone, hangs, or is in a very long step; look at its log",
    "finished": "finished {age} ago",
    "stopped": "stopped {age} ago",
    "failed": "failed {age} ago",
    "preempted": "preempted {age} ago; it goes on when it is resumed",
}


# --- header -----------------------------------------------------------------------------------------------------------


def head(page: Page) -> html.Div:
    """Name, state, progress, verdict and the numbers of now."""
    planned = f" / {page.steps:,}" if page.steps else ""
    attempt = f" · attempt {page.attempt + 1}" if page.attempt else ""
    return html.Div(
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.H1(page.name),
                            html.Div(
                                [
                                    pill(f"{STATE_ICONS.get(page.state, '?')} {page.state}", f"state-{page.state}"),
                                    pill(f"verdict: {verdict_words(page.verdict)}", f"verdict-{page.verdict}"),
                                    html.Span(page.standing.note, className="quiet") if page.standing.note else None,
                                    html.Span(" · ".join(filter(None, (page.task, page.trainer))), className="quiet"),
                                    html.Span(id="age", className="quiet", **{"data-words": state_words(page)}),
                                ],
                                className="pills",
                            ),
                        ],
                        className="title",
                    ),
                    html.Div(
                        [
                            html.Div(
                                [
                                    html.Span([html.Strong(f"{max(page.step, 0):,}"), planned, " steps"]),
                                    html.Span(attempt, className="quiet"),
                                ]
                            ),
                            dmc.Progress(value=page.progress or 0, size="sm", radius="xl", className="progress",
                                         **{"aria-label": "steps done"}) if page.progress is not None else None,
                        ],
                        className="reach",
                    ),
                ],
                className="headline",
            ),
            html.Div([_tile(number) for number in page.numbers], className="tiles") if page.numbers else None,
            *[html.P(f"△ {note}", className="note") for note in page.notes],
        ],
        className="card head",
    )  # fmt: skip


def unseen(stands: Standing) -> html.Details | None:
    """Which detectors had no data; nothing where the verdict says enough without it. It is in a part of the page that a
    poll seldom draws anew, for that would fold it."""
    if not stands.blind:
        return None
    rows = [
        html.Li([detector_link(each.detector), html.Span(f" needs {_joined(each.needs)}", className="quiet small")])
        for each in stands.blind
    ]
    return html.Details([html.Summary(stands.blind_words), html.Ul(rows)], className="unseen")


def _joined(needs: Sequence[str]) -> str:
    return ", ".join(need.replace("|", " or ") for need in needs)


def nothing_found(stands: Standing, run: str) -> html.Div:
    """What is said of a run without incidents: only what the detectors that were asked can say."""
    title, text = {
        "unchecked": ("Not checked", "No detector was asked about this run yet."),
        "waiting": ("Being checked", "What the detectors find appears here."),
        "not-rl": (
            "Not an RL run", "It logs no rewards, completions or KL, so the detectors have nothing to judge.",
        ),
        "too-short": ("Too short to judge", "There are too few rows for the detectors to say anything either way."),
    }.get(stands.verdict, ("Nothing found", "The detectors that had data saw no failure."))  # fmt: skip
    return html.Div([*empty(title, text).children, check_button(run, stands)], className="empty")


def state_words(page: Page) -> str:
    """What the state means for whoever waits; the browser puts the age where {age} stands."""
    if page.state in ("running", "paused", "created", "stalled") and page.lives is False:
        return (
            "the process that trains is gone; last sign of life {age} ago. `stabilizer train --resume` goes on with it"
        )
    return STATE_WORDS.get(page.state, "last written {age} ago")


def _tile(number: KeyNumber) -> html.Div:
    return html.Div(
        [
            html.Div(number.label, className="label"),
            html.Div(
                [html.Span(number.value, className="value" if number.finite else "value broken"),
                 html.Span(number.unit, className="unit")],
                className="number",
            ),
            html.Div(f"step {number.step:,}", className="quiet small"),
        ],
        className="tile",
    )  # fmt: skip


# --- what matters now -------------------------------------------------------------------------------------------------


def now(page: Page, runs: Runs, run: str) -> list[Any]:
    """What a person should know first: what waits for an answer, what is wrong, and what the newest fix does."""
    said: list[Any] = [trial(waiting, runs, run) for waiting in page.waiting]
    said += [_line(card, run) for card in page.open]
    if page.newest:
        said.append(_fix(page.newest))
    return said


def _line(card: Card, run: str) -> html.Div:
    return html.Div(
        [severity(card.severity), dcc.Link(card.id, href=_page_of(card, run)),
         html.Span(f"since step {card.onset:,}", className="quiet small"),
         html.Span(card.summary, className="said", title=card.summary)],
        className=f"card now-line {card.severity}",
    )  # fmt: skip


def _fix(newest: Trial) -> html.Div:
    last = newest.entries[-1]
    said = last.text or next((entry.text for entry in reversed(newest.entries) if entry.text), "")
    return html.Div(
        [html.Strong(f"{ENTRY_ICONS.get(last.entry, '○')} fix"), html.Code(newest.remedy),
         pill(last.entry, f"entry-{last.entry}"), html.Span(f"step {last.step:,}", className="quiet small"),
         html.Span(" · ".join((*newest.change, said)), className="said", title=said)],
        className="card now-line fix",
    )  # fmt: skip


def _page_of(card: Card, run: str) -> str:
    return address("/incident", run=run, n=str(card.number))


# --- incidents --------------------------------------------------------------------------------------------------------


def incident_list(cards: Sequence[Card], run: str, stands: Standing) -> list[Any]:
    """The incidents as short cards, those that stand first; each leads to its page."""
    standing = sum(card.open for card in cards)
    title = html.H2(["Incidents ", html.Span(f"{standing} open, {len(cards) - standing} resolved" if cards else "",
                                             className="quiet small")])  # fmt: skip
    if not cards:
        return [title, nothing_found(stands, run), unseen(stands)]
    more = [html.P(f"and {len(cards) - MOST} older ones", className="quiet small")] if len(cards) > MOST else []
    found = [_incident(card, run) for card in cards[:MOST]]
    return [title, check_button(run, stands), *found, *more, unseen(stands)]


def _incident(card: Card, run: str) -> html.Article:
    facts = (f"steps {card.onset:,}–{card.last:,}", f"likely cause: {card.likely}" if card.likely else "",
             f"with {len(card.also)} more" if card.also else "")  # fmt: skip
    return html.Article(
        [
            html.Div(
                [severity(card.severity), dcc.Link(card.id, href=_page_of(card, run), className="incident-link"),
                 html.Span(card.state, className=f"pill finding-{card.state}")],
                className="incident-head",
            ),
            html.P(card.summary, className="summary"),
            html.P(card.later, className="quiet small") if card.later else None,
            html.P(" · ".join(filter(None, facts)), className="quiet small"),
        ],
        className=f"card incident {card.severity}" + ("" if card.open else " resolved"),
    )  # fmt: skip


# --- journal ----------------------------------------------------------------------------------------------------------


def journal(page: Page, runs: Runs, run: str) -> list[Any]:
    """What was tried, as a timeline; what waits for an answer is at the top of the page instead."""
    title = html.H2("Journal")
    told = [tried for tried in page.journal if tried not in page.waiting]
    if not told:
        return [title, empty("Nothing tried yet", "Changes made against an incident are written down here.")]
    more = [html.P(f"and {len(told) - MOST} older ones", className="quiet small")] if len(told) > MOST else []
    return [title, *[trial(tried, runs, run, over=page.over) for tried in told[:MOST]], *more]


def trial(trial: Trial, runs: Runs, run: str, *, over: bool = False) -> html.Article:
    """One fix from its proposal to what came of it, with the buttons to answer it while that means something."""
    asks = "was never answered" if over else "waits for your answer"
    about = dcc.Link(f"incident {trial.incident}", href=address("/incident", run=run, n=str(trial.incident)))
    return html.Article(
        [
            html.Div(
                [html.Code(trial.remedy),
                 html.Span(asks if trial.waiting else trial.outcome,
                           className=f"pill entry-{trial.outcome}"),
                 html.Span(trial.safety, className="quiet small") if trial.safety else None,
                 html.Span(about, className="small") if trial.incident else None],
                className="incident-head",
            ),
            *[html.Code(line, className="change") for line in trial.change],
            buttons(runs, run, trial.action, reasons=trial.waiting),
            html.Ol(
                [
                    html.Li(
                        [
                            html.Span(ENTRY_ICONS.get(entry.entry, "○"), className=f"dot entry-{entry.entry}"),
                            html.Div(
                                [
                                    html.Div([html.Strong(entry.entry),
                                              html.Span(f" step {entry.step:,}", className="quiet small")]),
                                    html.Div(entry.text, className="text") if entry.text else None,
                                    html.Div(" · ".join(f"{key} {value}" for key, value in entry.facts),
                                             className="quiet small") if entry.facts else None,
                                ]
                            ),
                        ]
                    )
                    for entry in trial.entries
                ],
                className="timeline",
            ),
        ],
        className="card trial waiting" if trial.waiting else "card trial",
    )  # fmt: skip


# --- when there is nothing to show ------------------------------------------------------------------------------------


def no_runs(roots: Sequence[str]) -> html.Div:
    """The page before there is any run."""
    looked = (
        f"Looked in {', '.join(roots)} for runs and for logs of other trainers. Give the folder that holds yours"
        " (stabilizer dashboard PATH), or train the built-in task:"
    )
    return html.Div(empty("No runs here yet", looked, "stabilizer demo", whole=True), className="card head")


def unknown(run: str) -> html.Div:
    """The page of a run that is not there."""
    return html.Div(
        empty(
            "There is no such run", f"{run[:200]!r} is not among the runs found. Choose another one above.", whole=True
        ),
        className="card head",
    )


def broken(run: str, problem: str) -> html.Div:
    """The page of a run that can't be read, which it says and waits for."""
    return html.Div(
        empty(
            "This run can't be read",
            f"{run[:200]}: {problem[:600]}. The page tries again every few seconds.",
            whole=True,
        ),
        className="card head",
    )
