"""The workspace in a real browser: what hands do there, what the address keeps, and how fast a pan is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_client import RUN
from synthetic_run import eventful, many, values
from watched import Watched, serving, watching

from stabilizer.runs.writer import RunWriter

pytestmark = pytest.mark.ui

SPACE = "document.querySelector('.workspace').workspace"
LINES = "metric => document.querySelector('.workspace')?.workspace?.charts.get(metric)?.lines.length ?? 0"
PAN_MS = 100.0
"""Longest that redrawing all visible charts may take, the median of some pans."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def server_of_many(folder: Path) -> Iterator[str]:
    many(folder, recipes=2, seeds=3, steps=30)
    eventful(folder / RUN).close()
    with serving(folder) as address:
        yield address


@pytest.fixture
def watched(server_of_many: str, tab: Any) -> Iterator[Watched]:
    with watching(tab, server_of_many) as watched:
        yield watched


SEEDS = [f"202601{run + 1:02}-090000-sorting-r0s{run}" for run in range(3)]
CHOSEN = f"?runs={','.join((*SEEDS, RUN))}"


def shown(watched: Watched, query: str = CHOSEN, metric: str = "reward/mean", lines: int = 1) -> Any:
    page = watched.page
    page.goto(f"{watched.address}workspace{query}")
    page.locator(".workspace-chart").first.wait_for()
    watched.until(lambda: page.evaluate(LINES, metric) >= lines)
    return page


def test_runs_are_shown_hidden_grouped_and_found_again_in_the_address(watched: Watched) -> None:
    page = shown(watched, lines=4)
    page.get_by_label(f"hide {SEEDS[0]}").click()
    watched.until(lambda: page.evaluate(LINES, "reward/mean") == 3)
    page.get_by_label("group runs").select_option("seeds")
    watched.until(lambda: page.evaluate(LINES, "reward/mean") == 2)  # a median of two seeds, and a run
    watched.until(lambda: "2 of 3" in page.locator(".workspace-group .pill").all_text_contents())
    page.get_by_label("pin optim/lr").click()
    watched.until(lambda: page.locator(".workspace-section h2").first.text_content().startswith("▾ Pinned"))
    page.reload()
    page.locator(".workspace-group").first.wait_for()
    watched.until(lambda: page.evaluate(LINES, "reward/mean") == 2)
    assert page.locator("tr.on").count() == 3
    assert page.locator(".workspace-chart").first.get_attribute("data-metric") == "optim/lr"
    assert watched.errors == []


def test_no_member_of_a_group_leaves_its_chart(watched: Watched, folder: Path) -> None:
    for seed in range(5):
        writer = RunWriter.create(folder / f"g{seed}", config={"seed": seed, "lr": 1}, task="g", steps=20, argv=[])
        for step in range(1, 21):
            writer.metrics(step, {"reward/mean": 1.0 + 0.001 * step - 3 * (seed == 4 and step > 10)})
        writer.close()
    (folder / ".viewer.json").write_text('{"runs": {"g4": {"annotations": [{"step": 11, "text": "a new reward"}]}}}')
    ids = ",".join(f"g{seed}" for seed in range(5))
    page = shown(watched, f"?runs={ids}&group=lr&smooth=0")
    chart = "document.querySelector('.workspace').workspace.charts.get('reward/mean')"
    watched.until(lambda: page.evaluate(f"{chart}.lines[0].members?.length") == 5)
    assert page.evaluate(f"{chart}.y0") < -1.98 and page.evaluate(f"Math.min(...{chart}.lines[0].low)") > 0.9
    stage = page.locator('[data-metric="reward/mean"] .workspace-stage')
    place = page.evaluate(f"{chart}.across(11)")
    stage.hover(position={"x": place, "y": 90})
    watched.until(lambda: "g4 ★ step 11: a new reward" in page.locator(".workspace-tip").text_content())
    page.goto(f"{watched.address}workspace?runs={ids}&group=nothing.like.it")
    watched.until(lambda: page.evaluate(LINES, "reward/mean") == 5)
    assert page.get_by_label("group runs").input_value() == "" and "group=" not in page.url


def test_grouped_runs_show_some_of_each_group_before_anybody_chooses(watched: Watched, folder: Path) -> None:
    many(folder / "more", recipes=3, seeds=4, steps=30)
    page = shown(watched, "?group=seeds", lines=2)
    watched.until(lambda: page.evaluate(LINES, "reward/mean") == page.locator(".workspace-group").count() + 1)
    assert page.locator(".workspace-group").count() > 2 and page.locator("tr.on").count() > 8
    page.get_by_label("group runs").select_option("")
    watched.until(lambda: page.locator("tr.on").count() == 8)


def test_one_hover_line_goes_through_all_charts_and_a_drag_zooms_all(watched: Watched) -> None:
    page = shown(watched, f"?runs={RUN}")
    stage = page.locator(".workspace-stage").first
    box = stage.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50)
    page.locator(".workspace-tip", has_text="step 1").wait_for()
    assert page.evaluate(f"{SPACE}.hover") > 100
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 50, steps=5)
    page.mouse.up()
    watched.until(lambda: "zoom=" in page.url)
    page.get_by_role("button", name="Reset zoom").click()
    watched.until(lambda: "zoom=" not in page.url)
    stage.press("ArrowRight")  # and without a mouse
    page.locator(".workspace-tip", has_text="step").wait_for()
    assert watched.errors == []


def test_views_are_saved_beside_the_runs_and_loaded(watched: Watched, folder: Path) -> None:
    page = shown(watched, "?find=entropy", "policy/entropy")
    page.locator(".workspace-views summary").click()
    page.get_by_label("name of this view").fill("about entropy")
    page.get_by_role("button", name="Save this view").click()
    page.locator(".workspace-views summary", has_text="(1)").wait_for()
    assert "about entropy" in (folder / ".viewer.json").read_text()
    page.goto(f"{watched.address}workspace{CHOSEN}")
    page.locator(".workspace-chart").nth(3).wait_for()
    page.locator(".workspace-views summary", has_text="(1)").click()
    page.get_by_role("button", name="about entropy", exact=True).click()
    watched.until(lambda: page.locator(".workspace-chart").count() == 1)
    chart, section = (page.locator(name).bounding_box()["width"] for name in (".workspace-chart", ".workspace-main"))
    assert chart == section, "few charts fill the width"
    assert "find=entropy" in page.url and watched.errors == []


def test_an_exported_workspace_opens_without_a_server(watched: Watched, tmp_path: Path, browser: Any) -> None:
    page = shown(watched, lines=4)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    file = tmp_path / "workspace.html"
    download.value.save_as(file)
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, offline=True)
    alone = Watched(context.new_page(), "")
    alone.page.goto(file.as_uri())
    alone.page.locator(".workspace-chart").first.wait_for()
    alone.until(lambda: alone.page.evaluate(LINES, "reward/mean") == 4)
    assert alone.errors == [] and alone.requests == [file.as_uri()]
    assert alone.page.evaluate("window.pwned") is None
    context.close()


def test_new_steps_appear(watched: Watched, folder: Path) -> None:
    page = shown(watched, f"?runs={RUN}")
    last = f"{SPACE}.charts.get('reward/mean').lines[0].x.at(-1)"
    writer = RunWriter.reopen(folder / RUN)
    writer.metrics(401, values(401))
    writer.status("running", 401, force=True)
    watched.until(lambda: page.evaluate(last) == 401)
    assert watched.errors == []


def test_a_pan_over_twenty_runs_of_a_hundred_metrics_is_quick_and_draws_what_is_visible(folder: Path, tab: Any) -> None:
    for run in range(20):
        rng = np.random.default_rng(run)
        writer = RunWriter.create(folder / f"r{run:02}", config={"seed": run}, task="t", steps=300, argv=[])
        for step, row in enumerate(rng.normal(size=(300, 100)).tolist(), start=1):
            writer.metrics(step, {f"layers/{place}/norm": value for place, value in enumerate(row)})
        writer.status("finished", 300, force=True)
        writer.summary(verdict="healthy", worst=None, force=True)
        writer.close()
    with serving(folder) as address:
        watched = Watched(tab, address)
        names = ",".join(f"r{run:02}" for run in range(20))
        tab.goto(f"{address}workspace?runs={names}")
        watched.until(lambda: tab.evaluate(LINES, "layers/0/norm") == 20)
        assert tab.locator(".workspace-chart").count() == 100
        near = tab.evaluate(f"[...{SPACE}.charts.values()].filter(chart => chart.near).length")
        asked = tab.evaluate(f"[...{SPACE}.charts.values()].filter(chart => chart.have.size).length")
        assert near < 30 and asked < 40
        titles = tab.locator(".workspace-chart .chart-title").all_inner_texts()
        assert titles[:12] == [f"layers/{place}/norm" for place in range(12)]
        took = tab.evaluate(
            f"""async () => {{
              const space = {SPACE}, took = [];
              for (let at = 0; at < 15; at += 1) {{
                const began = space.drawn.count;
                space.pan(0.01);
                while (space.drawn.count === began) await new Promise(requestAnimationFrame);
                took.push(space.drawn.ms);
              }}
              return took.sort((a, b) => a - b);
            }}"""
        )
    assert took[len(took) // 2] <= PAN_MS, took
