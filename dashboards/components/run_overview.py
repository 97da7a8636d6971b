"""The parts of a run's page as components: each function turns plain data into what is seen.

Text of a run is only ever a component's child, which React renders as text; none becomes markup, a link or a style.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from dashboards.components.actions import check_button
from dashboards.components.elements import STATE_ICONS, attributes, empty, pill, severity, verdict_words
from dashboards.components.links import address
from dashboards.components.notices import nothing_found, without_data
from dashboards.components.trial_card import ENTRY_ICONS, trial_card
from dashboards.data.run_list import compared
from dashboards.data.run_page import Changed, KeyNumber, Page, cause_words, latest_words
from dashboards.data.run_registry import Runs
from dashboards.data.run_verdict import RunVerdict
from dashboards.data.viewer_file import Remarks
from stabilizer.core.knobs import change_words
from stabilizer.runs.story import Incident, TrialStory

MOST_NOW = 3
"""Proposals and open incidents that stand on top; all are in the Journal and in the list."""
MOST = 20
"""Incidents of one list; older ones have their pages."""
STATE_WORDS = {
    "running": "last heartbeat {age} ago",
    "paused": "paused until it is resumed; last heartbeat {age} ago",
    "stalled": "no heartbeat for {age}: the trainer has died, hangs or is in a very long step; check its log",
    "finished": "finished {age} ago",
    "stopped": "stopped {age} ago",
    "failed": "failed {age} ago",
    "preempted": "preempted {age} ago; continues when it is resumed",
}


# --- header -----------------------------------------------------------------------------------------------------------


def head(page: Page, run: str, told: Remarks) -> html.Div:
    """Name, state, progress, verdict and the numbers of now."""
    tiles = html.Div([_tile(number, page.step) for number in page.numbers], className="tiles")
    headline = html.Div([_title(page, run, told), _reach(page)], className="headline")
    return html.Div([headline, tiles if page.numbers else None], className="card head")


def _title(page: Page, run: str, told: Remarks) -> html.Div:
    note = html.Span(page.run_verdict.note, className="quiet") if page.run_verdict.note else None
    return html.Div(
        [
            html.H1(told.name or page.name, title=page.name),
            html.Div(
                [
                    pill(f"{STATE_ICONS.get(page.state, '?')} {page.state}", f"state-{page.state}"),
                    pill(f"verdict: {verdict_words(page.verdict)}", f"verdict-{page.verdict}"),
                    note,
                    html.Span(_what(page), className="quiet"),
                    *[html.Span(tag, className="pill tiny") for tag in told.tags],
                    _notes(page.notes),
                    dcc.Link("Setup", href=address("/setup", run=run)),
                    dcc.Link("Workspace", href=address("/workspace", runs=compared([run]))),
                    # last: the browser writes it, and nothing after it may move
                    html.Span(id="age", className="quiet", **attributes(data_words=state_words(page))),
                ],
                className="pills",
            ),
        ],
        className="title",
    )


def _notes(notes: Sequence[str]) -> html.Details | None:
    """What to know about how the run was read, folded, so that no chart moves."""
    if not notes:
        return None
    count = f"△ {len(notes)} {'remark' if len(notes) == 1 else 'remarks'}"
    return html.Details(
        [html.Summary(count), *[html.P(note, className="note") for note in notes]], className="read-notes"
    )


def _reach(page: Page) -> html.Div:
    """How far the run is, and the attempt."""
    planned = f" / {page.steps:,}" if page.steps else ""
    attempt = f" · attempt {page.attempt + 1}" if page.attempt else ""
    told = [
        html.Span([html.Strong(f"{max(page.step, 0):,}"), planned, " steps"]),
        html.Span(attempt, className="quiet"),
    ]
    label = attributes(aria_label="steps done")
    bar = dmc.Progress(value=page.progress or 0, size="sm", radius="xl", className="progress", **label)
    return html.Div([html.Div(told), bar if page.progress is not None else None], className="reach")


def _what(page: Page) -> str:
    """Task and trainer, where they are known and not the same."""
    known = (word for word in (page.task, page.trainer) if word not in ("", "unknown"))
    return " · ".join(dict.fromkeys(known))


def state_words(page: Page) -> str:
    """The state of a run in words; the browser fills in {age}."""
    if page.state in ("running", "paused", "created", "stalled") and page.lives is False:
        return "the training process is gone; last heartbeat {age} ago. `stabilizer train --resume` continues the run"
    return STATE_WORDS.get(page.state, "last written {age} ago")


def _tile(number: KeyNumber, now: int) -> html.Div:
    """A key number; its step where that is not the run's."""
    return html.Div(
        [
            html.Div(number.label, className="label"),
            html.Div(
                [
                    html.Span(number.value, className="value" if number.finite else "value broken"),
                    html.Span(number.unit, className="unit"),
                    html.Span(f"step {number.step:,}", className="unit when") if number.step != now else None,
                ],
                className="number",
            ),
        ],
        className="tile",
    )


# --- what matters now -------------------------------------------------------------------------------------------------


def now(page: Page, runs: Runs, run: str) -> list[Any]:
    """The most important news: proposals that wait for an answer, open incidents, and what became of the newest fix."""
    said: list[Any] = [trial_card(runs, run, waiting, brief=True) for waiting in page.waiting[:MOST_NOW]]
    if (more := len(page.waiting) - MOST_NOW) > 0:
        said.append(dcc.Link(f"{more} more fixes wait for your answer", href=address("/journal", run=run)))
    said += [_line(incident, run) for incident in page.open[:MOST_NOW]]
    if more := len(page.open) - MOST_NOW:
        said += [html.P(f"and {more} more open incidents below", className="quiet small")] if more > 0 else []
    return said + [_fix(trial) for trial in page.news]


def _line(incident: Incident, run: str) -> html.Div:
    return html.Div(
        [
            severity(incident.severity),
            dcc.Link(incident.id, href=_page_of(incident, run)),
            html.Span(f"since step {incident.onset:,}", className="quiet small"),
            html.Span(incident.summary, className="said", title=incident.summary),
        ],
        className=f"card now-line {incident.severity}",
    )


def _fix(newest: TrialStory) -> html.Div:
    last = newest.entries[-1]
    said = last.text or next((entry.text for entry in reversed(newest.entries) if entry.text), "")
    turned = [change for change in change_words(newest.change) if change not in said]
    return html.Div(
        [
            html.Strong(f"{ENTRY_ICONS.get(last.entry, '○')} fix"),
            html.Code(newest.remedy),
            pill(last.entry, f"entry-{last.entry}"),
            html.Span(f"step {last.step:,}", className="quiet small"),
            html.Span(" · ".join((*turned, said)), className="said", title=said),
        ],
        className="card now-line fix" if newest.made else "card now-line",
    )


def _page_of(incident: Incident, run: str) -> str:
    return address("/incident", run=run, n=incident.key)


def changed(found: Changed | None, run: str) -> list[Any]:
    """The largest changes of the metrics, and where there is more about the run."""
    if found is None or found.step <= 0:  # no row
        return []
    lines = [html.Li(change.words) for change in found.changes]
    told = html.Ul(lines, className="changed") if lines else html.P("nothing beyond the noise", className="quiet")
    title = html.H2(["What changed ", html.Span(f"up to step {found.step:,}", className="quiet small")])
    more = dcc.Link("More, and how it was set up", href=address("/setup", run=run), className="small")
    return [title, told, more, *_healthy(found)]


def outlook(lines: Sequence[str]) -> list[Any]:
    """Where the run is heading."""
    return [html.H2("Outlook"), html.Ul([html.Li(line) for line in lines], className="changed")] if lines else []


def _healthy(found: Changed) -> list[Any]:
    """What was checked and is fine, folded."""
    if not found.healthy:
        return []
    rows = [html.Li([html.Strong(f"✓ {item.what}"), f": {item.why}"]) for item in found.healthy]
    count = f"{len(rows)} {'check' if len(rows) == 1 else 'checks'} passed"
    return [html.Details([html.Summary(count), html.Ul(rows)], className="unseen healthy")]


# --- incidents --------------------------------------------------------------------------------------------------------


def incident_list(found: Sequence[Incident], run: str, verdict: RunVerdict, over: bool = True) -> list[Any]:
    """The incidents as short cards, the open ones first; each links to its page. A run that is not over can notify."""
    opened = sum(incident.open for incident in found)
    count = f"{opened} open, {len(found) - opened} resolved" if found else ""
    title = html.H2(["Incidents ", html.Span(count, className="quiet small"), None if over else _notify()])
    if not found:
        return [title, nothing_found(verdict, run), without_data(verdict)]
    more = [html.P(f"and {len(found) - MOST} older", className="quiet small")] if len(found) > MOST else []
    cards = [_incident(incident, run) for incident in found[:MOST]]
    return [title, check_button(run, verdict), *cards, *more, without_data(verdict)]


def _notify() -> html.Span:
    """Asks the browser for its notifications, which `assets/run.js` sends; and the way to alerts that reach further."""
    words = "let this browser notify you when an incident opens or a fix waits for an answer, while this tab is open"
    here = html.Button("notify me", className="quiet-button notify", title=words, **attributes(data_notify="1"))
    return html.Span([here, dcc.Link("alerts", href="/alerts", className="small")])


def _incident(incident: Incident, run: str) -> html.Article:
    facts = [f"steps {incident.onset:,}–{incident.last:,}"] if incident.last else []
    if incident.causes:
        facts.append(f"likely cause: {cause_words(incident)}")
    if incident.others:
        count = len(incident.others)
        facts.append(f"{count} more {'finding' if count == 1 else 'findings'}")
    return html.Article(
        [
            html.Div(
                [
                    severity(incident.severity),
                    dcc.Link(incident.id, href=_page_of(incident, run), className="incident-link"),
                    html.Span(incident.state, className=f"pill finding-{incident.state}"),
                ],
                className="incident-head",
            ),
            html.P(incident.told, className="summary"),
            html.P(latest_words(incident), className="quiet small") if incident.latest else None,
            html.P(" · ".join(facts), className="quiet small"),
        ],
        className=f"card incident {incident.severity}" + ("" if incident.open else " resolved"),
    )


# --- journal ----------------------------------------------------------------------------------------------------------


def journal(page: Page, runs: Runs, run: str) -> list[Any]:
    """The trials as a timeline. Those that wait for an answer are at the top of the page instead."""
    title = html.H2("Journal")
    shown = [trial for trial in page.trials if trial not in page.waiting]
    if not shown:
        return [title, empty("Nothing tried yet", "Changes made to stop an incident appear here.")]
    more = [html.P(f"and {len(shown) - MOST} older", className="quiet small")] if len(shown) > MOST else []
    return [title, *[trial_card(runs, run, trial, brief=True, over=page.over) for trial in shown[:MOST]], *more]
