"""The parts of a run's page as components: each function turns plain data into what is seen.

Text of a run is only ever a component's child, which React renders as text; none becomes markup, a link or a style.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from dashboards.live import ChartView
from dashboards.parts import STATE_ICONS, empty, fact, pill, severity, verdict_words
from dashboards.state import Card, KeyNumber, Page, Trial
from stabilizer.figures import CONFIG, PALETTES
from stabilizer.figures.words import meaning_words

ENTRY_ICONS = {
    "proposed": "○", "approved": "◔", "rejected": "–", "expired": "–", "applied": "▼", "verified": "✓", "reverted": "↺",
    "failed": "■",
}  # fmt: skip


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
                                    html.Span(" · ".join(filter(None, (page.task, page.trainer))), className="quiet"),
                                    html.Span(id="age", className="quiet"),
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
            html.Div([_tile(number) for number in page.numbers], className="tiles"),
            *[html.P(f"△ {note}", className="note") for note in page.notes],
        ],
        className="card head",
    )  # fmt: skip


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


# --- charts -----------------------------------------------------------------------------------------------------------


def grid(charts: Sequence[ChartView]) -> list[Any]:
    """One card per chart; a run without numbers yet says so."""
    if not charts:
        return [empty("No numbers yet", "Charts appear with the first step the trainer writes.")]
    return [_chart(item) for item in charts]


def _chart(item: ChartView) -> html.Figure:
    help_text = "\n\n".join(meaning_words(item.view, name) for name in item.chart.metrics)
    return html.Figure(
        [
            html.Figcaption(
                [
                    html.Span(item.chart.title, className="chart-title"),
                    html.Span([_key(item, index) for index in range(len(item.chart.metrics))], className="names"),
                    dmc.Tooltip(
                        html.Button("?", className="help", **{"aria-label": f"what {item.chart.title} means"}),
                        label=help_text, multiline=True, w=340, withArrow=True, position="bottom-end",
                        events={"hover": True, "focus": True, "touch": True}, className="meaning",
                    ),
                ]
            ),
            dcc.Graph(id={"chart": item.chart.id}, figure=item.figure, config=dict(CONFIG), className="graph",
                      style={"height": "236px"}, responsive=True),
        ],
        className="card chart",
    )  # fmt: skip


def _key(item: ChartView, index: int) -> html.Span:
    """A metric's name behind its line colour: the chart's legend, when there is something to tell apart."""
    metrics = item.chart.metrics
    family = metrics[0].partition("/")[0]
    shared = len(metrics) > 1 and all(name.startswith(f"{family}/") for name in metrics)
    words = metrics[index].removeprefix(f"{family}/") if shared else metrics[index]
    name = html.Span(words, className="quiet small", title=metrics[index])
    if len(metrics) == 1:
        return name
    colours = PALETTES[item.theme].lines
    return html.Span([html.Span(className="swatch", style={"background": colours[index % len(colours)]}), name])


# --- incidents --------------------------------------------------------------------------------------------------------


def incident_list(cards: Sequence[Card]) -> list[Any]:
    """The incidents, those that stand first."""
    standing = sum(card.open for card in cards)
    title = html.H2(["Incidents ", html.Span(f"{standing} open, {len(cards) - standing} resolved" if cards else "",
                                             className="quiet small")])  # fmt: skip
    if not cards:
        return [title, empty("Nothing found", "Detectors have seen no failure so far.")]
    return [title, *[_incident(card) for card in cards]]


def _incident(card: Card) -> html.Article:
    also = [
        html.Div([severity(other.severity), html.Code(other.id), html.Span(f" {other.summary}")], className="also")
        for other in card.also
    ]
    body = [
        html.Div(
            [severity(card.severity), html.Code(card.id),
             html.Span(card.state, className=f"pill finding-{card.state}")],
            className="incident-head",
        ),
        html.P(card.summary, className="summary"),
        html.Div(
            [
                fact("began", f"step {card.onset:,}"), fact("noticed", f"step {card.detected:,}"),
                fact("last seen", f"step {card.last:,}"),
            ],
            className="facts",
        ),
        *also,
    ]  # fmt: skip
    if card.causes:
        body.append(html.H3("Likely cause"))
        for index, (name, confidence, why) in enumerate(card.causes):
            body.append(
                html.Div([html.Strong(name), html.Span(f" {confidence:.0%} ", className="quiet"), f"· {why}"],
                         className="cause" if index == 0 else "cause quiet")
            )  # fmt: skip
    if card.advice and card.open:
        body.append(html.H3("What to do"))
        for name, safety, change, why, how in card.advice:
            body.append(
                html.Div(
                    [html.Div([html.Strong(name), html.Span(safety, className="pill tiny")]),
                     *[html.Code(line, className="change") for line in change],
                     html.Div(why), html.Div(how, className="quiet") if how else None],
                    className="advice",
                )
            )  # fmt: skip
    if card.evidence:
        rows = [html.Tr([html.Th(key, scope="row"), html.Td(value)]) for key, value in card.evidence]
        body.append(html.Details([html.Summary("Evidence"), html.Table(html.Tbody(rows))], open=card.open))
    return html.Article(body, className=f"card incident {card.severity}" + ("" if card.open else " resolved"))


# --- journal ----------------------------------------------------------------------------------------------------------


def journal(trials: Sequence[Trial]) -> list[Any]:
    """What was tried, as a timeline."""
    title = html.H2("Journal")
    if not trials:
        return [title, empty("Nothing tried yet", "Changes made against an incident are written down here.")]
    return [title, *[_trial(trial) for trial in trials]]


def _trial(trial: Trial) -> html.Article:
    about = f"incident {trial.incident}" if trial.incident else ""
    return html.Article(
        [
            html.Div(
                [html.Code(trial.remedy), html.Span(trial.outcome, className=f"pill entry-{trial.outcome}"),
                 html.Span(" · ".join(part for part in (about, trial.safety) if part), className="quiet small")],
                className="incident-head",
            ),
            *[html.Code(line, className="change") for line in trial.change],
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
        className="card trial",
    )  # fmt: skip


# --- when there is nothing to show ------------------------------------------------------------------------------------


def no_runs(roots: Sequence[str]) -> html.Div:
    """The page before there is any run."""
    looked = f"Looked in {', '.join(roots)}. Train the built-in task and come back:"
    return html.Div(empty("No runs here yet", looked, "stabilizer demo"), className="card head")


def unknown(run: str) -> html.Div:
    """The page of a run that is not there."""
    return html.Div(
        empty("There is no such run", f"{run[:200]!r} is not among the runs found. Choose another one above."),
        className="card head",
    )


def broken(run: str, problem: str) -> html.Div:
    """The page of a run that can't be read, which it says and waits for."""
    return html.Div(
        empty("This run can't be read", f"{run[:200]}: {problem[:600]}. The page tries again every few seconds."),
        className="card head",
    )
