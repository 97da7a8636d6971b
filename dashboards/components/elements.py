"""Small parts that pages share: words with their icons, pills, empty places.

Text of a run is only ever a component's child, which React renders as text; none becomes markup, a link or a style.
"""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from stabilizer.figures import CONFIG, ICONS, WORDS

GRAPH_CONFIG: Any = dict(CONFIG)
"""The configuration of every graph."""

STATE_ICONS = {
    "running": "●",
    "finished": "✓",
    "stalled": "◌",
    "failed": "■",
    "stopped": "■",
    "paused": "‖",
    "preempted": "‖",
    "created": "○",
    "unreadable": "?",
    "quiet": "–",
    "being read": "…",
}
VERDICT_WORDS = {
    "too-short": "too short to judge",
    "not-rl": "not an RL run",
    "waiting": "being checked",
    "unchecked": "not checked",
}
VERDICT_ICONS = {"healthy": "✓", "crashed": "■", "waiting": "…", "unchecked": "?"}


def attributes(**values: str) -> dict[str, Any]:
    """HTML attributes of a component whose names have dashes: `aria_label` for `aria-label`."""
    return {name.replace("_", "-"): value for name, value in values.items()}


def verdict_words(verdict: str) -> str:
    """A verdict with its icon."""
    if not verdict:
        return ""
    icon = ICONS.get(verdict) or VERDICT_ICONS.get(verdict, "–")
    return f"{icon} {WORDS.get(verdict) or VERDICT_WORDS.get(verdict, verdict)}"


def pill(text: str, kind: str, title: str | None = None) -> html.Span:
    """A small word in a coloured frame."""
    return html.Span(text, className=f"pill {kind}", title=title)


def icon(name: str) -> html.Span:
    """One of the small drawings of `style.css`. It says nothing by itself: the button around it has a label."""
    return html.Span(className=f"icon icon-{name}", **attributes(aria_hidden="true"))


def severity(word: str) -> html.Span:
    """How grave, by icon and word."""
    return html.Span(f"{ICONS.get(word, '●')} {WORDS.get(word, word)}", className=f"severity {word}")


def fact(label: str, value: str) -> html.Div:
    """One labelled value."""
    return html.Div([html.Span(label, className="quiet small"), html.Span(value)])


SAVED = (("png", "PNG"), ("svg", "SVG"), ("csv", "CSV"))


def saved(title: str, chart: str = "") -> html.Details:
    """The menu in a chart's caption that saves it.

    The CSV of a `chart` of a run's page comes complete from the server; other charts save the drawn points.
    """
    return html.Details(
        [
            html.Summary(icon("save"), className="help", title="save", **attributes(aria_label=f"save {title}")),
            html.Div(
                [
                    html.Button(words, **attributes(data_save=kind, data_chart=chart, data_title=title))
                    for kind, words in SAVED
                ],
                className="saves",
            ),
        ],
        className="save",
    )


def explained(title: str, meaning: str) -> dmc.Tooltip:
    """A question mark with the definition of a metric, for mouse, touch and keyboard."""
    return dmc.Tooltip(
        html.Button("?", className="help", **attributes(aria_label=f"what {title} means")),
        label=meaning,
        multiline=True,
        w=340,
        withArrow=True,
        position="bottom-end",
        events={"hover": True, "focus": True, "touch": True},
        className="meaning",
    )


def empty(title: str, text: str, command: str = "", *, whole: bool = False) -> html.Div:
    """A notice for an empty place, with the next step. With `whole` its title is the heading of the page."""
    return html.Div(
        [
            html.H1(title) if whole else html.Strong(title),
            html.P(text),
            html.Code(command, className="command") if command else None,
        ],
        className="empty",
    )
