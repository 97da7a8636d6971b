"""Many runs in one view, as plain data: a row per run, and the curves of the metrics that are on the screen.

The browser keeps what it was given and asks for what it lacks: all lines of a chart that comes into view, and lines of
runs that went on since. It draws by itself, so panning, hovering, hiding and grouping ask nothing of the server.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dashboards.data.run_list import SEEDS, STATES, VERDICTS, group_choices, setting_words, telling
from dashboards.data.run_registry import Runs
from dashboards.data.run_search import said
from dashboards.data.run_search import values as settings_of
from dashboards.data.viewer_settings import SMOOTHS
from stabilizer.core.metrics import metric
from stabilizer.core.points import log_floor, thin, wants_log
from stabilizer.core.records import Event
from stabilizer.core.text import natural
from stabilizer.figures.axes import XS, Axis, axis
from stabilizer.figures.smoothing import smoothed, steps_of
from stabilizer.figures.words import definition
from stabilizer.runs.history import RunView, Series
from stabilizer.runs.listing import Extremes, RunLine

MAX_RUNS = 24
"""Runs drawn at once."""
MAX_METRICS = 40
"""Charts answered at once; a screen shows fewer."""
MAX_COLUMNS = 12
MAX_NAME = 300
"""Characters of a metric's name that are looked at."""
POINTS, POINTS_OF_MANY, MANY = 600, 300, 8
"""Points of one line; fewer with so many runs, where lines cover one another."""
FAINT_RUNS, FAINT_POINTS = 4, 400
"""With up to so many runs, the values themselves are drawn faint behind their means, with so many points."""
PANNED = 0.5
"""Share of a zoomed range that is sent on each side of it, for panning until the next answer."""
DIGITS = 5
"""Significant digits of a drawn number."""
STATISTICS = ("last", "best", "min", "max")
MIN_ATTENTION = len(VERDICTS) * 100


@dataclass(frozen=True)
class Wanted:
    """What a browser lacks: lines of some metrics and runs. `count` is how many runs its charts show in all."""

    runs: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    count: int = 1
    x: str = "step"
    """An axis of `XS`, or the name of a metric: then each line is a metric against that one."""
    smooth: int = 0
    window: tuple[float, float] | None = None

    @classmethod
    def read(cls, row: Any) -> Wanted | None:
        """A browser's wish; None when it is malformed."""
        if not isinstance(row, Mapping) or not (runs := _names(row.get("runs"), MAX_RUNS)):
            return None
        smooth, count = row.get("smooth"), row.get("count")
        return cls(
            runs,
            _names(row.get("metrics"), MAX_METRICS),
            count if isinstance(count, int) else len(runs),
            str(row.get("x") or "step")[:MAX_NAME],
            smooth if isinstance(smooth, int) and smooth in SMOOTHS else 0,
            _window(row.get("window")),
        )


# --- the rows ---------------------------------------------------------------------------------------------------------


def rows(runs: Runs, columns: Sequence[str], group: str) -> dict[str, Any]:
    """All runs as rows, those that need attention first, and what they can be grouped by."""
    lines = runs.lines()
    first = list({line.recipe: line for line in lines if line.recipe}.values())
    settings = telling(first) if group == SEEDS else ()
    found = sorted(lines, key=lambda line: (-_attention(line), -(line.created or 0.0)))
    return {
        "rows": [
            {**_row(line, columns), **_group(line, group, settings), "noted": _noted(runs, line)} for line in found
        ],
        "group": group,
        "groups": [{"value": value, "label": label} for value, label in group_choices(lines)],
        "columns": _offered(lines),
    }


def _attention(line: RunLine) -> int:
    """How much a run needs a person: its verdict first, then its state; what is over and healthy comes last."""
    verdict = VERDICTS.index(line.verdict) if line.verdict in VERDICTS else len(VERDICTS)
    state = STATES.index(line.state) if line.state in STATES else len(STATES)
    return MIN_ATTENTION - verdict * 100 - state


def _row(line: RunLine, columns: Sequence[str]) -> dict[str, Any]:
    return {
        "id": line.id,
        "name": line.name,
        "state": line.state,
        "verdict": line.verdict,
        "worst": line.worst,
        "step": line.step,
        "steps": line.steps,
        "created": line.created,
        "task": line.task,
        "tags": list(line.tags),
        "archived": line.archived,
        "cells": [_cell(line, column) for column in columns],
        "search": " ".join((line.id, line.label, line.state, line.verdict, line.task, *line.tags)).casefold(),
        "drawable": line.state != "unreadable" and bool(line.measured),
    }


def _noted(runs: Runs, line: RunLine) -> int:
    """A number that changes with the notes on the charts of a run."""
    return zlib.crc32(repr(runs.remarks(line.path).annotations).encode("utf-8", "replace"))


def _group(line: RunLine, by: str, settings: Sequence[str]) -> dict[str, str]:
    """The group of a run, and its name."""
    if by == SEEDS:
        label = " · ".join(filter(None, (line.task or line.trainer, setting_words(line, settings))))
        return {"group": line.recipe or line.id, "groupLabel": label or "one configuration"}
    value = next((said(value) for value in settings_of(line, by)), "not set") if by else ""
    return {"group": value, "groupLabel": f"{by} {value}"}


def _cell(line: RunLine, column: str) -> Any:
    """A number or text of the table; None where the run has none."""
    name, _, statistic = column.rpartition(":")
    if statistic in STATISTICS and name:
        return _statistic(name, line.extremes.get(name), statistic)
    return next((said(value) for value in settings_of(line, column)), None)


def _statistic(name: str, found: Extremes | None, statistic: str) -> float | None:
    if found is None:
        return None
    if statistic == "best":
        statistic = {"up": "max", "down": "min"}.get(metric(name).better, "last")
    value = {"last": found.last, "min": found.low, "max": found.high}[statistic]
    return value if value is not None and math.isfinite(value) else None


def _offered(lines: Iterable[RunLine]) -> list[str]:
    """What a column can show: metrics, with statistics, and settings."""
    metrics: set[str] = set()
    settings: set[str] = set()
    for line in lines:
        metrics |= line.measured
        settings |= line.settings.keys()
    return [*(sorted(metrics, key=natural)[:500]), *(sorted(settings)[:300])]


# --- the curves -------------------------------------------------------------------------------------------------------


def answer(runs: Runs, wanted: Wanted) -> dict[str, Any]:
    """The lines that a browser lacks, and of each run its metrics and its reach along the x axis."""
    told: dict[str, Any] = {}
    charts: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    for id in wanted.runs:
        followed = runs.get(id)
        if followed is None:
            problems[id] = "not found"
            continue
        try:
            with followed.lock:
                told[id] = _lines(followed.refresh().history.view(), wanted, id, charts, followed.annotations())
        except Exception as error:  # whatever a directory holds, the page stays up and reports it
            problems[id] = (str(error) or type(error).__name__)[:300]
    return {"runs": told, "charts": charts, "problems": problems}


def _lines(
    view: RunView, wanted: Wanted, id: str, charts: dict[str, dict[str, Any]], notes: Sequence[Event]
) -> dict[str, Any]:
    """Add the lines of one run to the charts; what the browser keeps of the run. Notes are at steps, so no other metric
    can place them."""
    by = next((x for x in XS if x == wanted.x), None)
    along, other = axis(view, by or "step"), None if by else view.series(wanted.x).finite()
    for name in wanted.metrics:
        series = view.series(name)
        how = replace(wanted, smooth=int(steps_of(name, wanted.smooth)))
        line = line_of(series, along, how) if other is None else line_against(series, other, how)
        if len(line["x"]):
            charts.setdefault(name, {"about": _about(view, name), "lines": {}})["lines"][id] = line
    names = sorted(view.names(), key=natural)
    if other is not None:
        ends = [float(other.values.min()), float(other.values.max())] if len(other) else [0.0, 0.0]
        return {"metrics": names, "reach": ends, "axis": wanted.x, "notes": []}
    placed = _placed(notes, along)
    return {"metrics": names, "reach": along.places(np.array(_ends(view))), "axis": along.title, "notes": placed}


def _placed(notes: Sequence[Event], along: Axis) -> list[list[Any]]:
    """Notes, each with its place on the x axis."""
    return [[round_to(along.place(one.step), 9), one.step, one.text] for one in notes]


def _ends(view: RunView) -> list[int]:
    steps = [int(series.steps[end]) for series in map(view.series, view.names()) for end in (0, -1)]
    return [min(steps), max(steps)] if steps else [0, 0]


def line_of(series: Series, along: Axis, wanted: Wanted) -> dict[str, Any]:
    """One line: its means over steps, thinned, and with few runs the values behind them."""
    budget = POINTS_OF_MANY if wanted.count > MANY else POINTS
    means = Series(series.steps, smoothed(series.steps, series.values, wanted.smooth))
    inside, around = _inside(series, along, wanted.window, 0.0), _inside(series, along, wanted.window, PANNED)
    shown = _thinned(_part(means, around), budget * (2 if wanted.window else 1))
    line = {
        **_columns(shown, along),
        "drawn": len(_part(shown, _inside(shown, along, wanted.window, 0.0))),
        "of": inside.stop - inside.start,
        "log": wants_log(series.values),
        "floor": log_floor(series.values),
    }
    if wanted.smooth and wanted.count <= FAINT_RUNS:
        line["faint"] = _columns(_thinned(_part(series, around), FAINT_POINTS), along)
    return line


def line_against(series: Series, other: Series, wanted: Wanted) -> dict[str, Any]:
    """A metric against another one, from its lowest value to its highest: the steps at which both were logged.

    Smoothing is a mean over so many neighbours on the x axis.
    """
    steps, mine, its = np.intersect1d(series.steps, other.steps, return_indices=True)
    order = np.argsort(other.values[its], kind="stable")
    places, values = other.values[its][order], series.values[mine][order]
    ranks = np.arange(len(steps))
    along = Axis(wanted.x, ranks, places)
    return line_of(Series(ranks, values), along, wanted)


def _inside(series: Series, along: Axis, window: tuple[float, float] | None, margin: float) -> slice:
    """The points in a range of the x axis widened by a share of it; with a margin one more at each end."""
    if window is None:
        return slice(0, len(series))
    wider = margin * (window[1] - window[0])
    found = along.within(series.steps, (window[0] - wider, window[1] + wider))
    return slice(max(0, found.start - 1), min(len(series), found.stop + 1)) if margin else found


def _columns(series: Series, along: Axis) -> dict[str, Any]:
    values = [round_to(value) for value in series.values.tolist()]
    return {"x": [round_to(place, 9) for place in along.places(series.steps)], "y": values}


def round_to(value: float, digits: int = DIGITS) -> float | int | None:
    """A number with few digits, which makes answers small; None for what is none."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 1e15 else float(f"{value:.{digits}g}")


def _part(series: Series, which: slice) -> Series:
    return Series(series.steps[which], series.values[which])


def _thinned(series: Series, budget: int) -> Series:
    keep = thin(series.values, budget)
    return Series(series.steps[keep], series.values[keep])


def _about(view: RunView, name: str) -> dict[str, str]:
    known = definition(view, name)
    return {"unit": "" if known.unit == "1" else known.unit, "meaning": known.meaning, "kind": known.kind}


def _names(given: Any, most: int) -> tuple[str, ...]:
    return tuple(name for name in given if isinstance(name, str))[:most] if isinstance(given, list) else ()


def _window(given: Any) -> tuple[float, float] | None:
    if not isinstance(given, list) or len(given) != 2 or not all(isinstance(end, (int, float)) for end in given):
        return None
    start, end = map(float, given)
    return (start, end) if math.isfinite(start) and math.isfinite(end) and start < end else None


def columns_of(given: Any) -> tuple[str, ...]:
    """The columns that a browser asks for."""
    words = [word[:200] for word in given if isinstance(word, str)] if isinstance(given, list) else []
    return tuple(dict.fromkeys(words))[:MAX_COLUMNS]
