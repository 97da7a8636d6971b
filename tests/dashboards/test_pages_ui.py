"""Completions and comparisons in a real browser: what hands do there, and that nothing a model wrote does anything."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from asking_run import ASKING, asking
from page_client import CALM, LARGE, RUN
from test_completions import HOSTILE, log, sample
from watched import Watched

pytestmark = pytest.mark.ui


def address_has(watched: Watched, text: str) -> None:
    watched.until(lambda: text in watched.page.url)


def test_completions_are_walked_searched_and_shared(watched: Watched, served: tuple[str, Path]) -> None:
    folder = served[1] / CALM
    for step in (5, 10, 15):
        samples = [sample(step, g, float(g == i), f"{step} says {i} {HOSTILE}") for g in range(3) for i in range(4)]
        log(folder, step, [*samples, sample(step, 3, 0.0, "long " * 2000)])
    page = watched.page
    page.goto(f"{watched.address}completions?run={CALM}")
    page.locator(".sample").first.wait_for()
    assert page.evaluate("window.pwned") is None and page.locator("main img").count() == 0
    assert page.locator(".odd", has_text="⟨RLO⟩").count() > 0

    page.keyboard.press("ArrowLeft")
    page.locator("#completions-where", has_text="step 10").wait_for()
    address_has(watched, "step=10")
    page.locator("#completions-q").fill("says 2")
    page.locator("mark.hit").first.wait_for()
    watched.until(lambda: page.locator(".sample").count() == 3)
    address_has(watched, "q=says+2")
    page.get_by_label("switch between light and dark").click()  # the page is redrawn, at the same place
    page.locator("html[data-mantine-color-scheme=dark]").wait_for()
    page.locator("#completions-where", has_text="step 10").wait_for()
    page.reload()
    page.locator("mark.hit").first.wait_for()
    assert page.locator(".sample").count() == 3 and page.locator("#completions-q").input_value() == "says 2"

    page.locator("#completions-q").fill("long")
    page.get_by_role("button", name="show all 10,000 characters").click()
    page.get_by_role("button", name="show less").wait_for()
    assert len(page.locator(".sample-text").first.inner_text()) >= 9_999
    page.locator("#completions-q").fill("says 1")
    watched.until(lambda: page.locator(".sample").count() == 3)
    page.get_by_role("button", name="find this prompt in other steps").first.click()
    page.get_by_role("link", name="step 15").click()
    page.locator("ins.new").first.wait_for()
    assert watched.errors == []


def test_a_comparison_appears_and_its_choices_are_in_the_address(watched: Watched) -> None:
    page = watched.page
    page.goto(f"{watched.address}compare?runs={RUN},{CALM}")
    page.locator(".compare-key").wait_for(timeout=60_000)
    page.locator(".compare-verdict").wait_for(timeout=60_000)
    chart = page.locator(".compare-body figure").first
    assert chart.bounding_box()["y"] <= 250
    page.locator(".compare-how summary").click()
    page.get_by_text("% of run", exact=True).click()
    address_has(watched, "x=share")
    watched.until(
        lambda: (
            page.locator(".chart .xtitle").count() > 0
            and "% of the run" in page.locator(".chart .xtitle").first.text_content()
        ),
        60,
    )
    page.go_back()
    watched.until(lambda: "x=share" not in page.url)
    page.locator(".compare-key").wait_for(timeout=60_000)
    assert watched.errors == []


@pytest.mark.parametrize("path", [f"run?run={RUN}", f"completions?run={CALM}", f"compare?runs={RUN},{CALM}"])
def test_no_sideways_scrolling_on_a_phone(tab: Any, served: tuple[str, Path], path: str) -> None:
    log(served[1] / CALM, 5, [sample(5, 0, 1.0, "x" * 5000, prompt="y" * 5000)])
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.goto(served[0] + path)
    tab.locator(".page.run .main-svg, .sample:visible, .compare-table:visible").first.wait_for(timeout=60_000)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    if path.startswith("compare"):
        assert tab.locator("main figure").first.bounding_box()["y"] < 844, "a chart is on the first screen"


def test_a_chart_is_on_a_phones_first_screen_below_a_fix_that_waits(tab: Any, served: tuple[str, Path]) -> None:
    asking(served[1] / ASKING).close()
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.goto(f"{served[0]}run?run={ASKING}")
    tab.locator(".page.run .main-svg").first.wait_for(timeout=60_000)
    assert tab.get_by_role("button", name="Approve").bounding_box()["y"] < 844
    assert tab.locator("main figure").first.bounding_box()["y"] < 844
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_key_of_ten_groups_moves_no_chart(tab: Any, served: tuple[str, Path]) -> None:
    names = [f"{CALM}-{place}" for place in range(10)]
    for name in names:
        shutil.copytree(served[1] / CALM, served[1] / name)
    tab.set_viewport_size(LARGE)
    tab.goto(f"{served[0]}compare?group=run&runs={','.join(names)}")
    tab.locator(".compare-group").nth(9).wait_for(timeout=60_000)
    assert tab.locator(".compare-body figure").first.bounding_box()["y"] <= 250
