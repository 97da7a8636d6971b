"""The completions of a run: every logged step, by prompt and group, searched, sorted and compared with another step.

The data comes from `dashboards.data.completions`. The address holds all settings: controls change it in place, so that
a reload or a link shows the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import MATCH, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards.components import notices
from dashboards.components.browser import in_browser
from dashboards.components.elements import GRAPH_CONFIG, attributes, empty, fact, pill, saved
from dashboards.components.formatted import drawn
from dashboards.components.links import address
from dashboards.data.completions import (
    JUDGED,
    SHOWN,
    SORTS,
    CompletionItem,
    CompletionsQuery,
    PromptGroup,
    StepView,
    nearest,
    view_of_step,
    whole_prompt,
    whole_text,
)
from dashboards.data.completions_store import CompletionsStore, LogCompletions
from dashboards.data.distributions import QUANTITIES
from dashboards.data.followed_run import FollowedRun
from dashboards.data.logs import LogReader
from dashboards.data.model_text import Excerpt, Piece, one_line, pieces
from dashboards.data.run_registry import Runs
from stabilizer.core.text import rounded
from stabilizer.figures import Theme
from stabilizer.figures.completions import group_rewards_figure
from stabilizer.figures.spread import spread_figure

PATH = "/completions"
NAME = "Completions"
OF_A_RUN = True
NEWS_MS = 1500
WAIT_MS = 400
"""After the last key, before a search begins."""
OUTCOMES = {
    "right": ("✓ all correct", "verdict-healthy"),
    "wrong": ("■ all wrong", "verdict-critical"),
    "same": ("– same reward", ""),
}
CONTROLS = {
    **dict.fromkeys(("q", "low", "high", "only", "by", "sort", "vs", "take", "page", "over"), "value"),
    **dict.fromkeys(("regex", "cut", "tokens", "whole", "format"), "checked"),
}
"""The controls of the page, named as in `CompletionsQuery`, and the property that holds what was chosen."""
PICTURES = {"": "this step", **{name: f"{name} by step" for name in QUANTITIES}}
_STORE = CompletionsStore()
"""Of all apps of the process: what is read depends on files alone."""


def layout(runs: Runs, query: Mapping[str, str], theme: Theme) -> Any:
    """The page of a run at a step, or what to do when there is nothing to read."""
    run = query.get("run", "")
    followed = runs.get(run)
    if followed is None:
        return notices.missing(runs, run)
    wanted, step = CompletionsQuery.of(query), _whole(query.get("step"))
    found = view_of_step(_store(followed), followed.path, step, wanted)
    if found is None:
        return html.Div(_nothing_logged(), className="page")
    return html.Div(
        [
            dcc.Store(id="completions-steps"),
            dcc.Store(id="completions-at", data=_at({"run": run, "theme": theme}, step, found, wanted)),
            dcc.Store(id="completions-query", data=_query(run, step, wanted)),
            dcc.Interval(id="completions-news", interval=NEWS_MS),
            _head(found, wanted, step, theme),
            html.Div(
                [
                    html.Div(_list(found, wanted), id="completions-list", className="samples"),
                    html.Div(
                        dmc.Pagination(
                            id="completions-page",
                            total=found.pages,
                            value=found.page,
                            size="sm",
                            siblings=1,
                            hideWithOnePage=True,
                            **attributes(aria_label="pages of completions"),
                        ),
                        className="samples-pages",
                    ),
                ]
            ),
        ],
        className="page",
    )


def register(app: Dash, runs: Runs) -> None:
    """Register the callbacks of this page."""

    @app.callback(
        output={
            "list": Output("completions-list", "children"),
            "facts": Output("completions-facts", "children"),
            "picture": Output("completions-picture", "figure"),
            "count": Output("completions-count", "children"),
            "where": Output("completions-where", "children"),
            "position": Output("completions-slider", "value"),
            "last": Output("completions-slider", "max"),
            "pages": Output("completions-page", "total"),
            "page": Output("completions-page", "value"),
            "takes": Output("completions-take", "data"),
            "single_take": Output("completions-takes", "hidden"),
            "at": Output("completions-at", "data"),
            "query": Output("completions-query", "data"),
        },
        inputs={
            "moves": {
                "steps": Input("completions-steps", "data"),
                "prev": Input("completions-prev", "n_clicks"),
                "next": Input("completions-next", "n_clicks"),
                "newest": Input("completions-newest", "n_clicks"),
                "go": Input("completions-go", "value"),
                "slider": Input("completions-slider", "value"),
            },
            "controls": {name: Input(f"completions-{name}", property) for name, property in CONTROLS.items()},
        },
        state={"at": State("completions-at", "data")},
        prevent_initial_call=True,
    )
    def show(moves: dict[str, Any], controls: dict[str, Any], at: Any) -> dict[str, Any]:
        followed = _followed(runs, at)
        why = str(ctx.triggered_id or "").removeprefix("completions-")
        wanted = CompletionsQuery.of(controls)
        if why not in ("page", "steps"):
            wanted = CompletionsQuery.of({**wanted.__dict__, "page": 1})
        steps = _store(followed).steps(followed.path)
        if not steps:
            raise PreventUpdate
        step = _moved(why, steps, at, go=moves["go"], place=moves["slider"])
        found = view_of_step(_store(followed), followed.path, step, wanted)
        if found is None:
            raise PreventUpdate
        theme: Theme = "dark" if at.get("theme") == "dark" else "light"
        return {
            "list": _list(found, wanted),
            "facts": _facts(found),
            "picture": _figure(found, wanted, theme),
            "count": _count(found),
            "where": _where(found, step),
            "position": found.position,
            "last": len(steps) - 1,
            "pages": found.pages,
            "page": found.page,
            "takes": _takes(found),
            "single_take": found.takes == 1,
            "at": _at({**at, "theme": theme}, step, found, wanted),
            "query": _query(str(at["run"]), step, wanted),
        }

    # Polls have a callback of their own: where two requests of one overlap, the browser drops what the first answers,
    # and with it what somebody searched for.
    @app.callback(
        output={
            "steps": Output("completions-steps", "data"),
            "last": Output("completions-slider", "max", allow_duplicate=True),
        },
        inputs={"polls": Input("completions-news", "n_intervals")},
        state={"at": State("completions-at", "data"), "last": State("completions-slider", "max")},
        prevent_initial_call=True,
    )
    def poll(polls: Any, at: Any, last: Any) -> dict[str, Any]:
        followed = _followed(runs, at)
        steps = _store(followed).steps(followed.path)
        if not steps or last == len(steps) - 1:
            raise PreventUpdate
        follows = at.get("step") is None and steps[-1] != at.get("shown")
        return {"steps": len(steps) if follows else no_update, "last": len(steps) - 1}

    in_browser(
        app,
        "stabilizer_completions",
        "address",
        Output("completions-query", "id"),
        Input("completions-query", "data"),
    )

    @app.callback(
        output={
            "text": Output({"kind": "sample", "row": MATCH, "part": MATCH}, "children"),
            "button": Output({"kind": "sample-more", "row": MATCH, "part": MATCH}, "children"),
        },
        inputs={"clicks": Input({"kind": "sample-more", "row": MATCH, "part": MATCH}, "n_clicks")},
        state={"at": State("completions-at", "data")},
        prevent_initial_call=True,
    )
    def unfold(clicks: Any, at: Any) -> dict[str, Any]:
        text = _asked(runs, ctx.triggered_id.get("row"), ctx.triggered_id.get("part"), at)
        if text is None or not clicks:
            raise PreventUpdate
        formats = bool(at.get("format")) and ctx.triggered_id.get("part") == "text"
        part = text if clicks % 2 else text[:SHOWN]
        return {
            "text": drawn(part) if formats else _pieces(pieces(part)),
            "button": "show less" if clicks % 2 else f"show all {len(text):,} characters",
        }

    @app.callback(
        output=Output({"kind": "sample-copy", "row": MATCH}, "content"),
        inputs={"clicks": Input({"kind": "sample-copy", "row": MATCH}, "n_clicks")},
        state={"at": State("completions-at", "data")},
        prevent_initial_call=True,
    )
    def copy(clicks: Any, at: Any) -> Any:
        text = _asked(runs, ctx.triggered_id.get("row"), "text", at)
        if text is None or not clicks:
            raise PreventUpdate
        return text

    @app.callback(
        output=Output({"kind": "sample-elsewhere", "row": MATCH}, "children"),
        inputs={"clicks": Input({"kind": "sample-find", "row": MATCH}, "n_clicks")},
        state={"at": State("completions-at", "data")},
        prevent_initial_call=True,
    )
    def elsewhere(clicks: Any, at: Any) -> Any:
        prompt = _asked(runs, ctx.triggered_id.get("row"), "prompt", at)
        if prompt is None or not clicks:
            raise PreventUpdate
        run, shown = str(at["run"]), int(at["shown"])
        followed = _followed(runs, at)
        others = _store(followed).elsewhere(followed.path, shown, prompt)
        if not others:
            return html.Span("no other step nearby logged this prompt", className="quiet small")
        links = [
            dcc.Link(f"step {other:,}", href=address(PATH, run=run, step=str(shown), vs=str(other), q=prompt[:200]))
            for other in sorted(others)
        ]
        return html.Span(["compare with ", *[part for link in links for part in (link, " ")]], className="small")


# --- what was asked ---------------------------------------------------------------------------------------------------


def _followed(runs: Runs, at: Any) -> FollowedRun:
    followed = runs.get(str(at["run"])) if isinstance(at, dict) and at.get("run") else None
    if followed is None:
        raise PreventUpdate
    return followed


def _moved(why: str, steps: Sequence[int], at: Mapping[str, Any], *, go: Any, place: Any) -> int | None:
    """The step to show next; None follows the newest."""
    now = steps.index(nearest(steps, at.get("shown")))
    if why == "prev":
        return steps[max(0, now - 1)]
    if why == "next":
        return steps[min(len(steps) - 1, now + 1)]
    if why == "newest":
        return None
    if why == "go" and _whole(go) is not None:
        return nearest(steps, _whole(go))
    if why == "slider" and isinstance(place, int) and 0 <= place < len(steps):
        return steps[place]
    return at.get("step")


def _store(followed: FollowedRun) -> CompletionsStore:
    """Where the completions are: in the run's directory, or in the log of another trainer."""
    reader = followed.refresh() if followed.log else None
    return LogCompletions(reader.texts) if isinstance(reader, LogReader) else _STORE


def _query(run: str, step: int | None, wanted: CompletionsQuery) -> str:
    return urlencode({"run": run, **({} if step is None else {"step": str(step)}), **wanted.query()})


def _at(known: Mapping[str, Any], step: int | None, found: StepView, wanted: CompletionsQuery) -> dict[str, Any]:
    """What the callbacks of single completions need to know of the page."""
    return {**known, "step": step, "shown": found.step, "format": wanted.format}


def _asked(runs: Runs, index: Any, part: Any, at: Any) -> str | None:
    followed = runs.get(str(at.get("run"))) if isinstance(at, dict) else None
    if followed is None or not isinstance(index, int) or not isinstance(at.get("shown"), int):
        return None
    ask = whole_prompt if part == "prompt" else whole_text
    return ask(_store(followed), followed.path, at["shown"], index)


def _whole(value: Any) -> int | None:
    try:
        found = int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) < 2**53 else None  # no step, and no number a browser can hold


# --- what is seen -----------------------------------------------------------------------------------------------------


def _nothing_logged() -> html.Div:
    words = (
        "stabilizer logs a few groups every 10 steps (samples.every); this run logged none. Of other trainers, veRL "
        "rollout dumps and TRL log_completions have them. A log that was just opened takes a moment to load."
    )
    return html.Div(
        empty("No completions in this run", words, "stabilizer train --set samples.every=1", whole=True),
        className="card head",
    )


def _head(found: StepView, wanted: CompletionsQuery, step: int | None, theme: Theme) -> html.Section:
    return html.Section(
        [
            html.Div(
                [
                    html.Div(
                        [html.H1("Completions"), html.Div(_where(found, step), id="completions-where")],
                        className="title",
                    ),
                    html.Div(
                        [
                            _step_button("prev", "◀", "previous step (←)"),
                            dmc.Slider(
                                id="completions-slider",
                                min=0,
                                max=len(found.steps) - 1,
                                value=found.position,
                                label=None,
                                size="sm",
                                className="step-slider",
                                disabled=len(found.steps) == 1,
                                thumbLabel="logged step",
                            ),
                            _step_button("next", "▶", "next step (→)"),
                            _number("go", None, "go to step", "go to step", 84, debounce=True, className="step-go"),
                            _step_button("newest", "newest", "follow the newest step"),
                        ],
                        className="step-walk",
                    ),
                ],
                className="headline",
            ),
            html.Div(
                [
                    html.Div(_facts(found), id="completions-facts", className="facts sample-facts"),
                    html.Div(
                        [
                            dmc.SegmentedControl(
                                id="completions-over",
                                value=wanted.over,
                                size="xs",
                                data=[
                                    {"value": value, "label": words}
                                    for value, words in PICTURES.items()
                                    if value != "tokens" or found.has_tokens or wanted.over == value
                                ],
                                **attributes(aria_label="what the picture shows"),
                            ),
                            dcc.Graph(
                                id="completions-picture",
                                figure=_figure(found, wanted, theme),
                                config=GRAPH_CONFIG,
                                style={"height": "170px"},
                                responsive=True,
                            ),
                            html.Div(saved("completions"), className="corner"),
                        ],
                        className="sample-picture savable",
                    ),
                ],
                className="sample-overview",
            ),
            _controls(found, wanted),
            html.Div(_count(found), id="completions-count", className="quiet small", **attributes(aria_live="polite")),
        ],
        className="card head",
    )


def _controls(found: StepView, wanted: CompletionsQuery) -> html.Div:
    by = [{"value": "", "label": "total reward"}, *[{"value": name, "label": name[:80]} for name in found.components]]
    takes = _takes(found)
    check = {"size": "xs", "radius": "sm"}
    return html.Div(
        [
            dmc.TextInput(
                id="completions-q",
                value=wanted.q,
                placeholder="search (/)",
                debounce=WAIT_MS,
                size="xs",
                className="sample-search",
                **attributes(aria_label="search in prompts and completions"),
            ),
            dmc.Checkbox(id="completions-regex", label="regex", checked=wanted.regex, **check),
            dmc.SegmentedControl(
                id="completions-only",
                value=wanted.only,
                size="xs",
                data=[{"value": value, "label": word} for value, word in JUDGED.items()],
            ),
            dmc.Checkbox(id="completions-cut", label="cut off", checked=wanted.cut, **check),
            html.Span(
                [
                    _number("low", wanted.low, "reward ≥", "lowest reward", 90, debounce=WAIT_MS),
                    html.Span("–", className="quiet"),
                    _number("high", wanted.high, "≤", "highest reward", 60, debounce=WAIT_MS),
                ],
                className="range",
            ),
            _select("by", wanted.by, by, "reward component", 120),
            _select("sort", wanted.sort, [{"value": v, "label": word} for v, word in SORTS.items()], "order", 120),
            _number("vs", wanted.vs, "diff with step", "step to compare with", 110, debounce=True),
            dmc.Checkbox(
                id="completions-tokens",
                label="token probabilities",
                checked=wanted.tokens,
                disabled=not found.has_tokens,
                **check,
            ),
            dmc.Checkbox(id="completions-whole", label="full text", checked=wanted.whole, **check),
            dmc.Checkbox(id="completions-format", label="formatted", checked=wanted.format, **check),
            html.Div(
                _select("take", "" if wanted.take is None else str(wanted.take), takes, "pass over this step", 130),
                id="completions-takes",
                hidden=found.takes == 1,
            ),
        ],
        className="sample-tools",
    )


def _step_button(name: str, sign: str, title: str) -> html.Button:
    label = attributes(aria_label=title.partition(" (")[0])
    return html.Button(sign, id=f"completions-{name}", className="step-button", title=title, **label)


def _number(name: str, value: float | None, hint: str, label: str, width: int, **options: Any) -> dmc.NumberInput:
    return dmc.NumberInput(
        id=f"completions-{name}",
        value="" if value is None else value,
        placeholder=hint,
        hideControls=True,
        size="xs",
        w=width,
        **options,
        **attributes(aria_label=label),
    )


def _select(name: str, value: str, data: Sequence[Any], label: str, width: int) -> dmc.Select:
    label_of = attributes(aria_label=label)
    return dmc.Select(
        id=f"completions-{name}", value=value, data=data, size="xs", w=width, allowDeselect=False, **label_of
    )


def _takes(found: StepView) -> list[dict[str, str]]:
    times = [{"value": str(n), "label": f"pass {n} of {found.takes}"} for n in range(1, found.takes)]
    return [{"value": "", "label": "newest pass"}, *times]


def _where(found: StepView, step: int | None) -> list[Any]:
    place = f"{found.position + 1:,} of {len(found.steps):,} logged steps"
    newest = pill("following the newest", "verdict-info") if step is None else None
    return [
        html.Div([html.Strong(f"step {found.step:,}"), html.Span(place, className="quiet"), newest], className="pills")
    ]


def _facts(found: StepView) -> list[Any]:
    return [fact(label, value) for label, value in found.summary]


def _figure(found: StepView, wanted: CompletionsQuery, theme: Theme) -> Any:
    if found.spread is not None:
        return spread_figure(found.spread, theme=theme)
    return group_rewards_figure(found.picture, unit=wanted.by or "reward", theme=theme)


def _count(found: StepView) -> list[Any]:
    some = (
        f"{found.found:,} of {found.total:,} completions"
        if found.found != found.total
        else f"{found.total:,} completions"
    )
    return [html.Div(f"{some} · {found.judged}"), *[html.P(f"△ {note}", className="note") for note in found.notes]]


def _list(found: StepView, wanted: CompletionsQuery) -> list[Any]:
    if found.problem:
        return [html.Div(found.problem, className="card sample-problem", role="alert")]
    if not found.groups:
        return [
            empty(
                "No completion matches",
                "Widen the search, the reward range or the filters above.",
            )
        ]
    legend = [_legend()] if wanted.tokens and found.has_tokens else []
    return [*legend, *[_group(group, wanted) for group in found.groups]]


def _legend() -> html.Div:
    shades = (("t0", "≥ 90 %"), ("t1", "≥ 50 %"), ("t2", "≥ 20 %"), ("t3", "≥ 5 %"), ("t4", "rarer"))
    return html.Div(
        [
            "Probability of a token when it was sampled: ",
            *[html.Span(words, className=f"token {shade}") for shade, words in shades],
        ],
        className="quiet small token-legend",
    )


def _group(group: PromptGroup, wanted: CompletionsQuery) -> html.Section:
    outcome = OUTCOMES.get(group.outcome)
    stats = f"{group.count:,} completions"
    if group.mean is not None:
        stats += f" · {wanted.by or 'reward'} {rounded(group.mean)}" + (
            "" if group.std is None else f" ± {rounded(group.std)} sd"
        )
    return html.Section(
        [
            html.Header(
                [
                    html.Div(
                        [
                            html.Strong(group.label),
                            html.Span(stats, className="quiet small"),
                            pill(*outcome) if outcome else None,
                            html.Span(group.vs_note, className="quiet small"),
                            html.Span(className="spring"),
                            html.Span(
                                html.Button(
                                    "find this prompt in other steps",
                                    id={"kind": "sample-find", "row": group.first},
                                    className="quiet-button",
                                ),
                                id={"kind": "sample-elsewhere", "row": group.first},
                            ),
                        ],
                        className="sample-group-head",
                    ),
                    *_text(group.prompt, group.first, "prompt"),
                    *_expected(group.expected),
                ]
            ),
            *[_item(item) for item in group.items],
        ],
        className="card sample-group",
    )


def _expected(expected: Excerpt) -> list[Any]:
    """The right answer under its prompt, where it was logged."""
    if not expected.pieces:
        return []
    more = [f" … {expected.after:,} more characters"] if expected.after else []
    text = html.Span([*_pieces(expected.pieces), *more], className="sample-expected-text", dir="auto")
    return [html.Div([html.Span("right answer ", className="quiet small"), text], className="sample-expected")]


def _item(item: CompletionItem) -> html.Article:
    mark = {True: ("✓", "correct"), False: ("✗", "wrong"), None: ("–", "not judged")}[item.right]
    parts = " · ".join(f"{one_line(name, 40)} {_short(value)}" for name, value in item.parts if len(item.parts) > 1)
    body: list[Any]
    if item.diff is not None:
        body = [html.Div(_pieces(item.diff), className="sample-text", dir="auto")]
    elif item.tokens:
        spans = [html.Span(text, className=f"token {shade}", title=title) for text, shade, title in item.tokens]
        body = [html.Div(spans, className="sample-text", dir="auto")]
    else:
        body = _text(item.text, item.index, "text", item.raw)
    return html.Article(
        [
            html.Div(
                [
                    html.Span(
                        mark[0],
                        className=f"sample-mark {mark[1].replace(' ', '-')}",
                        title=mark[1],
                        role="img",
                        **attributes(aria_label=mark[1]),
                    ),
                    html.Strong(_short(item.reward), title="reward"),
                    None if math.isnan(item.advantage) else html.Span(f"advantage {_short(item.advantage, sign=True)}"),
                    html.Span(item.length),
                    html.Span(className="spring"),
                    dcc.Clipboard(
                        id={"kind": "sample-copy", "row": item.index},
                        title="copy the completion",
                        className="sample-copy",
                    ),
                    pill("✂ cut off", "verdict-warn") if item.cut else None,
                    html.Span(parts) if parts else None,
                    html.Span(item.diff_note) if item.diff_note else None,
                ],
                className="sample-facts-line small",
            ),
            *body,
        ],
        className="sample",
    )


def _text(text: Excerpt, index: int, part: str, raw: str = "") -> list[Any]:
    """An excerpt and the button for the rest of it; `raw` is the same text where it is to be formatted."""
    if not text.pieces:
        return [html.Div("(empty)", className=f"sample-{part} quiet")]
    hidden = text.before + text.after
    shown: list[Any] = drawn(raw) if raw else _pieces(text.pieces)
    if text.before:
        shown.insert(0, html.Span(f"⋯ {text.before:,} characters ⋯ ", className="quiet"))
    if text.after:
        shown.append(html.Span(" ⋯", className="quiet"))
    box = html.Div(shown, id={"kind": "sample", "row": index, "part": part}, className=f"sample-{part}", dir="auto")
    if not hidden:
        return [box]
    total = hidden + sum(len(piece.text) for piece in text.pieces)
    more = html.Button(
        f"show all {total:,} characters",
        id={"kind": "sample-more", "row": index, "part": part},
        className="quiet-button",
    )
    return [box, more]


def _pieces(found: Sequence[Piece]) -> list[Any]:
    made = {"": html.Span, "odd": html.Span, "hit": html.Mark, "gone": html.Del, "new": html.Ins}
    return [
        piece.text
        if not piece.kind
        else made[piece.kind](piece.text, className=piece.kind, title=_TITLES.get(piece.kind))
        for piece in found
    ]


_TITLES = {"odd": "invisible characters, or characters that would change how the text is displayed"}


def _short(value: float, *, sign: bool = False) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "−Inf"
    value += 0.0  # -0.0 is 0
    return f"{value:+.3g}".replace("-", "−") if sign and value else f"{value:.4g}".replace("-", "−")
