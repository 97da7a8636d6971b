"""One incident with all that is known of it, or without a number all incidents of a run, the open ones first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from dash import ALL, Dash, Input, Output, Patch, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards.components import notices
from dashboards.components.actions import check_button
from dashboards.components.browser import in_browser
from dashboards.components.elements import GRAPH_CONFIG, attributes, empty, explained, fact, pill, saved, severity
from dashboards.components.links import address
from dashboards.components.rich_text import detector_link, inline
from dashboards.components.trial_card import trial_card
from dashboards.data.followed_run import FollowedRun
from dashboards.data.incident_details import IncidentDetails, LookAlikes, charts, incident_details, timeline
from dashboards.data.revision import revision
from dashboards.data.run_page import cause_words, latest_words, ranked
from dashboards.data.run_registry import Runs
from dashboards.data.run_verdict import RunVerdict
from dashboards.data.similar_incidents import Archive, Past, Similar
from stabilizer.core.knobs import change_words
from stabilizer.figures import Theme
from stabilizer.figures.incident import how_far
from stabilizer.figures.words import meaning_words
from stabilizer.runs.story import Incident, dated, incidents

PATH = "/incident"
NAME = "Incidents"
OF_A_RUN = True
TICK_MS = 1000
GROWTH_TICKS = 5
"""Polls after which the charts of an open incident are drawn again with the rows that came since."""
MAX_LISTED = 200
"""Incidents in the list: the open ones, then the newest."""
FAR = (
    "Change: median of up to 100 rows before the onset → of up to 30 since the departure; where a finding gave the"
    " onset itself, its own baseline and value."
)


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The incident, or the list of all, as it is now; callbacks keep it current."""
    run, key = query.get("run", ""), query.get("n", "")
    followed = runs.get(run)
    if followed is None:
        return notices.missing(runs, run)
    rev = revision(runs, followed)
    words, figures, reach = _now(runs, run, key, followed, theme)
    return html.Div(
        [
            dcc.Store(id="incident-seen", data={"run": run, "n": key, "theme": theme, "rev": rev, "reach": reach}),
            dcc.Interval(id="incident-tick", interval=TICK_MS),
            dcc.Interval(id="incident-watchdog", interval=5 * TICK_MS),
            html.Div(words, id="incident-body", className="page"),
            html.Div(figures, id="incident-charts", className="page"),
            html.Div(id="incident-similar"),
        ],
        className="page",
    )


def register(app: Dash, runs: Runs) -> None:
    """The page is redrawn when findings, journal or requests change; charts follow the run meanwhile; similar
    incidents are looked up once."""
    archive = Archive(runs)

    @app.callback(
        output={
            "body": Output("incident-body", "children"),
            "charts": Output("incident-charts", "children"),
            "figures": Output({"incident-chart": ALL}, "figure"),
            "spans": Output({"incident-span": ALL}, "children"),
            "seen": Output("incident-seen", "data"),
        },
        inputs={"polls": Input("incident-tick", "n_intervals")},
        state={"seen": State("incident-seen", "data")},
        running=[(Output("incident-tick", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    def follow(polls: Any, seen: Any) -> dict[str, Any]:
        run, key, theme, before = _kept(seen)
        followed = runs.get(run)
        if followed is None:
            raise PreventUpdate
        rev = revision(runs, followed)
        there = [output["id"]["incident-chart"] for output in ctx.outputs_grouping["figures"]]
        spans = len(ctx.outputs_grouping["spans"])
        unchanged: dict[str, Any] = {
            "body": no_update,
            "charts": no_update,
            "figures": [no_update] * len(there),
            "spans": [no_update] * spans,
        }
        if rev == before:
            due = isinstance(polls, int) and polls % GROWTH_TICKS == 0
            if not due or (more := _grown(followed, key, seen.get("reach"), theme)) is None:
                raise PreventUpdate
            page, drawn = more
            return unchanged | {
                "figures": [_patch(drawn[name]) if name in drawn else no_update for name in there],
                "spans": [_span(page)] * spans,
                "seen": {**seen, "reach": [page.high, page.until]},
            }
        body, figures, reach = _now(runs, run, key, followed, theme)
        told = unchanged | {"body": body, "seen": {**seen, "rev": rev}}
        story = rev[:4] != before[:4]  # a request that came or went changes no chart
        return told | {"charts": figures, "seen": {**seen, "rev": rev, "reach": reach}} if story else told

    in_browser(
        app,
        "stabilizer",
        "watchdog",
        Output("incident-tick", "disabled"),
        Input("incident-watchdog", "n_intervals"),
        State("incident-tick", "disabled"),
        State("incident-tick", "n_intervals"),
        prevent_initial_call=True,
    )

    @app.callback(output=Output("incident-similar", "children"), inputs={"seen": Input("incident-seen", "data")})
    def look_up(seen: Any) -> Any:
        run, key, *_ = _kept(seen)
        followed = runs.get(run)
        if followed is None or not key:
            raise PreventUpdate
        try:
            with followed.lock:
                found = next((one for one in incidents(followed.refresh().findings) if one.key == key), None)
        except Exception:  # the page shows it already
            raise PreventUpdate from None
        return _similar(archive.similar(run, found)) if found else None


def _kept(seen: Any) -> tuple[str, str, Theme, list[Any]]:
    """The state kept by the browser, whatever it sends."""
    row = seen if isinstance(seen, dict) else {}
    rev = row.get("rev")
    theme: Theme = "dark" if row.get("theme") == "dark" else "light"
    return str(row.get("run", "")), str(row.get("n", "")), theme, rev if isinstance(rev, list) else []


def _grown(
    followed: FollowedRun, key: str, reach: Any, theme: Theme
) -> tuple[IncidentDetails, dict[str, go.Figure]] | None:
    """The incident and its charts, if there are rows that they do not show and would; `reach` is the last step they
    show, and the last that they will."""
    if not isinstance(reach, list) or len(reach) != 2 or not all(isinstance(step, int) for step in reach):
        return None
    try:
        with followed.lock:
            reader = followed.refresh()
            page = incident_details(reader, key) if reach[0] < min(reach[1], reader.history.step) else None
            return (page, dict(charts(reader, page, theme, followed.annotations()))) if page else None
    except Exception:  # the page reports it when it is next redrawn
        return None


def _patch(figure: go.Figure) -> Patch:
    """Everything of a chart but its axes, which may be zoomed."""
    drawn, patch = figure.to_plotly_json(), Patch()
    patch["data"] = drawn["data"]
    for part in ("shapes", "annotations"):
        patch["layout"][part] = drawn["layout"].get(part, [])
    return patch


def _now(runs: Runs, run: str, key: str, followed: FollowedRun, theme: Theme) -> tuple[list[Any], list[Any], Any]:
    """The words and the charts of the page, and the last step that is drawn and that will be."""
    try:
        with followed.lock:
            reader = followed.refresh()
            if not key:
                verdict = followed.verdict()
                found = ranked(incidents(reader.findings)) if verdict.verdict != "not-rl" else ()
                return _all(run, found, verdict), [], None
            page = incident_details(reader, key)
            if page is None:
                return [_nothing(run, key)], [], None
            words = _words(runs, run, followed.path, page, theme)
            drawn = charts(reader, page, theme, followed.annotations())
            said = {name: meaning_words(reader.history.view(), name) for name, _ in drawn}
            rest = [*_charts(drawn, page, said), html.Section(_lookalikes(page), className="column")]
    except Exception as error:  # whatever a directory holds, the page stays up and reports it
        return [notices.broken(run, str(error) or type(error).__name__)], [], None
    return words, rest, [page.high, page.until]


# --- all incidents ----------------------------------------------------------------------------------------------------


def _all(run: str, found: Sequence[Incident], verdict: RunVerdict) -> list[Any]:
    opened = sum(incident.open for incident in found)
    count = f"{opened} open, {len(found) - opened} resolved" if found else "none"
    head = html.Div(
        [html.H1("Incidents"), html.Div([html.Span(run, className="quiet"), pill(count, "")], className="pills")],
        className="card head",
    )
    if not found:
        to = dcc.Link("what detectors look for", href=address("/detectors"))
        return [head, notices.nothing_found(verdict, run), notices.without_data(verdict), html.P(to)]
    left = len(found) - MAX_LISTED
    more = html.P(f"and {left:,} older ones; `stabilizer diagnose` lists them", className="quiet") if left > 0 else None
    return [
        head,
        check_button(run, verdict),
        html.Div([*[_line(run, incident) for incident in found[:MAX_LISTED]], more], className="page"),
    ]


def _line(run: str, incident: Incident) -> html.Article:
    cause = f"likely cause: {cause_words(incident)}" if incident.causes else "no cause named"
    more = f" · {1 + len(incident.others)} findings" if incident.others else ""
    return html.Article(
        [
            html.Div(
                [
                    severity(incident.severity),
                    dcc.Link(_title(incident), href=address(PATH, run=run, n=incident.key), className="to"),
                    pill(incident.state, f"finding-{incident.state}"),
                    html.Span(f"steps {incident.onset:,}–{incident.last:,}", className="quiet small"),
                ],
                className="incident-head",
            ),
            html.P(incident.told[:600], className="summary"),
            html.P(latest_words(incident)[:600], className="quiet small") if incident.latest else None,
            html.P(cause + more, className="quiet small"),
        ],
        className=f"card incident {incident.severity}" + ("" if incident.open else " resolved"),
    )


def _title(incident: Incident) -> str:
    return f"{incident.number} · {incident.id}" if incident.number else incident.id


def _nothing(run: str, key: str) -> html.Div:
    return html.Div(
        [
            empty("There is no such incident", f"{run[:200]} has no incident {key[:80]!r}.", whole=True),
            dcc.Link("All incidents of this run", href=address(PATH, run=run)),
        ],
        className="card head centred",
    )


# --- one incident -----------------------------------------------------------------------------------------------------


def _words(runs: Runs, run: str, path: Path, page: IncidentDetails, theme: Theme) -> list[Any]:
    trials: list[Any] = [trial_card(runs, run, trial, to_incident=False) for trial in page.trials]
    tried = any(trial.made for trial in page.trials)
    return [
        _head(run, path, page),
        html.Div(
            [
                html.Section([*_order(page, theme), *_members(page), *_evidence(page)], className="column"),
                html.Section([*_causes(page), *_advice(page)], className="column"),
            ],
            className="two",
        ),
        html.Section(
            [
                html.H2("What was tried" if tried or not trials else "Proposed, but not applied"),
                *(trials or [empty("Nothing tried", "No fix was proposed for this incident.")]),
            ],
            className="column",
        ),
    ]


def _head(run: str, path: Path, page: IncidentDetails) -> html.Div:
    incident, onset = page.incident, page.onset
    note = None
    if page.left_behind is not None:
        note = html.P(
            f"△ This happened on attempt {page.attempt + 1}, which was rolled back: the run continued from step"
            f" {page.left_behind:,}. The charts show the abandoned branch.",
            className="note",
        )
    return html.Div(
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.H1(["Incident ", _title(incident)]),
                            html.Div(
                                [
                                    severity(incident.severity),
                                    pill(incident.state, f"finding-{incident.state}"),
                                    detector_link(incident.id),
                                ],
                                className="pills",
                            ),
                        ],
                        className="title",
                    ),
                    html.Div(
                        [
                            fact("onset", f"step {onset.step:,} ({onset.earliest:,}–{onset.latest:,})"),
                            fact("detected", f"step {incident.detected:,}"),
                            fact("last seen", f"step {incident.last:,}"),
                            _written(run, path, onset.step),
                        ],
                        className="facts",
                    ),
                    _ways(run, page),
                ],
                className="headline",
            ),
            html.P(incident.told, className="summary lead"),
            note,
        ],
        className="card head",
    )


def _members(page: IncidentDetails) -> list[Any]:
    """The findings of the incident, each in its newest words."""
    incident = page.incident
    if not incident.others and not incident.latest:
        return []
    found = [
        html.Div(
            [
                severity(one.severity),
                detector_link(one.id),
                pill(one.state, f"finding-{one.state}"),
                html.Span(dated(one.summary, one.last_step) if one.state == "resolved" else one.summary),
            ],
            className="also",
        )
        for one in (incident.lead, *incident.others)
    ]
    return [html.H2("Findings"), html.Div(found, className="card pad findings")]


def _written(run: str, path: Path, step: int) -> html.Div | None:
    """The way to what the policy wrote when it began, where the run keeps that."""
    if not (path / "samples").is_dir():
        return None
    to = dcc.Link(f"near step {step:,}", href=address("/completions", run=run, step=str(step)))
    return html.Div([html.Span("completions", className="quiet small"), to])


def _ways(run: str, page: IncidentDetails) -> html.Nav:
    """To the neighbours, in the order of the list; the keys j and k follow the same ways."""
    before = (
        dcc.Link("← previous", id="incident-previous", href=address(PATH, run=run, n=page.previous))
        if page.previous
        else None
    )
    after = dcc.Link("next →", id="incident-next", href=address(PATH, run=run, n=page.next)) if page.next else None
    of = dcc.Link(f"{page.place} of {page.count}", href=address(PATH, run=run))
    return html.Nav([before, of, after], className="ways", **attributes(aria_label="incidents"))


def _order(page: IncidentDetails, theme: Theme) -> list[Any]:
    title = html.H2("Affected metrics, in order")
    figure = timeline(page, theme)
    if figure is None:
        why = "None of the compared metrics departed from its trend around the onset, or the run was too short."
        return [title, empty("No known order", why)]
    rows = [
        html.Li(
            [
                html.Code(signal.metric),
                f" {'up' if signal.up else 'down'} at step {signal.step:,}",
                html.Span(f" · {how_far(signal)}" if how_far(signal) else "", className="quiet"),
                html.Span(f" · {signal.stage}", className="quiet small"),
            ]
        )
        for signal in page.signals
    ]
    return [
        title,
        html.Figure(
            [
                html.Figcaption([html.Span(className="names"), saved("order of onsets")]),
                html.Div(
                    dcc.Graph(
                        id="incident-order",
                        figure=figure,
                        config=GRAPH_CONFIG,
                        responsive=True,
                        style={"height": f"{figure.layout.height}px"},
                    ),
                    style={"minHeight": f"{figure.layout.height}px"},
                ),
                html.Details(
                    [
                        html.Summary("As text"),
                        html.Ol(rows, className="order"),
                        html.P(FAR, className="quiet small"),
                    ],
                ),
            ],
            className="card chart",
        ),
    ]


def _evidence(page: IncidentDetails) -> list[Any]:
    if not page.evidence:
        return []
    rows = [html.Tr([html.Th(key, scope="row"), html.Td(value)]) for key, value in page.evidence]
    return [html.H2("Evidence"), html.Div(html.Table(html.Tbody(rows), className="facts-table"), className="card pad")]


def _causes(page: IncidentDetails) -> list[Any]:
    title = html.H2("Why")
    if not page.incident.causes:
        return [title, empty("No cause named", "The diagnosis named none for this incident.")]
    words = ("Likely cause", "Second", "Third")
    cards = []
    for index, cause in enumerate(page.incident.causes):
        reasons = [html.Li(inline(reason)) for reason in cause.why.split("; ") if reason]
        label = words[index] if index < len(words) else "Also"
        cards.append(
            html.Div(
                [
                    html.Div(
                        [
                            html.Span(label, className="quiet small"),
                            html.Strong(cause.id),
                            html.Span(f"confidence {cause.confidence:.0%}", className="pill tiny")
                            if cause.id != "undetermined"
                            else None,
                        ],
                        className="incident-head",
                    ),
                    html.Ul(reasons, className="points"),
                ],
                className="card pad" if index == 0 else "card pad second",
            )
        )
    return [title, *cards]


def _advice(page: IncidentDetails) -> list[Any]:
    title = html.H2("What to do" if page.incident.open else "Next time")
    if not page.advice and page.incident.harm in (None, "info"):
        over = "It is informational." if page.incident.open else "It is resolved."
        return [title, empty("Nothing to do", f"{over} The run needs no change for it.")]
    if not page.advice:
        return [title, empty("No advice", "No remedy is known for this cause in this run.")]
    cards = [
        html.Div(
            [
                html.Div(
                    [html.Strong(remedy.id), html.Span(remedy.safety, className="pill tiny")], className="incident-head"
                ),
                *[html.Code(line, className="change") for line in change_words(remedy.change)],
                html.P(inline(remedy.why)),
                html.P([html.Span("How: ", className="quiet"), *inline(remedy.how)]) if remedy.how else None,
            ],
            className="card pad",
        )
        for remedy in page.advice
    ]
    return [title, *cards]


def _lookalikes(page: IncidentDetails) -> list[Any]:
    told_of = [one for one in page.lookalikes if one.texts]
    title = html.H2("Look-alikes")
    if not told_of:
        return [title, empty("No look-alikes known", "The pages of these detectors name none.")]
    return [title, *[_lookalike(one, index == 0) for index, one in enumerate(told_of)]]


def _lookalike(one: LookAlikes, first: bool) -> html.Details:
    rows = [
        html.Tr(
            [
                html.Th(detector_link(fact.name) if fact.detector else html.Code(fact.name), scope="row"),
                html.Td(fact.says),
            ]
        )
        for fact in one.facts
    ]
    return html.Details(
        [
            html.Summary(f"Look-alikes of {one.detector}"),
            *[html.P(inline(text)) for text in one.texts],
            html.P("What this run shows:", className="quiet small") if rows else None,
            html.Table(html.Tbody(rows), className="facts-table") if rows else None,
        ],
        className="card pad fold",
        open=first,
    )


def _charts(drawn: Sequence[tuple[str, go.Figure]], page: IncidentDetails, meanings: Mapping[str, str]) -> list[Any]:
    if not drawn:
        return []
    cards = [
        html.Figure(
            [
                html.Figcaption(
                    [
                        html.Span(name, className="chart-title"),
                        html.Span(className="names"),
                        explained(name, meanings[name]),
                        saved(name),
                    ]
                ),
                dcc.Graph(
                    id={"incident-chart": name},
                    figure=figure,
                    config=GRAPH_CONFIG,
                    className="graph",
                    style={"height": "236px"},
                    responsive=True,
                ),
            ],
            className="card chart",
        )
        for name, figure in drawn
    ]
    span = html.Span(_span(page), id={"incident-span": "charts"}, className="quiet small")
    title = html.H2(["Metrics involved ", span])
    return [html.Section([title, html.Div(cards, className="charts")], className="column")]


def _span(page: IncidentDetails) -> str:
    return f"steps {page.low:,}–{page.high:,}"


def _similar(past: Similar) -> html.Section:
    looked = (
        f"among the {past.looked:,} newest of {past.runs:,} runs"
        if past.looked < past.runs
        else f"in {past.runs:,} runs"
    )
    title = html.H2(["Similar past incidents ", html.Span(looked, className="quiet small")])
    if not past.found:
        return html.Section(
            [title, empty("None found", "No other incident had the same failure or cause.")], className="column"
        )
    rows = [_past(one) for one in past.found]
    more = html.P(f"and {past.more} more", className="quiet small") if past.more else None
    return html.Section([title, html.Ul(rows, className="card plain-list"), more], className="column")


def _past(one: Past) -> html.Li:
    incident = one.incident
    ids = [finding.id for finding in incident.findings]
    word = "open" if incident.open else "resolved"
    cause = f"cause: {incident.causes[0].id}" if incident.causes else None
    return html.Li(
        [
            html.Div(
                [
                    severity(incident.severity),
                    dcc.Link(f"{one.run} · {incident.key}", href=address(PATH, run=one.run, n=incident.key)),
                    pill(word, f"finding-{word}"),
                    html.Span(f"from step {incident.onset:,}", className="quiet small"),
                ],
                className="incident-head",
            ),
            html.Div(
                [*[part for id in ids[:4] for part in (detector_link(id), " ")], cause], className="quiet small text"
            ),
            html.Div(f"tried: {one.ended}", className="small text") if one.ended else None,
        ]
    )
