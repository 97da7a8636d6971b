"""What was done to a run while it trained: trials, manual actions and attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards.components import notices
from dashboards.components.actions import buttons
from dashboards.components.elements import empty
from dashboards.components.trial_card import trial_card
from dashboards.data.followed_run import FollowedRun
from dashboards.data.journal import Chains, Journal, journal
from dashboards.data.revision import revision
from dashboards.data.run_registry import Runs
from stabilizer.figures import Theme
from stabilizer.runs.journal import Chain

PATH = "/journal"
NAME = "Journal"
OF_A_RUN = True
TICK_MS = 1500

_chains = Chains()


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The journal as it is now; a callback keeps it current."""
    run = query.get("run", "")
    followed = runs.get(run)
    if followed is None:
        return notices.missing(runs, run)
    body, seen = _now(runs, run, followed)
    return html.Div(
        [
            dcc.Store(id="journal-seen", data={"run": run, "rev": seen}),
            dcc.Interval(id="journal-tick", interval=TICK_MS),
            html.Div(body, id="journal-body", className="page"),
        ],
        className="page",
    )


def register(app: Dash, runs: Runs) -> None:
    """The page is redrawn when the journal or the requests change."""

    @app.callback(
        output={"body": Output("journal-body", "children"), "seen": Output("journal-seen", "data")},
        inputs={"polls": Input("journal-tick", "n_intervals")},
        state={"seen": State("journal-seen", "data")},
        prevent_initial_call=True,
    )
    def follow(polls: int, seen: Any) -> dict[str, Any]:
        run = seen.get("run") if isinstance(seen, dict) else None
        followed = runs.get(run) if isinstance(run, str) else None
        if not isinstance(run, str) or followed is None:
            raise PreventUpdate
        rev = revision(runs, followed)
        if rev == seen.get("rev"):
            raise PreventUpdate
        body, rev = _now(runs, run, followed)
        return {"body": body, "seen": {"run": run, "rev": rev} if rev else no_update}


def _now(runs: Runs, run: str, followed: FollowedRun) -> tuple[Any, list[Any]]:
    rev = revision(runs, followed)
    try:
        with followed.lock:
            page = journal(followed.refresh(), _chains.of(followed.path))
    except Exception as error:  # whatever a directory holds, the page stays up and reports it
        return notices.broken(run, str(error) or type(error).__name__), []
    return _page(runs, run, page), rev


def _page(runs: Runs, run: str, page: Journal) -> list[Any]:
    count = len(page.trials)
    head = html.Div(
        [
            html.Div([html.H1("Journal"), html.Span(run, className="quiet")]),
            html.P(
                f"{count} {'fix' if count == 1 else 'fixes'} proposed or applied. Each is an experiment: recorded"
                " first, judged, then kept or undone.",
                className="lead",
            ),
            _chain(page.chain),
            buttons(runs, run),
        ],
        className="card head",
    )
    trials: list[Any] = [trial_card(runs, run, one) for one in page.trials]
    return [
        head,
        html.Div(
            [
                html.Section(
                    [
                        html.H2("Fixes"),
                        *(trials or [empty("Nothing tried yet", "Changes to the run appear here.")]),
                    ],
                    className="column",
                ),
                html.Section([*_attempts(page), *_manual(page)], className="column"),
            ],
            className="two",
        ),
    ]


def _chain(chain: Chain | None) -> html.P:
    if chain is None:
        return html.P("△ The journal is too large to be checked here.", className="note")
    if chain.broken:
        return html.P(
            f"■ The chain is broken after {chain.entries} entries: {chain.broken}."
            " Entries from there on can't be trusted.",
            className="note bad",
        )
    torn = f"; {chain.torn} incomplete lines, as a crash leaves them" if chain.torn else ""
    words = f"✓ The hash chain is intact: {chain.entries} entries{torn}."
    return html.P(words if chain.entries else "The journal is empty.", className="quiet small")


def _manual(page: Journal) -> list[Any]:
    rows = [
        html.Li(
            [
                html.Div([html.Strong(f"step {one.step:,}"), html.Span(f" by {one.by}", className="quiet small")]),
                html.Div(one.text, className="text"),
                *[html.Code(line, className="change") for line in one.change],
            ]
        )
        for one in page.manual
    ]
    none = empty("None yet", "Knobs changed and requests made manually appear here.")
    return [html.H2("Manual actions"), html.Ul(rows, className="card plain-list") if rows else none]


def _attempts(page: Journal) -> list[Any]:
    rows = [
        html.Li(
            [
                html.Div(
                    [
                        html.Strong(f"attempt {one.number + 1}"),
                        html.Span(f" {one.reason}", className="quiet"),
                        html.Span(f" · from step {one.from_step:,}", className="quiet small"),
                        html.Span(f" of attempt {one.parent + 1}", className="quiet small")
                        if one.parent is not None
                        else None,
                    ]
                ),
                html.Div(one.text, className="text") if one.text else None,
            ]
        )
        for one in page.attempts
    ]
    none = empty("One attempt", "Restarts and rollbacks appear here.")
    return [html.H2("Attempts and rollbacks"), html.Ul(rows, className="card plain-list") if rows else none]
