"""Curves, bands and endings of many runs, on numbers that are known."""

from __future__ import annotations

import numpy as np
import pytest

from stabilizer.compare.many import GRID, Group, curves, endings, grouped, only_differences, positions
from stabilizer.compare.measure import noise
from stabilizer.compare.sides import Member
from stabilizer.figures.run_groups import Mark, Span, Timeline, line_style, many_figure, timelines_figure
from stabilizer.runs.history import Series


def member(name: str, y: np.ndarray, *, metric: str = "reward/mean", tokens: bool = False, **config: object) -> Member:
    steps = np.arange(1, len(y) + 1)
    clocks = {"step": (steps.astype(float), steps.astype(float))}
    if tokens:
        clocks["tokens"] = (steps.astype(float), 1000.0 * steps)
    return Member(name, name, "stabilizer", {metric: Series(steps, np.asarray(y, float))}, clocks, {"config": config})


def ramp(height: float, count: int = 100) -> np.ndarray:
    return np.linspace(0, height, count)


def test_the_band_of_three_is_their_range_and_of_four_their_middle_half():
    heights = (1.0, 2.0, 3.0, 10.0)
    members = tuple(member(str(h), ramp(h)) for h in heights)
    (three,) = curves([Group("g", members[:3])], "reward/mean", "step")
    (four,) = curves([Group("g", members)], "reward/mean", "step")
    assert (three.low[-1], three.middle[-1], three.high[-1]) == pytest.approx((1, 2, 3), rel=0.01)
    assert (four.low[-1], four.middle[-1], four.high[-1]) == pytest.approx(
        np.percentile(heights, (25, 50, 75)), rel=0.01
    )
    assert three.band == "range of 3 runs" and four.band == "middle half of 4 runs" and len(four.x) == GRID


def test_a_band_ends_where_fewer_than_two_runs_go_on():
    (curve,) = curves([Group("g", (member("a", ramp(1, 50)), member("b", ramp(1, 100))))], "reward/mean", "step")
    assert curve.x[-1] <= 50 and max(curve.members[1].x) == 100


def test_curves_are_smoothed_as_compare_smooths_them():
    y = np.random.default_rng(0).normal(0, 1, 200)
    (curve,) = curves([Group("g", (member("a", y),))], "reward/mean", "step")
    assert curve.members[0].y == pytest.approx(noise(y)[0], rel=1e-4) and curve.middle == curve.members[0].y


def test_short_series_are_drawn_as_they_are_and_nan_left_out():
    y = np.array([1.0, np.nan, 3.0])
    (curve,) = curves([Group("g", (member("a", y),))], "reward/mean", "step")
    assert (curve.members[0].x, curve.members[0].y) == ((1.0, 3.0), (1.0, 3.0))
    assert curves([Group("g", (member("a", np.full(20, np.nan)),))], "reward/mean", "step") == []


def test_axes_are_steps_tokens_and_the_share_of_a_run():
    with_tokens, without = member("a", ramp(1, 50), tokens=True), member("b", ramp(1, 50))
    assert positions(with_tokens, np.array([25]), "share") == 50
    assert (
        positions(with_tokens, np.array([25]), "tokens") == 25_000
        and positions(without, np.array([1]), "tokens") is None
    )


def test_long_runs_stay_small():
    members = tuple(member(str(i), np.random.default_rng(i).normal(0, 1, 10_000)) for i in range(20))
    (curve,) = curves([Group("g", members)], "reward/mean", "step")
    assert sum(len(m.x) + len(m.raw_x) for m in curve.members) <= 20 * 300


def test_endings_are_means_over_runs_with_their_spread():
    (ending,) = endings([Group("g", (member("a", ramp(1)), member("b", ramp(3))))], "reward/mean")
    assert ending.peak == pytest.approx(2, rel=0.01) and ending.peak_sd == pytest.approx(np.sqrt(2), rel=0.01)
    (alone,) = endings([Group("g", (member("a", ramp(1), metric="time/step_s"),))], "time/step_s")
    assert alone.final_sd is None and alone.lowest and alone.peak == pytest.approx(0, abs=0.02)


def test_only_what_differs_is_listed_and_what_is_not_stated_is_not_equal():
    runs = [
        member("a", ramp(1), lr=1, deep={"beta": 0}, seed=1),
        member("b", ramp(1), lr=1, deep={"beta": 0.1}, seed=2),
    ]
    rows = {row.key: row.values for row in only_differences(grouped(runs, "run"))}
    assert rows == {"deep.beta": ("0", "0.1"), "seed": ("1", "2")}
    assert only_differences(grouped([runs[0], member("c", ramp(1), lr=1, seed=1)], "run"))[0].values == ("0", None)


def test_groups_that_differ_in_one_setting_are_named_by_it():
    runs = [member(f"r{i}", ramp(1), seed=i, policy={"beta": beta}) for i, beta in enumerate((0, 0, 0.1, 0.1))]
    assert [group.label for group in grouped(runs)] == ["beta 0", "beta 0.1"]
    assert [group.label for group in grouped(runs[:2])] == ["r0 and 1 more"]


def test_a_group_keeps_its_colour_where_another_has_no_numbers():
    drawn = curves([Group("a", (member("a", ramp(1)),))], "reward/mean", "step")
    figure = many_figure(drawn, [1], x_title="step")
    assert {trace.line.color for trace in figure.data} == {line_style(1, "light")[0]}
    assert len({line_style(place, "dark") for place in range(18)}) == 18


def test_text_in_figures_is_no_markup():
    bad = "<b>x</b>"
    drawn = curves([Group(bad, (member(bad, ramp(1)), member("b", ramp(1))))], "reward/mean", "step")
    rows = [Timeline(bad, 0, 100, (Span(5, 5, "critical", bad, True),), (Mark(3, bad),))]
    rows = [row._replace(notes=row.marks) for row in rows]
    notes = [(rows[0].notes[0], 0)]
    for figure in (many_figure(drawn, [0], x_title=bad, notes=notes), timelines_figure(rows, x_title="step")):
        assert bad not in figure.to_json().replace("\\u003c", "<").replace("\\u003e", ">")


def test_a_short_incident_can_still_be_seen_and_runs_of_one_name_keep_their_rows():
    rows = [Timeline("same", 0, 1000, (Span(5, 5, "warn", "x"),)), Timeline("same", 0, 500)]
    figure = timelines_figure(rows, x_title="step")
    span = next(trace for trace in figure.data if trace.line.width == 12)
    assert span.x[-1] - span.x[0] >= 4 and len(figure.layout.yaxis.categoryarray) == 2
