"""Text of our own pages (docstrings) as components: headings, paragraphs, lists, and words in backticks as code.

A renderer this small can't be talked into markup: whatever the text holds, it ends up as a component's child.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from dashboards.components.links import address
from stabilizer.detectors.manual import Paragraph, all_detectors

_QUOTED = re.compile(r"`([^`\n]{1,120})`")


def inline(text: str) -> list[Any]:
    """A text with its backticked words as code; a detector's id links to its page."""
    parts: list[Any] = []
    for index, piece in enumerate(_QUOTED.split(text)):
        if index % 2:
            parts.append(detector_link(piece) if piece in all_detectors() else html.Code(piece))
        elif piece:
            parts.append(piece)
    return parts


def detector_link(id: str) -> Any:
    """The way to a detector's page; an id nobody knows stays a word."""
    if id not in all_detectors():
        return html.Code(id)
    return dcc.Link(html.Code(id), href=address("/detector", id=id), className="code-link")


def prose(paragraphs: Sequence[Paragraph]) -> list[Any]:
    """Paragraphs, with neighbouring points gathered into lists."""
    found: list[Any] = []
    points: list[Any] = []
    for paragraph in paragraphs:
        if paragraph.point:
            points.append(html.Li(inline(paragraph.text)))
            continue
        if points:
            found.append(html.Ul(points, className="points"))
            points = []
        found.append(html.P(inline(paragraph.text)))
    return [*found, html.Ul(points, className="points")] if points else found
