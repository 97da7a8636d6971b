"""The picture that stands in for a figure shows the same lines and spans, and nothing but numbers gets into it."""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import unquote

import pytest

from stabilizer.core.records import Finding
from stabilizer.figures import metric_figure
from stabilizer.figures.preview import Preview, preview
from stabilizer.runs.history import History

FINDING = Finding("reward/collapse", "critical", "it fell", 40, 45, 60, {"metric": "reward/mean"}, "open", incident=1)


def drawn(values: list[float], **options: Any) -> Preview | None:
    history = History({})
    for step, value in enumerate(values, start=1):
        history.append(step, {"reward/mean": value})
    return preview(metric_figure(history.view(), "reward/mean", **options).to_plotly_json())


def paths(there: Preview) -> list[str]:
    return re.findall(r"<path d='([^']*)'", unquote(there.picture))


def test_the_line_goes_from_edge_to_edge_and_the_axes_say_its_ends() -> None:
    there = drawn([float(n) for n in range(101)])
    (path,) = paths(there)
    assert path.startswith("M0,950L10,") and path.endswith("L1000,50")
    assert (there.lowest, there.highest, there.first, there.last) == ("0", "100", "1", "101")


def test_a_value_that_is_none_leaves_a_gap() -> None:
    values = [1.0, 2.0, math.nan, 3.0, 4.0]
    assert paths(drawn(values))[0].count("M") == 2


def test_a_log_axis_stays_one() -> None:
    there = drawn([10.0**n for n in range(5)], y="log")
    heights = [int(point.split(",")[1]) for point in paths(there)[0][1:].split("L")]
    assert {a - b for a, b in zip(heights, heights[1:], strict=False)} == {225}
    assert (there.lowest, there.highest) == ("1", "10,000")


def test_an_incident_is_shaded_and_its_onset_is_a_line() -> None:
    there = drawn([1.0, 2.0] * 50, findings=[FINDING])
    assert unquote(there.picture).count("<rect x='394' width='606'") == 1 and "M394,0V1000" in paths(there)


def test_a_constant_and_a_single_point_are_drawn_and_nothing_finite_is_not() -> None:
    assert drawn([3.0, 3.0]) and drawn([3.0])
    assert drawn([math.nan, math.inf]) is None


def test_no_word_of_a_figure_reaches_the_picture() -> None:
    hostile = "'/><script>alert(1)</script>"
    line = {"mode": "lines", "x": [1, 2], "y": [1.0, 2.0], "line": {"color": hostile, "dash": hostile}}
    there = preview({"data": [line], "layout": {"yaxis": {"title": {"text": hostile}}}})
    assert "script" not in unquote(there.picture) and "alert" not in unquote(there.picture)


@pytest.mark.parametrize("values", [[1e308, -1e308] * 5, [1.797e308, 1e-300, 1.0], [5e-324, 0.0], [math.inf, math.nan]])
@pytest.mark.parametrize("log", [False, True])
def test_numbers_too_large_or_too_small_to_draw_give_a_picture_or_none(values: list[float], log: bool) -> None:
    there = drawn(values, y="log" if log else "auto")
    assert there is None or "nan" not in unquote(there.picture)
