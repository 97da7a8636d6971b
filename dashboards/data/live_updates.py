"""Live updates of a run's page: nothing, new points, or the whole page.

The browser holds a `BrowserState` and sends it back with every poll, so the server keeps no state per viewer. A poll
that finds nothing new costs a few `stat`-like reads and sends nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dashboards.data.chart_sections import Section, sections
from dashboards.data.followed_run import FollowedRun
from dashboards.data.run_figures import Change, ChartView, RunFigures
from dashboards.data.run_page import Page, page_of
from dashboards.data.viewer_settings import ViewerSettings
from stabilizer.figures.growth import Drawn
from stabilizer.runs.asking import waiting
from stabilizer.runs.listing import heartbeat_of, state_of

FIRST = 4
"""Charts drawn first, about what is seen without scrolling; a page that opens begins with pictures of them, for what
draws charts takes a browser half a second to start."""
SOON = 2
"""Charts that take the place of their pictures first: drawing each takes a moment."""
BATCH = 6
"""Charts added with each poll, until the page has all."""


@dataclass(frozen=True)
class BrowserState:
    """What a browser shows of a run: the viewer's settings, and how much of each part."""

    settings: ViewerSettings
    rev: tuple[Any, ...] = ()
    heartbeat: float | None = None
    sections: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    charts: Mapping[str, Drawn] = field(default_factory=dict)
    rest: tuple[str, ...] = ()
    """Charts the page does not hold yet."""
    behind: tuple[str, ...] = ()
    """Charts that were out of sight when points came; they are redrawn when they come into view."""
    broken: bool = False
    """Whether the page reports that the run can't be read."""

    @property
    def problem(self) -> str:
        """The problem with the search, if any."""
        return str(self.sections.get("found", (0, ""))[1])

    def as_json(self) -> dict[str, Any]:
        """For the browser to keep."""
        row = {
            **asdict(self),
            "settings": self.settings.words(),
            "run": self.settings.run,
            "theme": self.settings.theme,
        }
        row["charts"] = {id: [d.shown, int(d.log), d.along, *d.counts] for id, d in self.charts.items()}
        return row

    @classmethod
    def from_json(cls, row: Any) -> BrowserState | None:
        """The state kept by the browser; None when it is malformed."""
        try:
            shown = {
                str(id): Drawn(tuple(int(n) for n in counts), int(shown), log == 1, str(along))
                for id, (shown, log, along, *counts) in row["charts"].items()
            }
            places = {str(id): tuple(key) for id, key in row["sections"].items()}
            rest, behind = tuple(map(str, row["rest"])), tuple(map(str, row["behind"]))
            settings = ViewerSettings.read(str(row["run"]), str(row["theme"]), row["settings"])
            broken = row["broken"] is True
            return cls(settings, tuple(row["rev"]), row["heartbeat"], places, shown, rest, behind, broken)
        except (TypeError, KeyError, ValueError, AttributeError):
            return None


@dataclass(frozen=True)
class Placed:
    """A section with its charts, those with a figure that come now."""

    section: Section
    charts: tuple[ChartView, ...]


@dataclass(frozen=True)
class Update:
    """What changed since a `BrowserState`.

    `whole`: everything on the page is replaced. Without a page only the heartbeat moved. `changes` holds the charts
    with new points or a new figure, `more` those that get their figure now. `story`: incidents or trials changed;
    `asks`: the requests that the run accepts changed.
    """

    seen: BrowserState
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


def full_update(followed: FollowedRun, settings: ViewerSettings, first: int | None = None) -> Update:
    """Everything about a run, to draw the page with; with `first`, so many charts now and the others poll by poll; with
    none, pictures of the first ones."""
    with followed.lock:
        return _whole(*_figures_of(followed, settings), first)


def update_since(
    followed: FollowedRun,
    seen: BrowserState,
    settings: ViewerSettings | None = None,
    visible: Sequence[str] | None = None,
) -> Update | None:
    """The update for a viewer with these `settings`; None when there is nothing new.

    With `visible`, only those charts get their news now: drawing is what a poll costs the browser.
    """
    with followed.lock:
        settings = settings or seen.settings
        figures, rev, now = _figures_of(followed, settings)
        seen = _with_zoomed(seen, settings)
        due = [id for id in seen.behind if visible is None or id in visible]
        if rev == seen.rev and settings == seen.settings and not seen.rest and not due:
            heartbeat = heartbeat_of(figures.reader.status)
            return None if heartbeat == seen.heartbeat else Update(replace(seen, heartbeat=heartbeat), None)
        redrawn = (settings.axes, settings.marks) != (seen.settings.axes, seen.settings.marks)
        places = sections(figures.view, settings)
        moved = keys(places) != seen.sections
        if not seen.rev or settings.theme != seen.settings.theme or (redrawn and moved):
            return _whole(figures, rev, now, FIRST if seen.charts else 0)
        if moved:
            return _moved(figures, seen, places, now)
        if seen.rest and not redrawn:  # by itself: a page can't take new charts and points of old ones in one answer
            return _more(figures, seen, places, now)
        redraw = redrawn or rev[:2] != seen.rev[:2]
        return _grown(figures, seen, places, rev, now, redraw, due, visible)


def _with_zoomed(seen: BrowserState, settings: ViewerSettings) -> BrowserState:
    """The state, with the charts whose range changed as charts that are to be redrawn."""
    zoomed = [id for id in seen.charts if settings.window(id) != seen.settings.window(id)]
    return replace(seen, behind=tuple(dict.fromkeys((*seen.behind, *zoomed))))


def keys(places: Mapping[str, Section]) -> dict[str, tuple[Any, ...]]:
    """The keys of all sections; they change when a section does."""
    return {id: section.key for id, section in places.items()}


def _figures_of(followed: FollowedRun, settings: ViewerSettings) -> tuple[RunFigures, tuple[Any, ...], float]:
    reader, now = followed.refresh(), followed.clock()
    verdict = followed.verdict()
    annotations = followed.annotations()
    figures = RunFigures(reader, settings, reader.checkpoints(), annotations, verdict)
    rev = (
        followed.rewrites,
        reader.history.attempt,
        len(reader.ticks),
        len(reader.findings),
        len(reader.actions),
        len(reader.events),
        len(figures.checkpoints),
        zlib.crc32(repr(annotations).encode("utf-8", "replace")),
        state_of(reader.status, now),
        reader.skipped,
        verdict.verdict,
        verdict.note,
        verdict.ask + verdict.problem,
        *(request.id for request in waiting(followed.path)),
    )
    return figures, rev, now


def _whole(figures: RunFigures, rev: tuple[Any, ...], now: float, first: int | None) -> Update:
    places = sections(figures.view, figures.settings)
    seen = BrowserState(figures.settings, rev, sections=keys(places))
    return _placed(figures, seen, tuple(places.values()), now, first, whole=True)


def _moved(figures: RunFigures, seen: BrowserState, places: Mapping[str, Section], now: float) -> Update:
    """Redraw sections whose charts changed; keep the others."""
    new = keys(places)
    moved = tuple(section for id, section in places.items() if new[id] != seen.sections.get(id))
    stay = {chart.id for section in places.values() if section not in moved for chart in section.charts}
    wanted = [chart.id for section in moved for chart in section.charts]
    known = [index for index, id in enumerate(wanted) if id in seen.charts]
    seen = replace(
        seen,
        settings=figures.settings,
        sections=new,
        charts={id: drawn for id, drawn in seen.charts.items() if id in stay},
        rest=tuple(id for id in seen.rest if id in stay),
        behind=tuple(id for id in seen.behind if id in stay),
    )
    return _placed(
        figures, seen, moved, now, max([FIRST - 1, *known]) + 1
    )  # what was there does not go away for a poll


def _placed(
    figures: RunFigures,
    seen: BrowserState,
    moved: Sequence[Section],
    now: float,
    first: int | None,
    whole: bool = False,
) -> Update:
    wanted = [chart for section in moved for chart in section.charts]
    views = {chart.id: figures.chart(chart) for chart in wanted[:first]}
    cards = {chart.id: views[chart.id][0] if chart.id in views else figures.card(chart) for chart in wanted}
    cards |= {chart.id: figures.placeholder(chart) for chart in (wanted[:FIRST] if first == 0 else ())}
    placed = tuple(Placed(section, tuple(cards[chart.id] for chart in section.charts)) for section in moved)
    page = page_of(figures.reader, now, figures.verdict)
    seen = replace(
        seen,
        heartbeat=page.heartbeat,
        charts={**seen.charts, **{id: drawn for id, (_, drawn) in views.items()}},
        rest=(*seen.rest, *(chart.id for chart in wanted if chart.id not in views)),
    )
    return Update(seen, page, whole, placed, story=whole, asks=whole)


def _more(figures: RunFigures, seen: BrowserState, places: Mapping[str, Section], now: float) -> Update:
    now_due = BATCH if seen.charts else SOON
    wanted = seen.rest[:now_due]
    views = [figures.chart(c) for section in places.values() for c in section.charts if c.id in wanted]
    more = {view.chart.id: view for view, _ in views}
    shown = {**seen.charts, **{view.chart.id: drawn for view, drawn in views}}
    left = replace(seen, settings=figures.settings, charts=shown, rest=seen.rest[now_due:])
    return Update(left, page_of(figures.reader, now, figures.verdict), more=more)


def _grown(
    figures: RunFigures,
    seen: BrowserState,
    places: Mapping[str, Section],
    rev: tuple[Any, ...],
    now: float,
    redraw: bool,
    due: Sequence[str],
    visible: Sequence[str] | None,
) -> Update:
    """New points of the charts on the page; `redraw` redraws each, as changed axes require. So do new marks."""
    story = rev[3:8] != seen.rev[3:8]  # findings, fixes, events, checkpoints, annotations
    asks = rev[8:] != seen.rev[8:]  # the state, the verdict and the pending requests
    changes: dict[str, Change] = {}
    shown: dict[str, Drawn] = {}
    fresh = redraw or rev != seen.rev
    behind = [] if fresh else [id for id in seen.behind if id not in due]
    change: Change | None
    for chart in (chart for section in places.values() for chart in section.charts if chart.id in seen.charts):
        if visible is not None and chart.id not in visible:
            shown[chart.id] = seen.charts[chart.id]
            if fresh:
                behind.append(chart.id)
            continue
        if redraw or story or chart.id in due:
            change, shown[chart.id] = figures.redrawn(chart)
        else:
            change, shown[chart.id] = figures.change(chart, seen.charts[chart.id])
        if change is not None:
            changes[chart.id] = change
    page = page_of(figures.reader, now, figures.verdict)
    kept = replace(
        seen, settings=figures.settings, rev=rev, heartbeat=page.heartbeat, charts=shown, behind=tuple(behind)
    )
    return Update(kept, page, changes=changes, story=story, asks=asks)
