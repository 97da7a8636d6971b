"""Zooming a long run in a real browser: all points of the range come, and the y axis fits them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from watched import Watched, serving, watching

from stabilizer.runs.writer import RunWriter

pytestmark = pytest.mark.ui

STEPS = 20_000
TITLE = "graph => graph.querySelector('.js-plotly-plot').layout.xaxis.title.text"
RANGE = "graph => graph.querySelector('.js-plotly-plot')._fullLayout.yaxis.range.map(Number)"
INSIDE = """graph => {
  const plot = graph.querySelector('.js-plotly-plot'), [low, high] = plot.layout.xaxis.range;
  return plot.data[0].x.filter(x => x >= low && x <= high).length / (Math.floor(high) - Math.ceil(low) + 1);
}"""
"""The share of a range's steps that are drawn."""


@pytest.fixture
def long_run(tmp_path: Path, tab: Any) -> Iterator[Watched]:
    writer = RunWriter.create(tmp_path / "runs" / "long", config={}, task="t", steps=STEPS, argv=[])
    for step in range(1, STEPS + 1):
        reward = step / STEPS + 0.01 * math.sin(step * 37.0)
        writer.metrics(step, {"reward/mean": reward, "policy/entropy": 2.0 - step / STEPS})
    writer.status("finished", STEPS, force=True)
    writer.close()
    with serving(tmp_path / "runs") as address, watching(tab, address) as watched:
        yield watched


def test_zooming_fetches_every_point_of_the_range_and_fits_the_y_axis(long_run: Watched) -> None:
    watched = long_run.open("?run=long")
    graphs = watched.page.locator(".graph")
    watched.until(lambda: graphs.count() == 2 and " of 20,000 points" in graphs.first.evaluate(TITLE))
    other = graphs.nth(1).evaluate(TITLE)
    watched.zoom(graphs.first)  # a third of the run
    watched.until(lambda: "of 5," in graphs.first.evaluate(TITLE))
    watched.zoom(graphs.first)
    watched.until(lambda: graphs.first.evaluate(INSIDE) > 0.9)
    low, high = graphs.first.evaluate(RANGE)
    assert 0.2 < low < high < 0.8 and high - low < 0.4
    assert graphs.nth(1).evaluate(TITLE) == other
    assert "zoom=reward" in watched.page.url

    watched.page.reload()
    graphs.first.locator(".main-svg").first.wait_for()
    watched.until(lambda: graphs.first.evaluate(INSIDE) > 0.9)

    def zoomed_out() -> bool:  # a chart that is drawn just then takes no double click
        graphs.first.locator(".nsewdrag").dblclick()
        watched.page.wait_for_timeout(1000)
        return " of 20,000 points" in graphs.first.evaluate(TITLE)

    watched.until(zoomed_out)
    assert "zoom=" not in watched.page.url
    assert watched.errors == []


def test_synced_zoom_fits_the_y_axis_of_every_chart(long_run: Watched) -> None:
    watched = long_run.open("?run=long&link=1")
    graphs = watched.page.locator(".graph")
    watched.until(lambda: graphs.count() == 2 and graphs.nth(1).locator(".nsewdrag").count() == 1)
    watched.zoom(graphs.first)

    def fitted() -> bool:
        ranges = [graph.evaluate(RANGE) for graph in graphs.all()]
        return all(high - low < 0.5 for low, high in ranges)

    watched.until(fitted)
    assert watched.errors == []
