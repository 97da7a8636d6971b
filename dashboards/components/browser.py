"""Callbacks that run in the browser: functions of `assets/*.js`. They take their values by position."""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Dash


def in_browser(app: Dash, namespace: str, function: str, *parts: Any, **options: Any) -> None:
    """Have the browser call a function of a namespace; `parts` are its outputs, inputs and states."""
    app.clientside_callback(ClientsideFunction(namespace, function), *parts, **options)  # type: ignore[no-untyped-call]
