"""The list of runs with state, verdict, progress and key metrics. Search, sort, select and compare.

The address holds the settings of the list and changes without reloading the page. A poll sends the rows that changed;
the whole list is sent when its rows or their order change.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards.components import notices
from dashboards.components.browser import in_browser
from dashboards.components.elements import STATE_ICONS, attributes, empty, pill, verdict_words
from dashboards.components.links import address
from dashboards.data.run_list import (
    PAGE,
    SHOWN_NUMBERS,
    SORTS,
    ListRow,
    ListSettings,
    Number,
    RunList,
    compared,
    run_list,
)
from dashboards.data.run_registry import Runs
from dashboards.data.run_search import HELP
from stabilizer.figures import Theme
from stabilizer.figures.sparkline import spark

PATH = "/"
NAME = "Runs"
OF_A_RUN = False
LIVE_MS = 1500
MAX_PICKED = 50
HEADS = {
    "name": "Run",
    "state": "State",
    "verdict": "Verdict",
    "progress": "Progress",
    **SHOWN_NUMBERS,
    "started": "Started",
    "task": "Task",
}
MEANS = {
    "reward": "reward/mean: last value and trend",
    "accuracy": "accuracy/val, else accuracy/train: last value and trend",
    "kl": "policy/kl_ref, else policy/kl_old: last value and trend",
    "grad_norm": "optim/grad_norm before clipping: last value and trend",
    "started": "start of the run; for a log of another trainer, time of its last line",
}


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The list as its address describes it; callbacks keep it current."""
    now, asked = runs.clock(), ListSettings.from_query(query)
    lines = runs.lines()
    found = run_list(lines, asked, now)
    return html.Div(
        [
            dcc.Interval(id="runs-tick", interval=LIVE_MS),
            dcc.Store(id="runs-view", data=asked.as_query()),
            dcc.Store(id="runs-seen", data=_seen(found, ())),
            dcc.Store(id="runs-picked", data=[]),
            dcc.Store(id="runs-click"),
            html.Div(
                [
                    html.H1("Runs"),
                    html.Div(_states(found), id="runs-standing", className="runs-standing"),
                    dcc.Link("Alerts", href="/alerts", title="send incidents to Slack, Discord, mail or a webhook"),
                ],
                className="runs-title",
            ),
            html.Div(
                [
                    dmc.TextInput(
                        id="runs-find",
                        value=asked.find,
                        debounce=250,
                        placeholder=HELP,
                        size="sm",
                        className="runs-find",
                        **attributes(aria_label="search runs"),
                    ),
                ],
                className="runs-tools",
            ),
            html.Div(found.problem, id="runs-problem", className="runs-problem", role="status"),
            html.Div(_picks(()), id="runs-picks", className="runs-picks"),
            html.Div(_none(runs, found), id="runs-none"),
            html.Div(
                html.Table(
                    [
                        html.Caption("Runs, one per row", className="runs-caption"),
                        html.Thead(_heads(asked), id="runs-heads"),
                        html.Tbody(_rows(found, (), theme), id="runs-rows"),
                    ],
                    className="runs-table",
                ),
                className="card runs-scroll",
                id="runs-scroll",
                hidden=not found.rows,
                tabIndex=0,
                role="region",
                **attributes(aria_label="table of runs"),
            ),
            html.Div(_more(found), id="runs-more", className="runs-more"),
        ],
        className="page runs",
    )


def register(app: Dash, runs: Runs) -> None:
    """Register the callbacks of this page."""
    in_browser(app, "stabilizer_runs", "keep", Output("runs-scroll", "title"), Input("runs-view", "data"))

    @app.callback(
        output={
            "cells": Output({"runs-row": ALL}, "children"),
            "rows": Output("runs-rows", "children"),
            "heads": Output("runs-heads", "children"),
            "states": Output("runs-standing", "children"),
            "problem": Output("runs-problem", "children"),
            "picks": Output("runs-picks", "children"),
            "none": Output("runs-none", "children"),
            "hidden": Output("runs-scroll", "hidden"),
            "more": Output("runs-more", "children"),
            "view": Output("runs-view", "data"),
            "seen": Output("runs-seen", "data"),
            "picked": Output("runs-picked", "data"),
        },
        inputs={
            "polls": Input("runs-tick", "n_intervals"),
            "find": Input("runs-find", "value"),
            "click": Input("runs-click", "data"),
        },
        state={
            "known": State("runs-view", "data"),
            "seen": State("runs-seen", "data"),
            "picked": State("runs-picked", "data"),
            "scheme": State("scheme", "data"),
        },
        running=[(Output("runs-tick", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    def follow(
        polls: Any,
        find: Any,
        click: Any,
        known: Any,
        seen: Any,
        picked: Any,
        scheme: Any,
    ) -> dict[str, Any]:
        before = ListSettings.from_query(_texts(known))
        asked = ListSettings.from_query(_texts({**before.as_query(), "q": find}))
        chosen = _chosen(picked)
        if ctx.triggered_id == "runs-click" and isinstance(click, dict):
            asked, chosen = _clicked(asked, chosen, str(click.get("what")), str(click.get("value")))
        found = run_list(runs.lines(), asked, runs.clock())
        now = _seen(found, chosen)
        same = isinstance(seen, dict) and asked == before
        if same and seen == now:
            raise PreventUpdate
        theme: Theme = "dark" if scheme == "dark" else "light"
        mounted = [output["id"]["runs-row"] for output in ctx.outputs_grouping["cells"]]
        patch = same and seen.get("keys") == now["keys"] and mounted == list(range(len(found.rows)))
        old = seen.get("rows") if patch and isinstance(seen.get("rows"), list) else []
        cells: list[Any] = [no_update] * len(mounted)
        for place, row in enumerate(found.rows if patch else ()):
            if _at(old, place) != now["rows"][place]:
                cells[place] = _cells(row, row.run in chosen, theme)
        return {
            "cells": cells,
            "rows": no_update if patch else _rows(found, chosen, theme),
            "heads": no_update if asked == before else _heads(asked),
            "states": _states(found),
            "problem": found.problem,
            "picks": _picks(chosen),
            "none": _none(runs, found),
            "hidden": not found.rows,
            "more": _more(found),
            "view": no_update if asked == before else asked.as_query(),
            "seen": now,
            "picked": list(chosen),
        }


def _chosen(picked: Any) -> tuple[str, ...]:
    """The runs that are picked for a comparison, as far as the browser's answer can be read."""
    return tuple(id for id in picked if isinstance(id, str))[:MAX_PICKED] if isinstance(picked, list) else ()


def _clicked(
    asked: ListSettings, chosen: tuple[str, ...], what: str, value: str
) -> tuple[ListSettings, tuple[str, ...]]:
    if what == "sort":
        return asked.sorted_by(value), chosen
    if what == "more":
        return replace(asked, show=asked.show + PAGE), chosen
    if what == "pick":
        left = tuple(id for id in chosen if id != value)
        return asked, left if value in chosen else (*chosen, value)[:MAX_PICKED]
    if what == "unpick":
        return asked, ()
    return asked, chosen


def _seen(found: RunList, chosen: Sequence[str]) -> dict[str, Any]:
    """Checksums of what the browser shows now, to find the rows that changed."""
    return {
        "keys": _sum([row.run for row in found.rows]),
        "rows": [_sum((row, row.run in chosen)) for row in found.rows],
        "around": _sum((found.states, found.urgent, found.total, found.more, found.problem, chosen)),
    }


def _sum(value: Any) -> int:
    return zlib.crc32(repr(value).encode("utf-8", "replace"))


def _at(known: list[Any], place: int) -> Any:
    return known[place] if place < len(known) else None


def _texts(told: Any) -> dict[str, str]:
    return {key: value for key, value in told.items() if isinstance(value, str)} if isinstance(told, dict) else {}


# --- parts ------------------------------------------------------------------------------------------------------------


def _heads(asked: ListSettings) -> html.Tr:
    choose = html.Th(html.Span("select", className="runs-hidden"), className="runs-pick")
    return html.Tr([choose, *[_head(column, asked) for column in SORTS]])


def _head(column: str, asked: ListSettings) -> html.Th:
    here = asked.sort == column
    way = ("descending" if asked.down else "ascending") if here else "none"
    arrow = (
        html.Span("▾" if asked.down else "▴", className="runs-arrow", **attributes(aria_hidden="true"))
        if here
        else None
    )
    button = html.Button(
        [HEADS[column], arrow],
        className="runs-sort",
        title=MEANS.get(column),
        **attributes(data_runs="sort", data_value=column),
    )
    kind = "runs-number" if column in SHOWN_NUMBERS else None
    return html.Th(button, scope="col", className=kind, **attributes(aria_sort=way))


def _rows(found: RunList, chosen: Sequence[str], theme: Theme) -> list[html.Tr]:
    return [
        html.Tr(_cells(row, row.run in chosen, theme), id={"runs-row": place}) for place, row in enumerate(found.rows)
    ]


def _cells(row: ListRow, picked: bool, theme: Theme) -> list[Any]:
    return [
        html.Td(_pick(row, picked), className="runs-pick"),
        html.Th(_name(row), scope="row", className="runs-name"),
        html.Td(
            [
                pill(f"{STATE_ICONS.get(row.state, '?')} {row.state}", f"state-{row.state}"),
                html.Span(row.state_note, className="quiet small") if row.state_note else None,
            ]
        ),
        html.Td(
            [
                pill(verdict_words(row.verdict), f"verdict-{row.verdict}"),
                html.Span(row.verdict_note, className="quiet small") if row.verdict_note else None,
            ]
            if row.verdict
            else None
        ),
        html.Td(_progress(row), className="runs-progress"),
        *[
            html.Td(_number(row.numbers.get(key), label, theme), className="runs-number")
            for key, label in SHOWN_NUMBERS.items()
        ],
        html.Td(row.started, className="runs-when"),
        html.Td(" · ".join(word for word in (row.task, row.trainer) if word), className="runs-task"),
    ]


def _pick(row: ListRow, picked: bool) -> html.Button:
    return html.Button(
        "✓" if picked else "",
        className="runs-box",
        role="checkbox",
        **attributes(
            aria_checked="true" if picked else "false",
            aria_label=f"select {row.name}",
            data_runs="pick",
            data_value=row.run,
        ),
    )


def _name(row: ListRow) -> list[Any]:
    told = html.Div(row.problem, className="runs-why") if row.problem else None
    tags = [html.Span(tag, className="pill tiny") for tag in row.tags]
    return [dcc.Link(row.name, href=address("/run", run=row.run), title=row.run), *tags, told]


def _progress(row: ListRow) -> list[Any]:
    if row.percent is None:
        return [html.Span(row.steps, className="small")]
    done = dmc.Progress(
        value=row.percent, size="sm", radius="xl", **attributes(aria_label=f"{row.percent:.0f} % of the steps")
    )
    return [done, html.Div([html.Span(row.steps), html.Span(row.left, className="quiet")], className="runs-steps")]


def _number(number: Number | None, label: str, theme: Theme) -> Any:
    if number is None:
        return None
    picture = spark(number.trend, theme)
    value = html.Span(number.text, className="runs-value" if number.finite else "runs-value broken", title=number.note)
    tag = html.Span(number.tag, className="quiet runs-tag") if number.tag else None
    drawn = html.Img(src=picture, alt=f"trend of {label}", className="runs-spark") if picture else None
    return html.Div([html.Span(label, className="runs-label"), drawn, html.Span([value, tag])], className="runs-cell")


def _states(found: RunList) -> list[Any]:
    counted = f"{found.matching:,} of {found.total:,}" if found.matching != found.total else f"{found.total:,}"
    marks = {state: STATE_ICONS.get(state, "?") for state in found.states}
    states = [_only("state", state, f"{marks[state]} {count:,} {state}") for state, count in found.states.items()]
    urgent = [_only("verdict", word, f"{verdict_words(word)}: {count:,}") for word, count in found.urgent.items()]
    return [html.Span(counted, className="quiet"), *urgent, *states]


def _only(key: str, value: str, words: str) -> dcc.Link:
    """Words that lead to the runs with this value alone."""
    asked = f'{key}="{value}"' if " " in value else f"{key}={value}"
    return dcc.Link(pill(words, f"{key}-{value}"), href=address(PATH, q=asked), title="show these runs")


def _picks(chosen: Sequence[str]) -> list[Any]:
    if not chosen:
        return []
    link = dcc.Link("Compare selected", href=address("/compare", runs=compared(chosen)), className="runs-go")
    overlay = dcc.Link("Open in the workspace", href=address("/workspace", runs=compared(chosen)))
    return [
        html.Span(f"{len(chosen)} selected", role="status"),
        link if len(chosen) > 1 else html.Span("select another run to compare", className="quiet"),
        overlay,
        html.Button("Clear", className="runs-plain", **attributes(data_runs="unpick", data_value="")),
    ]


def _more(found: RunList) -> list[Any]:
    if not found.more:
        return []
    words = f"show {min(PAGE, found.more)} more of {found.more:,}"
    return [html.Button(words, className="runs-plain", **attributes(data_runs="more", data_value=""))]


def _none(runs: Runs, found: RunList) -> list[Any]:
    if found.rows:
        return []
    if not found.total:
        return [notices.no_runs(runs.roots)]
    told = empty("No run matches", f"{found.total:,} runs in all. Search by {HELP}.")
    return [html.Div([told, html.P(html.A("show all runs", href="/"), className="runs-all")], className="card head")]
