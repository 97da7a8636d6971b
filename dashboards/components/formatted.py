"""Markdown and LaTeX of a completion as components: text is only ever a component's child."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from dashboards.data.markup import Node, formatted
from dashboards.data.model_text import spelt_out

_TAGS: dict[str, Any] = {
    "paragraph": html.P,
    "heading": html.Strong,
    "item": html.Div,
    "block": html.Pre,
    "code": html.Code,
    "bold": html.Strong,
    "italic": html.Em,
    "display": html.Div,
    "above": html.Sup,
    "below": html.Sub,
}
"""What a kind of node is drawn as; the others are a span."""


def drawn(text: str) -> list[Any]:
    """A text with its Markdown and LaTeX drawn."""
    return _parts(formatted(text))


def _parts(parts: Sequence[Node | str]) -> list[Any]:
    return [spelt_out(part) if isinstance(part, str) else _node(part) for part in parts]


def _node(node: Node) -> Any:
    inside = _parts(node.parts)
    if node.kind == "root":
        inside = ["√", html.Span(inside, className="tex-under")]
    return _TAGS.get(node.kind, html.Span)(inside, className=f"tex tex-{node.kind}")
