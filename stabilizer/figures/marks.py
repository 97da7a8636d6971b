"""What happened, drawn over what was measured: incidents as shaded spans, fixes and declared events as vertical lines.

Every span and line also has a point at the upper edge of the chart whose hover text says what it is, so nothing rests
on colour alone. All text of a run is escaped here: plotly would take `<a>` and `<b>` in it for markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap
from typing import Any

from stabilizer.core.knobs import change_words
from stabilizer.core.records import SEVERITIES, Action, Event, Finding
from stabilizer.core.severity import ICONS, WORDS
from stabilizer.figures.parts import shade, upright
from stabilizer.figures.theme import Palette
from stabilizer.figures.words import concerns
from stabilizer.runs.story import Incident, incidents

DRAWN_ENTRIES = {"applied": "triangle-down", "verified": "circle", "reverted": "x"}
DRAWN_EVENTS = {
    "rollback": "triangle-left",
    "resume": "triangle-right",
    "intervention": "diamond",
    "schedule": "diamond-open",
    "data-stage": "square-open",
}
CHECKPOINT = "triangle-up"
ANNOTATION = "annotation"
"""Kind of the events that viewers write themselves; only the dashboard has them."""
MAX_LABEL = 40
"""Characters of a label above a chart."""
MAX_MARKS = 200
"""Newest lines of each sort that are drawn; a chart with more is no longer read but looked at."""
MAX_HOVER = 400
"""Characters of a summary in a chart's hover text; the incident's page has all of it."""
LETTER = 1 / 76
"""Of a chart's width, about what a letter of a label takes: those of a chart of 400 px must not lie on one another."""


@dataclass
class Marks:
    """Shapes, labels and points that show the events of a run."""

    shapes: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    rows: tuple[list[tuple[float, float]], ...] = field(default_factory=lambda: ([], []))
    """The parts of the two rows above the chart that labels take up."""
    points: dict[str, list[Any]] = field(
        default_factory=lambda: {"x": [], "y": [], "text": [], "symbol": [], "colour": [], "size": []}
    )

    def span(self, start: float, end: float, colour: str, strength: float) -> None:
        """A shade from top to bottom."""
        self.shapes.append(shade(start, end, colour, strength))

    def line(self, x: float, colour: str, *, dash: str = "solid", opacity: float = 1) -> None:
        """A vertical line through the whole chart."""
        self.shapes.append(upright(x, colour, dash) | {"opacity": opacity})

    def label(self, x: float, text: str, colour: str, to_the_left: bool, wide: float = 0.0) -> None:
        """Words above the chart, `wide` on its axis, on the lower of two rows that has room; none where neither has,
        for the point below says the same. `text` is escaped already."""
        left, right = (x - wide, x) if to_the_left else (x, x + wide)
        free = (row for row, taken in enumerate(self.rows) if all(right <= a or left >= b for a, b in taken))
        row = next(free, None)
        if row is None:
            return
        self.rows[row].append((left, right))
        self.annotations.append(
            {
                "x": x,
                "y": 1,
                "yref": "paper",
                "xanchor": "right" if to_the_left else "left",
                "yanchor": "bottom",
                "yshift": 1 + 13 * row,
                "showarrow": False,
                "text": text,
                "font": {"size": 10.5, "color": colour},
            }
        )

    def point(
        self, x: float, lines: Sequence[str], symbol: str, colour: str, size: float = 8, height: float = 0.975
    ) -> None:
        """A point at the upper edge with something to say. `lines` are escaped already."""
        for key, value in zip(self.points, (x, height, "<br>".join(lines), symbol, colour, size), strict=True):
            self.points[key].append(value)


def open_spans(findings: Iterable[Finding]) -> list[int]:
    """Which shapes are spans of open incidents: they reach to the current step and grow with it.

    Spans come first among the shapes, in the order of `incidents`, so these indices hold for every chart of a run.
    """
    return [index for index, incident in enumerate(incidents(findings)[-MAX_MARKS:]) if incident.open]


def story(
    names: Sequence[str],
    upto: int,
    place: Callable[[int], float],
    colours: Palette,
    findings: Iterable[Finding],
    events: Iterable[Event],
    actions: Iterable[Action],
) -> Marks:
    """The marks of a chart of `names` seen at step `upto`; `place` turns a step into a position on the x axis."""
    marks, events = Marks(), list(events)
    found = incidents(findings)[-MAX_MARKS:]
    concerned = [
        next((finding for finding in incident.findings if concerns(finding) & set(names)), None) for incident in found
    ]
    pairs = list(zip(found, concerned, strict=True))
    for incident, mine in pairs:
        _span(marks, incident, mine, upto, place, colours)
    for incident, mine in pairs:
        _incident(marks, incident, mine, place(incident.onset), colours)
    first, whole = place(0), place(max(upto, 1)) - place(0)
    _labels(marks, [(mine, place(incident.onset)) for incident, mine in pairs if mine], first, whole, colours)
    for action in [entry for entry in actions if entry.entry in DRAWN_ENTRIES][-MAX_MARKS:]:
        _action(marks, action, place(action.step), colours)
    for event in [event for event in events if event.kind in DRAWN_EVENTS][-MAX_MARKS:]:
        _event(marks, event, place(event.step), colours)
    for event in [event for event in events if event.kind == ANNOTATION][-MAX_MARKS:]:
        _annotation(marks, event, place(event.step), place(event.step) > first + 0.6 * whole, whole, colours)
    for event in [event for event in events if event.kind == "checkpoint"][-MAX_MARKS:]:
        _checkpoint(marks, event, place(event.step), colours)
    return marks


def _span(
    marks: Marks, incident: Incident, mine: Finding | None, upto: int, place: Callable[[int], float], colours: Palette
) -> None:
    """The shade of an incident: stronger where the chart shows what it is about, fainter once it is resolved."""
    last = max(incident.last, upto) if incident.open else incident.last
    strength = (0.15 if mine else 0.06) * (1 if incident.open else 0.6)
    colour = colours.severity[incident.severity]
    marks.span(place(incident.onset), place(max(last, incident.onset + 1)), colour, strength)


def _action(marks: Marks, action: Action, x: float, colours: Palette) -> None:
    colour = colours.severity["warn"] if action.entry == "reverted" else colours.fix
    marks.line(x, colour, dash="solid" if action.entry == "applied" else "dot")
    lines = [f"<b>{escape(action.entry)}</b> {escape(action.remedy)} at step {action.step}"]
    lines += [escape(line) for line in change_words(action.change)] + paragraph(action.text)
    marks.point(x, lines, DRAWN_ENTRIES[action.entry], colour)


def _labels(marks: Marks, named: Sequence[tuple[Finding, float]], first: float, whole: float, colours: Palette) -> None:
    """The incidents that the chart shows, by name."""
    for mine, start in sorted(named, key=_urgent):
        text, late = _label(mine), start > first + 0.6 * whole
        marks.label(start, escape(text), colours.severity[mine.severity], late, len(text) * LETTER * whole)


def _event(marks: Marks, event: Event, x: float, colours: Palette) -> None:
    """What the run itself declared."""
    marks.line(x, colours.muted, dash="dash")
    lines = [f"<b>{escape(event.kind)}</b> at step {event.step}", *paragraph(event.text)]
    marks.point(x, lines, DRAWN_EVENTS[event.kind], colours.muted)


def _checkpoint(marks: Marks, event: Event, x: float, colours: Palette) -> None:
    """A saved state, at the foot of the chart: only a way back."""
    marks.point(
        x, [f"<b>checkpoint</b> after step {event.step}", *paragraph(event.text)], CHECKPOINT, colours.muted, 6, 0.03
    )


def _annotation(marks: Marks, event: Event, x: float, late: bool, whole: float, colours: Palette) -> None:
    """What a viewer wrote: a line, the text above it where there is room, and all of it when it is pointed at."""
    text = event.text if len(event.text) <= MAX_LABEL else f"{event.text[: MAX_LABEL - 1]}…"
    marks.line(x, colours.text, dash="dashdot", opacity=0.6)
    marks.label(x, escape(f"★ {text}"), colours.text, late, (len(text) + 2) * LETTER * whole)
    marks.point(x, [f"<b>note</b> at step {event.step}", *paragraph(event.text)], "star", colours.text, 9)


def _incident(marks: Marks, incident: Incident, mine: Finding | None, start: float, colours: Palette) -> None:
    """The onset of an incident: a line where the chart shows what it is about, a small point elsewhere."""
    told = mine or incident.lead
    colour = colours.severity[told.severity]
    word = f"{ICONS[told.severity]} {WORDS[told.severity]}"
    if mine:
        marks.line(start, colour, opacity=0.6 if mine.state == "resolved" else 1)
    about = f"<b>{word}</b> {escape(told.id)} ({escape(told.state)}), steps {incident.onset}–{incident.last}"
    marks.point(start, [about, *paragraph(told.summary[:MAX_HOVER])], "square", colour, 8 if mine else 5)


def _urgent(named: tuple[Finding, float]) -> tuple[bool, int, float]:
    """Which labels come first where there is not room for all: open, severe, new."""
    finding, start = named
    return finding.state == "resolved", -SEVERITIES.index(finding.severity), -start


def _label(finding: Finding) -> str:
    failure = (finding.id.partition("/")[2] or finding.id)[:MAX_LABEL]
    over = " · resolved" if finding.state == "resolved" else ""
    return f"{ICONS[finding.severity]} {WORDS[finding.severity]} · {failure}{over}"


def paragraph(text: str) -> list[str]:
    """A text as escaped lines of a hover box."""
    return [escape(line) for line in wrap(str(text)[:2000], 64)[:6]]
