"""Runs, or groups of seeds, beside one another: curves, settings, what went wrong when, and what may be concluded.

The address says which runs and how; controls change the address. Answers come from `dashboards.data.comparison`, which
takes its time elsewhere: the page is there at once and fills as they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any
from urllib.parse import parse_qsl, urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards.components import notices
from dashboards.components.app_shell import options
from dashboards.components.elements import GRAPH_CONFIG, attributes, empty, explained, pill, saved
from dashboards.components.links import address
from dashboards.data.comparison import (
    MAX_CHARTS,
    MAX_RUNS,
    Answer,
    Chart,
    Comparisons,
    Judgement,
    Progress,
    Question,
    question_of,
    stamp,
)
from dashboards.data.run_list import compared
from dashboards.data.run_registry import Runs
from dashboards.data.worker import Worker
from stabilizer.compare.words import number
from stabilizer.figures import Theme
from stabilizer.figures.run_groups import ROW, line_style, many_figure, timelines_figure
from stabilizer.runs.listing import RunLine

PATH = "/compare"
NAME = "Compare"
OF_A_RUN = False
WAITING_MS, RESTING_MS = 400, 5000
"""Poll interval while an answer is pending, and afterwards, because a live run changes."""
MOST_OFFERED = 2_000
"""Runs that the choice holds, about 100 bytes each."""
AXES = {"step": "step", "tokens": "tokens", "share": "% of the run"}
X_LABELS = {"step": "steps", "tokens": "tokens", "share": "% of run"}
TONES = {
    "identical": "verdict-healthy",
    "same": "verdict-healthy",
    "different": "verdict-warn",
    "rescaled": "verdict-warn",
    "not-comparable": "verdict-critical",
    "undetermined": "verdict-info",
}
COMPARISONS = Comparisons(Worker[Question, Answer]())
"""Of all apps of the process: a question names its runs by path."""


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The choice of runs, and the answers that are ready."""
    lines = runs.lines()
    if not lines:
        return notices.missing(runs, "")
    known = {line.id: line.path for line in lines}
    asked, lost = question_of(query, known)
    data = options(lines, most=MOST_OFFERED)
    if not asked.runs:
        return html.Div(
            [_controls(data, asked, None), *_lost(lost), _nothing_chosen(lines)], className="page compare-page"
        )
    first, second = _asked_now(runs, asked)
    seen = {"query": dict(query), "theme": theme, "seen": [first.revision, second.revision]}
    return html.Div(
        [
            dcc.Store(id="compare-seen", data=seen),
            dcc.Interval(id="compare-tick", interval=_pause(first, second)),
            html.Div(_controls(data, asked, first.answer), id="compare-controls"),
            *_lost(lost),
            html.Div(
                [
                    html.Div(_key(first, theme), id="compare-key", className="compare-part"),
                    html.Div(_verdicts(second), id="compare-verdicts", className="compare-part compare-verdicts"),
                ],
                className="compare-part compare-side",
            ),
            html.Div(_body(first, theme), id="compare-body", className="compare-part compare-body"),
        ],
        className="page compare-page",
    )


def register(app: Dash, runs: Runs) -> None:
    """Register the callbacks of this page."""

    @app.callback(
        output={
            "body": Output("compare-body", "children"),
            "key": Output("compare-key", "children"),
            "verdicts": Output("compare-verdicts", "children"),
            "controls": Output("compare-controls", "children"),
            "seen": Output("compare-seen", "data"),
            "interval": Output("compare-tick", "interval"),
        },
        inputs={"polls": Input("compare-tick", "n_intervals")},
        state={"seen": State("compare-seen", "data"), "interval": State("compare-tick", "interval")},
        prevent_initial_call=True,
    )
    def news(polls: Any, seen: Any, interval: Any) -> dict[str, Any]:
        if not isinstance(seen, dict) or not isinstance(seen.get("query"), dict):
            raise PreventUpdate
        query = {str(key): str(value) for key, value in seen["query"].items()}
        lines = runs.lines()
        asked, _lost_ones = question_of(query, {line.id: line.path for line in lines})
        if not asked.runs:
            raise PreventUpdate
        first, second = _asked_now(runs, asked)
        theme: Theme = "dark" if seen.get("theme") == "dark" else "light"
        told = seen["seen"] if isinstance(seen.get("seen"), list) and len(seen["seen"]) == 2 else [0, 0]
        fresh = [state.revision != known for state, known in zip((first, second), told, strict=True)]
        wait = _pause(first, second)
        if not any(fresh) and wait == interval:
            raise PreventUpdate
        begun = fresh[0] and told[0] == 0
        return {
            "body": _body(first, theme) if fresh[0] else no_update,
            "key": _key(first, theme) if fresh[0] else no_update,
            "verdicts": _verdicts(second) if fresh[1] else no_update,
            "controls": _controls(options(lines, most=MOST_OFFERED), asked, first.answer) if begun else no_update,
            "seen": {**seen, "seen": [first.revision, second.revision]},
            "interval": wait,
        }

    @app.callback(
        output=Output("url", "search", allow_duplicate=True),
        inputs={
            "clicks": Input("compare-go", "n_clicks"),
            "by": Input("compare-by", "value"),
            "ref": Input("compare-ref", "value"),
            "x": Input("compare-x", "value"),
        },
        state={
            "chosen": State("compare-runs", "value"),
            "metrics": State("compare-metrics", "value"),
            "search": State("url", "search"),
        },
        prevent_initial_call=True,
    )
    def choose(clicks: Any, by: Any, ref: Any, x: Any, chosen: Any, metrics: Any, search: Any) -> str:
        if not ctx.triggered_id or not isinstance(chosen, list):
            raise PreventUpdate
        query = {"runs": compared(map(str, chosen)), "ref": ref, "group": by, "x": "" if x == "step" else x}
        query["metrics"] = ",".join(map(str, metrics)) if isinstance(metrics, list) else ""
        chosen_now = {key: str(value) for key, value in query.items() if value}
        known = {line.id: line.path for line in runs.lines()}
        before = dict(parse_qsl(search.lstrip("?") if isinstance(search, str) else ""))
        if question_of(chosen_now, known)[0] == question_of(before, known)[0]:
            raise PreventUpdate  # the controls match the address already
        return "?" + urlencode(chosen_now)


def _asked_now(runs: Runs, asked: Question) -> tuple[Progress, Progress]:
    """The charts and what may be concluded, as far as known, with the files as they are now."""
    stamped = replace(asked, stamps=tuple(stamp(path) for _, path in asked.runs))
    notes = tuple((id, one.step, one.text) for id, path in asked.runs for one in runs.remarks(path).annotations)
    return COMPARISONS.ask(replace(stamped, notes=notes)), COMPARISONS.ask(
        replace(stamped, verdicts=True, x="step", metrics=())
    )


def _pause(first: Progress, second: Progress) -> int:
    """How long until the next poll: short while an answer, or the rest of one, is on its way."""
    there = [state.problem or (state.answer and not state.answer.left) for state in (first, second)]
    return RESTING_MS if all(there) else WAITING_MS


# --- what is seen -----------------------------------------------------------------------------------------------------


def _nothing_chosen(lines: Sequence[RunLine]) -> html.Div:
    """The first step, with the newest runs of one task as a suggestion."""
    words = "Choose two or more runs above. Runs that differ only in their seed form one group."
    alike = [line.id for line in lines if line.task == lines[0].task][:8]
    if len(alike) < 2:
        return html.Div(empty("Nothing to compare yet", words))
    named = f"the {len(alike)} newest runs of {lines[0].task}" if lines[0].task else f"the {len(alike)} newest runs"
    link = dcc.Link(f"Compare {named}", href=address(PATH, runs=",".join(alike)))
    return html.Div([html.Strong("Nothing to compare yet"), html.P(words), link], className="empty")


def _controls(data: Sequence[Any], asked: Question, answer: Answer | None) -> html.Section:
    chosen = [id for id, _ in asked.runs]
    return html.Section(
        [
            html.H1("Compare"),
            html.Div(
                dmc.MultiSelect(
                    id="compare-runs",
                    data=data,
                    value=chosen,
                    searchable=True,
                    clearable=True,
                    size="sm",
                    limit=300,
                    maxValues=MAX_RUNS,
                    placeholder="" if chosen else "runs to compare",
                    nothingFoundMessage="no such run",
                    **attributes(aria_label="runs to compare"),
                ),
                className="compare-runs",
            ),
            _how(chosen, asked, answer),
            html.Button("Compare", id="compare-go", className="compare-go"),
        ],
        className="card head compare-choice",
    )


def _how(chosen: Sequence[str], asked: Question, answer: Answer | None) -> html.Details:
    """Groups, reference, metrics and x axis, folded under what they are now."""
    by = _groupings(asked, answer)
    metrics = list(dict.fromkeys([*(answer.available if answer else ()), *asked.metrics]))
    small: dict[str, Any] = {"size": "xs", "searchable": True, "limit": 200}
    first = [{"value": "", "label": "first run"}, *[{"value": id, "label": id} for id in chosen]]
    how = [
        dmc.Select(id="compare-by", data=by, value=asked.by, allowDeselect=False, label="groups", **small),
        dmc.Select(id="compare-ref", data=first, value=asked.ref, allowDeselect=False, label="reference", **small),
        dmc.MultiSelect(
            id="compare-metrics",
            data=metrics,
            value=list(asked.metrics),
            clearable=True,
            maxValues=MAX_CHARTS,
            label="metrics",
            placeholder="" if asked.metrics else "default metrics",
            **small,
        ),
        html.Div(
            [
                html.Span("x axis", className="compare-label"),
                dmc.SegmentedControl(
                    id="compare-x",
                    value=asked.x,
                    size="xs",
                    data=[{"value": value, "label": label} for value, label in X_LABELS.items()],
                ),
            ]
        ),
    ]
    return html.Details(
        [
            html.Summary(
                f"{_chosen_words(asked, by)} ▾",
                className="workspace-button",
                title="groups, reference, metrics, x axis",
            ),
            html.Div(how, className="saves card"),
        ],
        className="workspace-views compare-how",
        hidden=not chosen,
    )


def _groupings(asked: Question, answer: Answer | None) -> list[dict[str, str]]:
    """What runs can be grouped by: settings that differ, and what the address asks for."""
    by = [{"value": "", "label": "seeds grouped"}, {"value": "run", "label": "no grouping"}]
    keys = list(answer.keys) if answer else []
    if asked.by not in ("", "run", *keys):
        keys.append(asked.by)
    by += [{"value": key, "label": f"by {key}"} for key in keys]
    return by


def _chosen_words(asked: Question, by: Sequence[Mapping[str, str]]) -> str:
    said = [
        next(one["label"] for one in by if one["value"] == asked.by),
        *([f"against {asked.ref}"] if asked.ref else []),
        *([f"{len(asked.metrics)} metrics"] if asked.metrics else []),
        X_LABELS[asked.x],
    ]
    return " · ".join(said)


def _lost(lost: Sequence[str]) -> list[Any]:
    if not lost:
        return []
    names = ", ".join(name[:80] for name in lost[:6])
    return [html.P(f"△ not found, left out: {names}", className="note")]


def _waiting(words: str) -> html.Div:
    return html.Div(_spinner(words), className="card")


def _spinner(words: str) -> html.Div:
    return html.Div([html.Span(className="compare-spinner"), words], className="compare-waiting", role="status")


def _body(state: Progress, theme: Theme) -> list[Any]:
    if state.answer is None:
        if state.problem:
            return [html.Div(empty("These runs can't be compared", state.problem[:800]), className="card head")]
        return [_waiting("Loading the runs …")]
    answer = state.answer
    charts: list[Any] = [_chart(chart, answer, theme) for chart in answer.charts]
    if not charts:
        charts = [empty("No charts", "These runs logged none of the chosen metrics. Choose others above.")]
    drawn = html.Div(charts, className="charts")
    return [drawn, _timelines(answer, theme), _endings(answer, theme), _settings(answer)]


def _key(state: Progress, theme: Theme) -> list[Any]:
    """What each colour is, and remarks."""
    answer = state.answer
    if answer is None:
        return []
    rows = []
    for place, label in enumerate(answer.labels):
        members = answer.members[place]
        links = [dcc.Link(name, href=address("/run", run=name)) for name in members]
        several = len(members) > 1 or members[0] != label
        words = html.Strong(label) if several else links[0]
        inner: list[Any] = [_swatch(place, theme), words]
        if place == answer.reference:
            inner.append(pill("reference", ""))
        if several:
            names: list[Any] = [part for link in links for part in (link, " ")]
            inner.append(html.Details([html.Summary(f"{len(members)} runs"), html.Div(names, className="small")]))
        rows.append(html.Div(inner, className="compare-group"))
    legend = "Bold: smoothed run, or median of a group. Shaded: middle half of a group (full range up to 3 runs)."
    told = [*rows, html.P(legend, className="quiet small"), *_remarks(answer)]
    return [html.Section(told, className="card compare-key")]


def _remarks(answer: Answer) -> list[Any]:
    """The notes of an answer; several are folded, so that the charts stay on the first screen."""
    notes = [html.P(f"△ {note}", className="note") for note in answer.notes]
    return [html.Details([html.Summary(f"△ {len(notes)} remarks"), *notes])] if len(notes) > 1 else notes


def _swatch(place: int, theme: Theme) -> html.Span:
    colour, dash = line_style(place, theme)
    style = {"borderTopColor": colour, "borderTopStyle": {"solid": "solid", "dash": "dashed"}.get(dash, "dotted")}
    return html.Span(className="compare-swatch", style=style)


def _chart(chart: Chart, answer: Answer, theme: Theme) -> html.Figure:
    place = {name: place for place, members in enumerate(answer.members) for name in members}
    notes = [(mark, place[row.name]) for row in answer.timelines for mark in row.notes if row.name in place]
    look: Any = {"x_title": AXES[answer.x], "y_title": chart.unit, "theme": theme, "notes": notes}
    figure = many_figure(chart.curves, chart.places, **look)
    figure.update_layout(uirevision=escape(f"{answer.x}|{'|'.join(answer.labels)}"))
    return html.Figure(
        [
            html.Figcaption(
                [
                    html.Span(chart.metric, className="chart-title", title=chart.meaning),
                    html.Span(className="names"),
                    explained(chart.metric, chart.meaning),
                    saved(chart.metric),
                ]
            ),
            dcc.Graph(
                figure=figure, config=GRAPH_CONFIG, className="graph", style={"height": "240px"}, responsive=True
            ),
        ],
        className="card chart",
    )


def _timelines(answer: Answer, theme: Theme) -> html.Section:
    rows = answer.timelines
    figure = timelines_figure(rows, x_title=AXES[answer.x], theme=theme)
    calm = not any(row.spans or row.marks for row in rows)
    words = "No incidents." if calm else "Thick bar: incident, by severity. ▼ applied fix. ★ note."
    return html.Section(
        [
            html.Div(
                [
                    html.H2(["Incidents over time ", html.Span(words, className="quiet small")]),
                    html.Span(className="names"),
                    saved("incidents"),
                ],
                className="caption",
            ),
            dcc.Graph(
                figure=figure, config=GRAPH_CONFIG, style={"height": f"{70 + ROW * len(rows)}px"}, responsive=True
            ),
        ],
        className="card compare-card savable",
    )


def _endings(answer: Answer, theme: Theme) -> html.Section:
    table = []
    for chart in answer.charts:
        for place, ending in enumerate(chart.endings):
            table.append(
                html.Tr(
                    [
                        html.Th(
                            chart.metric if place == 0 else html.Span(chart.metric, className="runs-hidden"),
                            scope="row",
                        ),
                        html.Td([_swatch(answer.labels.index(ending.label), theme), ending.label]),
                        html.Td(_spread(ending.final, ending.final_sd), className="figure"),
                        html.Td(
                            _spread(ending.peak, ending.peak_sd) + (" lowest" if ending.lowest else ""),
                            className="figure",
                        ),
                        html.Td(f"{ending.peak_step:,.0f}", className="figure"),
                        html.Td(f"{ending.members}", className="figure"),
                    ],
                    className="first" if place == 0 else None,
                )
            )
    heads = ("metric", "group", "final ± sd of runs", "peak ± sd of runs", "peak at step", "runs")
    words = "Final: mean of the last fifth. Peak: best smoothed value."
    return html.Section(
        [html.H2(["Final values ", html.Span(words, className="quiet small")]), _table(heads, table)],
        className="card compare-card",
    )


def _settings(answer: Answer) -> html.Section:
    title = html.H2(["Settings that differ ", html.Span(f"{len(answer.settings):,} in all", className="quiet small")])
    if not answer.settings:
        return html.Section(
            [title, html.P("No recorded setting differs.", className="quiet")], className="card compare-card"
        )
    body = [
        html.Tr(
            [html.Th(html.Code(row.key), scope="row")]
            + [
                html.Td("not recorded" if v is None else v, className="quiet" if v is None else None)
                for v in row.values
            ]
        )
        for row in answer.settings
    ]
    return html.Section([title, _table(("setting", *answer.labels), body)], className="card compare-card")


def _table(heads: Sequence[str], body: list[Any]) -> html.Div:
    top = html.Thead(html.Tr([html.Th(head, scope="col") for head in heads]))
    return html.Div(html.Table([top, html.Tbody(body)]), className="compare-table", tabIndex="0", role="group")


def _verdicts(state: Progress) -> list[Any]:
    if state.answer is None:
        return [] if state.problem else [_waiting("Judging the differences …")]
    answer = state.answer
    if not answer.judgements:
        return []
    name = answer.labels[answer.reference]
    title = html.H2(["Compared with ", html.Code(name)])
    told = [_judgement(item) for item in answer.judgements]
    notes: list[Any] = [html.P(f"△ {note}", className="note") for note in answer.notes]
    if answer.left:
        notes.append(_spinner(f"{answer.left} more {'is' if answer.left == 1 else 'are'} being judged …"))
    return [html.Section([title, *told, *notes], className="card compare-card")]


def _judgement(item: Judgement) -> html.Details:
    if item.problem:
        return html.Details([html.Summary([html.Strong(item.label), " can't be compared"]), html.P(item.problem)])
    head = html.Summary(
        [html.Strong(item.label), pill(item.words, TONES.get(item.verdict, "")), html.Span(item.headline)],
        className="compare-verdict",
    )
    measures = [
        html.Tr([html.Th(row[0], scope="row", title=row[5] or None), *[html.Td(cell) for cell in row[1:5]]])
        for row in item.rows
    ]
    parts: list[Any] = [
        html.P(item.aligned, className="quiet small"),
        html.P([html.Strong(f"Next: {item.next[0]}. "), item.next[1]]),
        _table(("measure", "this", "reference", "difference, 99 %", ""), measures),
    ]
    for heading, told in (("What explains it", item.explained), ("Ruled out", item.excluded)):
        if told:
            lines = [
                html.Li([html.Strong(cause), html.Span(f" ({gap}; {sure}) ", className="quiet"), why])
                for gap, cause, sure, why in told
            ]
            parts += [html.H3(heading), html.Ul(lines)]
    if item.cautions:
        parts += [html.H3("Caveats"), html.Ul([html.Li(text) for text in item.cautions])]
    return html.Details([head, html.Div(parts, className="compare-judged")])


def _spread(value: float, sd: float | None) -> str:
    return number(value) if sd is None else f"{number(value)} ± {number(sd)}"
