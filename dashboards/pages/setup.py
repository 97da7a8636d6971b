"""What changed in a run, what looks odd and is normal, and what it was made with: configuration, command, versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html

from dashboards.components import notices
from dashboards.data.run_registry import Runs
from dashboards.data.setup import Setup, different, settings, setup_of
from stabilizer.figures import Theme

PATH = "/setup"
NAME = "Setup"
OF_A_RUN = True
MOST_ROWS = 400
"""Settings that one table shows; the search narrows them."""


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The page as it is now."""
    run = query.get("run", "")
    followed = runs.get(run)
    if followed is None:
        return notices.missing(runs, run)
    try:
        setup = setup_of(followed)
    except Exception as error:  # whatever a directory holds, the page stays up and reports it
        return html.Div(notices.broken(run, str(error) or type(error).__name__), className="page")
    return html.Div(
        [
            html.H1("Setup"),
            html.Div(
                [
                    html.Section(_story(setup), className="card pad"),
                    html.Section(_made_with(setup), className="card pad"),
                ],
                className="setup-top",
            ),
            *_log(setup),
            html.Section(_config(runs, run, setup), className="card pad"),
        ],
        className="page setup",
    )


def register(app: Dash, runs: Runs) -> None:
    """The table follows the search and the run to compare with."""

    @app.callback(
        output={"table": Output("setup-table", "children")},
        inputs={"words": Input("setup-search", "value"), "other": Input("setup-other", "value")},
        state={"run": State("setup-run", "data")},
        prevent_initial_call=True,
    )
    def narrow(words: Any, other: Any, run: Any) -> dict[str, Any]:
        here = _settings_of(runs, run)
        if isinstance(other, str) and other:
            return {"table": _differences(here, _settings_of(runs, other), words)}
        return {"table": _table(here, words)}


def _settings_of(runs: Runs, run: Any) -> dict[str, str]:
    followed = runs.get(run) if isinstance(run, str) else None
    if followed is None:
        return {}
    try:
        with followed.lock:
            return settings(followed.refresh().history.about)
    except Exception:  # the page itself says why it can't be read
        return {}


def _story(setup: Setup) -> list[Any]:
    """The largest changes and the patterns that are normal."""
    said = [html.H2("What changed"), _listed([change.words for change in setup.changes], "nothing beyond the noise")]
    if setup.normal:
        said += [html.H2("Looks odd, is normal"), _listed([item.why for item in setup.normal], "")]
    return said


def _listed(lines: list[str], nothing: str) -> Any:
    return html.Ul([html.Li(line) for line in lines]) if lines else html.P(nothing, className="quiet")


def _made_with(setup: Setup) -> list[Any]:
    rows = [html.Tr([html.Th(key, scope="row"), html.Td(value)]) for key, value in setup.facts]
    parts: list[Any] = [html.H2("Made with"), html.Table(html.Tbody(rows), className="setup-facts")]
    for command in filter(None, (setup.command, setup.report)):
        copy = dcc.Clipboard(content=command, title="copy the command", className="setup-copy")
        parts.append(html.Div([html.Code(command, className="command"), copy], className="setup-command"))
    return parts


def _log(setup: Setup) -> list[Any]:
    lines = html.Pre(setup.log, className="card pad log", tabIndex="0")
    return [html.H2("End of the log"), lines] if setup.log else []


def _config(runs: Runs, run: str, setup: Setup) -> list[Any]:
    others = sorted(other for other in runs.scan() if other != run)
    return [
        html.H2(f"Configuration ({len(setup.config):,} settings)"),
        html.Div(
            [
                dmc.TextInput(id="setup-search", label="search", size="sm", debounce=200),
                dmc.Select(
                    id="setup-other",
                    data=others,
                    label="differences to",
                    placeholder="another run",
                    searchable=True,
                    clearable=True,
                    size="sm",
                    className="setup-pick",
                ),  # fmt: skip
            ],
            className="setup-tools",
        ),
        dcc.Store(id="setup-run", data=run),
        html.Div(_table(setup.config, ""), id="setup-table", className="scroll"),
    ]


def _matches(words: Any, *texts: str) -> bool:
    """Whether every word occurs in one of the texts."""
    sought = str(words or "").lower().split()[:20]
    return all(any(word in text.lower() for text in texts) for word in sought)


def _table(config: Mapping[str, str], words: Any) -> Any:
    rows = [(key, value) for key, value in config.items() if _matches(words, key, value)]
    if not rows:
        return html.P("no setting matches" if config else "the run holds no configuration", className="quiet")
    body = [html.Tr([html.Th(key, scope="row"), html.Td(value)]) for key, value in rows[:MOST_ROWS]]
    more = f"{len(rows) - MOST_ROWS:,} more; search to see them" if len(rows) > MOST_ROWS else ""
    return [html.Table(html.Tbody(body), className="setup-config"), html.P(more, className="quiet") if more else None]


def _differences(here: Mapping[str, str], there: Mapping[str, str], words: Any) -> Any:
    rows = [row for row in different(here, there) if _matches(words, *row)]
    if not rows:
        return html.P("no difference", className="quiet")
    head = html.Thead(
        html.Tr([html.Th("setting", scope="col"), html.Th("here", scope="col"), html.Th("there", scope="col")])
    )
    body = [html.Tr([html.Th(key, scope="row"), html.Td(one), html.Td(other)]) for key, one, other in rows[:MOST_ROWS]]
    return html.Table([head, html.Tbody(body)], className="setup-config")
