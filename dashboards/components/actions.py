"""Buttons that ask a run for something: approve, reject and revert a fix; pause, resume and save the run.

A click leaves a file in the run's `requests/` and nothing else; the training process reads it at its next step, acts,
and puts it on record. Every click must come from a page of this very server: it carries the token that the page was
given when this server started, and the browser must say that the request is of the same origin.
"""

from __future__ import annotations

import hmac
from typing import Any

from dash import ALL, MATCH, Dash, Input, Output, State, ctx, html
from dash.exceptions import PreventUpdate

from dashboards.data.allowed_requests import AllowedRequest, AllowedRequests, allowed_requests, submit
from dashboards.data.run_registry import Runs
from dashboards.data.run_verdict import RunVerdict
from dashboards.security.request_guard import of_this_page

TOKEN = "action-token"  # noqa: S105
BEING_CHECKED = "Being checked. Findings appear here."


def buttons(runs: Runs, run: str, action: str = "", *, reasons: bool = True) -> html.Div:
    """The requests allowed for a trial (`a1`), or without one for the run as a whole.

    Without `reasons` the place stays empty when nothing is allowed.
    """
    found = allowed_requests(runs, run, action)
    if found.refused and not reasons:
        found = AllowedRequests(run, action)
    return html.Div(_shown(found), id={"type": "answers", "run": run, "of": action}, className="answers")


def register(app: Dash, runs: Runs) -> None:
    """Register the callbacks of the buttons, on whatever page they are."""

    @app.callback(
        output=Output({"type": "answers", "run": MATCH, "of": MATCH}, "children"),
        inputs={"clicks": Input({"type": "ask", "run": MATCH, "of": MATCH, "kind": ALL}, "n_clicks")},
        state={"token": State(TOKEN, "data")},
        prevent_initial_call=True,
    )
    def ask(clicks: Any, token: Any) -> Any:
        pressed = ctx.triggered_id
        if not pressed or not ctx.triggered or not ctx.triggered[0]["value"]:
            raise PreventUpdate  # buttons came or went; none was pressed
        run, kind, action = (str(pressed.get(key, "")) for key in ("run", "kind", "of"))
        if not known(runs, token) or not of_this_page():
            return _shown(
                AllowedRequests(run, action, refused="Not sent: this page is older than the dashboard. Reload it.")
            )
        return _shown(submit(runs, run, kind, action))

    @app.callback(
        output=Output({"type": "checks", "run": MATCH}, "children"),
        inputs={"clicks": Input({"type": "check", "run": MATCH}, "n_clicks")},
        state={"token": State(TOKEN, "data")},
        prevent_initial_call=True,
    )
    def check(clicks: Any, token: Any) -> Any:
        if not clicks or not ctx.triggered_id:
            raise PreventUpdate
        if not known(runs, token) or not of_this_page():
            return [_said("Not checked: this page is older than the dashboard. Reload it.")]
        refused = runs.check(str(ctx.triggered_id.get("run", "")))
        return [_said(f"Not checked: {refused}" if refused else BEING_CHECKED)]


def check_button(run: str, verdict: RunVerdict) -> html.Div:
    """The button that has a run checked, where something is left to check, and why the last check failed."""
    shown: list[Any] = []
    if verdict.ask:
        shown.append(html.Button(verdict.ask, id={"type": "check", "run": run}, className="ask main"))
    if verdict.problem:
        shown.append(_said(f"The check failed: {verdict.problem}"))
    return html.Div(shown, id={"type": "checks", "run": run}, className="answers")


def _said(words: str) -> html.Span:
    return html.Span(words, className="quiet small", role="status")


def known(runs: Runs, token: Any) -> bool:
    """Whether a token is the one of this server's pages, compared in constant time."""
    return isinstance(token, str) and hmac.compare_digest(token.encode(), runs.token.encode())


def _shown(found: AllowedRequests) -> list[Any]:
    if found.waits:
        return [html.Span(f"◔ {found.waits}", className="waits", role="status")]
    why = [_said(words) for words in (found.refused, found.note) if words]
    return [*why, *[_button(offer, found) for offer in found.offers]]


def _button(offer: AllowedRequest, found: AllowedRequests) -> Any:
    id = {"type": "ask", "run": found.run, "of": found.action, "kind": offer.kind}
    look = "ask main" if offer.kind in ("approve", "resume") else "ask"
    if not offer.warning:
        button = html.Button(offer.label, id=id, className=look)
        return html.Span([button, html.Span(" ".join(offer.cost), className="quiet small")]) if offer.cost else button
    return html.Details(
        [
            html.Summary(f"{offer.label} …", className=look),
            html.Div(
                [html.P(text) for text in (offer.warning, *offer.cost)]
                + [html.Button(f"Yes, {offer.label.lower()}", id=id, className="ask main")],
                className="sure",
            ),
        ],
        className="confirm",
    )
