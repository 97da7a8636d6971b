"""What a viewer already sees, and what to send so that it sees the present: nothing, new points, or all of it.

The browser holds a `Seen` and sends it back with every poll, so the server keeps no state per viewer; a poll that
finds nothing new costs a few `stat`-like reads and sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dashboards.components.sections import Section, sections
from dashboards.data.look import Look
from dashboards.data.scene import Change, ChartView, Scene
from dashboards.data.state import Followed, Page, heartbeat_of, page_of, state_of
from stabilizer.figures.growth import Drawn
from stabilizer.runs.asking import waiting

FIRST = 4
"""Charts drawn first, about what is seen without scrolling; a page that opens begins with pictures of them, for what
draws charts takes a browser half a second to start."""
SOON = 2
"""Charts that take the place of their pictures first: drawing each takes a moment."""
BATCH = 6
"""Charts that follow with each poll, until all are there."""


@dataclass(frozen=True)
class Seen:
    """A viewer's picture of a run: how it is looked at, and how much of everything is there."""

    look: Look
    rev: tuple[Any, ...] = ()
    heartbeat: float | None = None
    sections: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    charts: Mapping[str, Drawn] = field(default_factory=dict)
    rest: tuple[str, ...] = ()
    """Charts the page does not hold yet."""
    behind: tuple[str, ...] = ()
    """Charts that were out of sight when something came, and are drawn anew when they come into view."""
    broken: bool = False
    """Whether the page says that the run can't be read."""

    @property
    def problem(self) -> str:
        """What is wrong with the search."""
        return str(self.sections.get("found", (0, ""))[1])

    def as_json(self) -> dict[str, Any]:
        """For the browser to keep."""
        row = {**asdict(self), "look": self.look.words(), "run": self.look.run, "theme": self.look.theme}
        row["charts"] = {id: [d.shown, int(d.log), d.along, *d.counts] for id, d in self.charts.items()}
        return row

    @classmethod
    def from_json(cls, row: Any) -> Seen | None:
        """What the browser kept; None when it is not what we once sent."""
        try:
            shown = {
                str(id): Drawn(tuple(int(n) for n in counts), int(shown), log == 1, str(along))
                for id, (shown, log, along, *counts) in row["charts"].items()
            }
            places = {str(id): tuple(key) for id, key in row["sections"].items()}
            rest, behind = tuple(map(str, row["rest"])), tuple(map(str, row["behind"]))
            look = Look.read(str(row["run"]), str(row["theme"]), row["look"])
            broken = row["broken"] is True
            return cls(look, tuple(row["rev"]), row["heartbeat"], places, shown, rest, behind, broken)
        except (TypeError, KeyError, ValueError, AttributeError):
            return None


@dataclass(frozen=True)
class Placed:
    """A section with its charts, those with a figure that come now."""

    section: Section
    charts: tuple[ChartView, ...]


@dataclass(frozen=True)
class News:
    """What changed since `Seen`. `whole` says that everything on the page is replaced; no page means that only the
    heartbeat moved. `changes` holds only charts that have news, `more` those that get their figure now. `story` and
    `asks` say that what was found and done, and what may be asked of the run, are no longer as told."""

    seen: Seen
    page: Page | None
    whole: bool = False
    placed: tuple[Placed, ...] = ()
    more: Mapping[str, ChartView] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    story: bool = False
    asks: bool = False

    @property
    def charts(self) -> tuple[ChartView, ...]:
        """The charts that are new on the page, with their figures."""
        return tuple(view for placed in self.placed for view in placed.charts if view.figure is not None)


def whole(followed: Followed, look: Look, first: int | None = None) -> News:
    """Everything about a run, to draw the page with; with `first`, so many charts now and the others poll by poll; with
    none, pictures of the first ones."""
    with followed.lock:
        return _whole(*_scene(followed, look), first)


def news(followed: Followed, seen: Seen, look: Look | None = None, visible: Sequence[str] | None = None) -> News | None:
    """What a viewer who wants `look` must be told; None for nothing.

    With `visible`, only those charts get their news now: drawing is what a poll costs the browser.
    """
    with followed.lock:
        look = look or seen.look
        scene, rev, now = _scene(followed, look)
        due = [id for id in seen.behind if visible is None or id in visible]
        if rev == seen.rev and look == seen.look and not seen.rest and not due:
            heartbeat = heartbeat_of(scene.reader.status)
            return None if heartbeat == seen.heartbeat else News(replace(seen, heartbeat=heartbeat), None)
        redrawn = look.axes != seen.look.axes
        places = sections(scene.view, look)
        moved = keys(places) != seen.sections
        if not seen.rev or look.theme != seen.look.theme or (redrawn and moved):
            return _whole(scene, rev, now, FIRST if seen.charts else 0)
        if moved:
            return _moved(scene, seen, places, now)
        if seen.rest and not redrawn:  # by itself: a page can't take new charts and points of old ones in one answer
            return _more(scene, seen, places, now)
        anew = redrawn or rev[:2] != seen.rev[:2]
        return _grown(scene, seen, places, rev, now, anew, due, visible)


def keys(places: Mapping[str, Section]) -> dict[str, tuple[Any, ...]]:
    """What changes when any section does."""
    return {id: section.key for id, section in places.items()}


def _scene(followed: Followed, look: Look) -> tuple[Scene, tuple[Any, ...], float]:
    reader, now = followed.refresh(), followed.clock()
    stands = followed.standing()
    scene = Scene(reader, look, reader.checkpoints(), stands)
    rev = (
        followed.rewrites,
        reader.history.attempt,
        len(reader.ticks),
        len(reader.findings),
        len(reader.actions),
        len(reader.events),
        len(scene.checkpoints),
        state_of(reader.status, now),
        reader.skipped,
        stands.verdict,
        stands.note,
        stands.ask + stands.problem,
        *(request.id for request in waiting(followed.path)),
    )
    return scene, rev, now


def _whole(scene: Scene, rev: tuple[Any, ...], now: float, first: int | None) -> News:
    places = sections(scene.view, scene.look)
    seen = Seen(scene.look, rev, sections=keys(places))
    return _placed(scene, seen, tuple(places.values()), now, first, whole=True)


def _moved(scene: Scene, seen: Seen, places: Mapping[str, Section], now: float) -> News:
    """Sections with other charts than before are drawn anew, the others stay."""
    new = keys(places)
    moved = tuple(section for id, section in places.items() if new[id] != seen.sections.get(id))
    stay = {chart.id for section in places.values() if section not in moved for chart in section.charts}
    wanted = [chart.id for section in moved for chart in section.charts]
    known = [index for index, id in enumerate(wanted) if id in seen.charts]
    seen = replace(
        seen,
        look=scene.look,
        sections=new,
        charts={id: drawn for id, drawn in seen.charts.items() if id in stay},
        rest=tuple(id for id in seen.rest if id in stay),
        behind=tuple(id for id in seen.behind if id in stay),
    )
    return _placed(scene, seen, moved, now, max([FIRST - 1, *known]) + 1)  # what was there does not go away for a poll


def _placed(
    scene: Scene, seen: Seen, moved: Sequence[Section], now: float, first: int | None, whole: bool = False
) -> News:
    wanted = [chart for section in moved for chart in section.charts]
    views = {chart.id: scene.chart(chart) for chart in wanted[:first]}
    cards = {chart.id: views[chart.id][0] if chart.id in views else scene.card(chart) for chart in wanted}
    cards |= {chart.id: scene.glimpse(chart) for chart in (wanted[:FIRST] if first == 0 else ())}
    placed = tuple(Placed(section, tuple(cards[chart.id] for chart in section.charts)) for section in moved)
    page = page_of(scene.reader, now, scene.stands)
    seen = replace(
        seen,
        heartbeat=page.heartbeat,
        charts={**seen.charts, **{id: drawn for id, (_, drawn) in views.items()}},
        rest=(*seen.rest, *(chart.id for chart in wanted if chart.id not in views)),
    )
    return News(seen, page, whole, placed, story=whole, asks=whole)


def _more(scene: Scene, seen: Seen, places: Mapping[str, Section], now: float) -> News:
    now_due = BATCH if seen.charts else SOON
    wanted = seen.rest[:now_due]
    views = [scene.chart(c) for section in places.values() for c in section.charts if c.id in wanted]
    more = {view.chart.id: view for view, _ in views}
    shown = {**seen.charts, **{view.chart.id: drawn for view, drawn in views}}
    left = replace(seen, look=scene.look, charts=shown, rest=seen.rest[now_due:])
    return News(left, page_of(scene.reader, now, scene.stands), more=more)


def _grown(
    scene: Scene, seen: Seen, places: Mapping[str, Section], rev: tuple[Any, ...], now: float, anew: bool,
    due: Sequence[str], visible: Sequence[str] | None,
) -> News:  # fmt: skip
    """The charts on the page with what is new in them; `anew` draws each once more, as one does with other axes."""
    story = rev[3:7] != seen.rev[3:7]
    asks = rev[7:] != seen.rev[7:]  # the state, how the run stands, and what was asked of it
    changes: dict[str, Change] = {}
    shown: dict[str, Drawn] = {}
    fresh = anew or rev != seen.rev
    behind = [] if fresh else [id for id in seen.behind if id not in due]
    for chart in (chart for section in places.values() for chart in section.charts if chart.id in seen.charts):
        if visible is not None and chart.id not in visible:
            shown[chart.id] = seen.charts[chart.id]
            if fresh:
                behind.append(chart.id)
            continue
        if anew or chart.id in due:
            change, shown[chart.id] = scene.anew(chart)
        else:
            change, shown[chart.id] = scene.change(chart, seen.charts[chart.id], story)
        if change is not None:
            changes[chart.id] = change
    page = page_of(scene.reader, now, scene.stands)
    kept = replace(seen, look=scene.look, rev=rev, heartbeat=page.heartbeat, charts=shown, behind=tuple(behind))
    return News(kept, page, changes=changes, story=story, asks=asks)
