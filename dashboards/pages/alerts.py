"""Alerts: where the dashboard sends news of all runs while it is open. A saved address is never shown again.

Only a browser on this machine (or through a tunnel to it) may change alerts, because this machine then calls the
addresses.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, html
from dash.exceptions import PreventUpdate
from flask import request

from dashboards.components.actions import TOKEN, known
from dashboards.components.elements import attributes, empty
from dashboards.data.alerts import PAUSES, SEVERITIES, Alert
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import NAME as FILE
from dashboards.security.access import LOCAL_HOSTS
from dashboards.security.request_guard import named, of_this_page
from stabilizer.core.text import spoken
from stabilizer.figures import Theme

PATH = "/alerts"
NAME = ""
OF_A_RUN = False
OLD = "This page is older than the dashboard. Reload it."
AWAY = "Alerts can be changed on the machine of the dashboard only: open it there, or through an ssh tunnel."
EXAMPLE = "https://hooks.slack.com/services/…"
ACTS = {"test": "Send a test message", "remove": "Remove"}


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The alerts and the form for another one."""
    return html.Div(
        [
            html.Div(
                [
                    html.H1("Alerts"),
                    html.P(
                        "While this dashboard is open, incidents that open or end, fixes that wait for an answer, and"
                        " runs that fail or stop sending heartbeats are sent to these addresses.",
                    ),
                    html.P(f"They are kept in {runs.home.path}, which only you can read.", className="quiet small"),
                ],
                className="card head",
            ),
            html.Div(_list(runs), id="alerts-list", className="alerts-list"),
            html.Div(_form(), className="card alerts-form"),
        ],
        className="page alerts",
    )


def register(app: Dash, runs: Runs) -> None:
    """Register the callbacks of this page."""

    @app.callback(
        output={
            "list": Output("alerts-list", "children"),
            "url": Output("alerts-url", "value"),
            "told": Output("alerts-told", "children"),
        },
        inputs={"saves": Input("alerts-save", "n_clicks"), "acts": Input({"alert": ALL, "act": ALL}, "n_clicks")},
        state={
            "token": State(TOKEN, "data"),
            "url": State("alerts-url", "value"),
            "severity": State("alerts-severity", "value"),
            "every": State("alerts-every", "value"),
        },
        prevent_initial_call=True,
    )
    def change(saves: Any, acts: Any, token: Any, url: Any, severity: Any, every: Any) -> dict[str, Any]:
        asked = ctx.triggered_id
        clicks = acts if isinstance(acts, list) else []
        if not (saves if asked == "alerts-save" else any(clicks)):
            raise PreventUpdate
        if told := _refused(runs, token):
            return {"list": _list(runs), "url": url, "told": told}
        if asked == "alerts-save":
            told = _saved(runs, {"url": url, "severity": severity, "every": _seconds(every)})
            return {"list": _list(runs), "url": url if told else "", "told": told or f"Saved in {FILE}."}
        id, act = (str(asked.get(key)) for key in ("alert", "act")) if isinstance(asked, dict) else ("", "")
        told = _done(runs, id, act)
        return {"list": _list(runs), "url": url, "told": told}


def _refused(runs: Runs, token: Any) -> str:
    """Why this browser may not change alerts; empty when it may."""
    if not known(runs, token) or not of_this_page():
        return OLD
    return "" if named(request.headers.get("Host", ""), LOCAL_HOSTS) else AWAY


def _saved(runs: Runs, row: Mapping[str, Any]) -> str:
    """Save an alert; why that failed, or nothing."""
    alert = Alert.read(row)
    if alert is None:
        return "Not saved: an alert needs an address such as https://host/path."
    problem = alert.problem() or runs.home.keep_alert(secrets.token_hex(4), alert)
    return f"Not saved: {problem}" if problem else ""


def _done(runs: Runs, id: str, act: str) -> str:
    """Test or remove an alert; the result in words."""
    alert = runs.home.alerts().get(id)
    if alert is None:
        return "This alert no longer exists."
    if act == "remove":
        problem = runs.home.keep_alert(id, None)
        return f"Not removed: {problem}" if problem else f"Removed: {alert.target}."
    problem = alert.test()
    return f"Not sent: {alert.target}: {problem}" if problem else f"Sent: {alert.target}."


def _seconds(every: Any) -> int:
    return int(every) if isinstance(every, str) and every.isdecimal() and len(every) < 6 else Alert.every


def _list(runs: Runs) -> list[Any]:
    rows = [_row(id, alert, runs.alerts.problems.get(alert.target, "")) for id, alert in runs.home.alerts().items()]
    return rows or [empty("No alerts yet", "Add an address below. It is checked before it is saved.")]


def _row(id: str, alert: Alert, problem: str) -> html.Div:
    buttons = [
        html.Button(
            words,
            id={"alert": id, "act": act},
            className="ask",
            **attributes(aria_label=f"{words}: {alert.target}"),
        )
        for act, words in ACTS.items()
    ]
    failed = html.P(f"Last failure: {problem}", className="note bad") if problem else None
    return html.Div(
        [
            html.Div([html.Strong(alert.target), html.Span(alert.words, className="quiet"), failed]),
            html.Div(buttons, className="answers"),
        ],
        className="card alerts-row",
    )


def _form() -> list[Any]:
    pauses = [{"value": str(pause), "label": f"every {spoken(pause)}" if pause else "each at once"} for pause in PAUSES]
    return [
        html.H2("Add an alert"),
        dmc.PasswordInput(
            id="alerts-url",
            label="Address",
            description="A webhook of Slack or Discord, any https address that takes JSON, or an address of apprise.",
            placeholder=EXAMPLE,
            size="sm",
            visibilityToggleButtonProps={"aria-label": "show the address"},
            value="",
        ),
        html.Div(
            [
                dmc.Select(
                    id="alerts-severity",
                    label="Findings",
                    description="Runs that fail or fall silent are always sent.",
                    value=Alert.severity,
                    allowDeselect=False,
                    w=280,
                    data=[{"value": value, "label": label} for value, label in SEVERITIES.items()],
                ),
                dmc.Select(
                    id="alerts-every",
                    label="Warnings about one run",
                    description="Programs that take JSON get each at once.",
                    value=str(Alert.every),
                    allowDeselect=False,
                    w=280,
                    data=pauses,
                ),
            ],
            className="alerts-choices",
        ),
        html.Div(
            [
                html.Button("Save", id="alerts-save", className="ask main"),
                html.Span(id="alerts-told", role="status"),
            ],
            className="answers",
        ),
    ]
