"""Which charts a page shows and where: pinned ones, then the core charts, then the open families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.data.viewer_settings import ViewerSettings
from stabilizer.core.text import rounded
from stabilizer.figures import FAMILIES, charts, others, searched
from stabilizer.figures.default_charts import Chart
from stabilizer.runs.history import RunView

SECTIONS = ("pinned", "found", "first", *FAMILIES)
"""The places for charts, in their order on the page."""
MOST = 48
"""Charts of one section that are drawn; the others are found by searching."""


@dataclass(frozen=True)
class Section:
    """One place: the charts in it, how many there would be, and what is wrong with the search that chose them."""

    id: str
    charts: tuple[Chart, ...] = ()
    count: int = 0
    problem: str = ""
    open: bool = True
    still: str = ""
    """In words, what belongs here and never changed: a line does for it."""

    @property
    def key(self) -> tuple[object, ...]:
        """Changes when the section does."""
        return (
            self.count,
            self.problem,
            self.open,
            self.still,
            *(f"{chart.id}*{len(chart.metrics)}" for chart in self.charts),
        )


def sections(view: RunView, settings: ViewerSettings) -> dict[str, Section]:
    """Every place with what is in it now; a chart is in one place alone."""
    first = charts(view)
    families = others(view, first)
    every = [*first, *(chart for family in families.values() for chart in family)]
    known = {chart.id: chart for chart in every}
    pinned = [known[id] for id in settings.pins if id in known]

    def unpinned(members: Sequence[Chart]) -> list[Chart]:
        return [chart for chart in members if chart.id not in settings.pins]

    found = dict.fromkeys(SECTIONS, Section("", open=False))
    found["pinned"] = _section("pinned", pinned)
    if settings.find:
        try:
            found["found"] = _section("found", searched(unpinned(every), settings.find))
        except ValueError as error:
            found["found"] = Section("found", problem=str(error))
        if not found["found"].problem:
            return {id: _named(id, section) for id, section in found.items()}
    found["first"] = _section("first", unpinned(first))
    for id, family in families.items():
        members = unpinned(family)
        still = dict.fromkeys(chart for chart in members if id == "knobs" and _never_changed(view, chart))
        moved = [chart for chart in members if chart not in still]
        shown = moved if id in settings.open else []
        words = ", ".join(_stands(view, chart) for chart in still)
        found[id] = Section(id, tuple(shown[:MOST]), len(moved), open=id in settings.open, still=words)
    return {id: _named(id, section) for id, section in found.items()}


def _section(id: str, members: Sequence[Chart]) -> Section:
    return Section(id, tuple(members[:MOST]), len(members))


def _never_changed(view: RunView, chart: Chart) -> bool:
    """Whether it is a knob that was never changed."""
    values = view.series(chart.metrics[0]).values
    knob = len(chart.metrics) == 1 and chart.metrics[0].startswith("control/")
    return bool(knob and len(values) and values[0] == values[-1] and (values == values[0]).all())


def _stands(view: RunView, chart: Chart) -> str:
    name = chart.metrics[0]
    return f"{name.removeprefix('control/')} {rounded(float(view.series(name).values[-1]), 4)}"


def _named(id: str, section: Section) -> Section:
    return section if section.id else Section(id, open=False)
