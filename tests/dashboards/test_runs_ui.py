"""The list of runs in a real browser: what only a browser can show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import HOSTILE_NAME, many
from watched import serving, watching

from stabilizer.runs.writer import RunWriter

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("fleet")
    many(folder, 2, 3, 12)
    with serving(folder) as address:
        yield address, folder


@pytest.fixture
def page(fleet: tuple[str, Path], tab: Any) -> Iterator[Any]:
    with watching(tab, fleet[0]) as watched:
        tab.goto(fleet[0])
        tab.locator(".runs-table tbody tr").nth(9).wait_for()
        yield tab
        assert watched.errors == []


def test_search_and_sort_stand_in_the_address_and_a_reload_shows_the_same(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("seed<2")
    page.locator(".runs-table tbody tr").nth(4).wait_for(state="detached")
    page.get_by_role("button", name="Reward").click()
    page.get_by_role("columnheader", name="Reward").and_(page.locator("[aria-sort=descending]")).wait_for()
    page.wait_for_url("**/?q=seed%3C2&sort=-reward")
    shown = page.locator(".runs-name a").all_inner_texts()
    page.reload()
    page.locator(".runs-table tbody tr").first.wait_for()
    assert page.locator(".runs-name a").all_inner_texts() == shown and len(shown) == 4
    assert page.locator("#runs-find").input_value() == "seed<2"


def test_a_run_is_opened_and_back_shows_the_list_as_it_was(page: Any) -> None:
    page.locator("#runs-find").fill("r1s2")
    page.locator(".runs-table tbody tr").nth(1).wait_for(state="detached")
    page.wait_for_url("**/?q=r1s2")
    page.locator(".runs-name a").click()
    page.locator("h1", has_text="r1s2").wait_for()
    page.go_back()
    page.locator(".runs-table tbody tr").first.wait_for()
    assert page.locator("#runs-find").input_value() == "r1s2" and page.locator(".runs-table tbody tr").count() == 1


def test_rows_are_chosen_from_the_keyboard(page: Any) -> None:
    for place in (0, 1):
        page.locator(".runs-box").nth(place).focus()
        page.keyboard.press("Space")
        page.locator(".runs-box[aria-checked=true]").nth(place).wait_for()
    page.locator(".runs-go").wait_for()
    assert page.locator(".runs-go").get_attribute("href").startswith("/compare?runs=")


def test_a_step_shows_without_a_reload_and_a_name_is_only_text(page: Any, fleet: tuple[str, Path]) -> None:
    row = page.locator(".runs-table tbody tr", has_text=HOSTILE_NAME)
    writer = RunWriter.reopen(fleet[1] / HOSTILE_NAME)
    writer.metrics(6, {"reward/mean": 0.5})
    writer.status("running", 6, force=True)
    row.get_by_text("6 / 400 steps").wait_for()
    writer.close()
    assert page.evaluate("window.pwned") is None


def test_a_phone_shows_cards_and_nothing_scrolls_sideways(fleet: tuple[str, Path], tab: Any) -> None:
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.emulate_media(color_scheme="dark")
    tab.goto(fleet[0])
    tab.locator(".runs-table tbody tr").first.wait_for()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_foreign_log_is_read_beside_the_page_and_opens(page: Any) -> None:
    row = page.locator(".runs-table tbody tr", has_text="their-run")
    row.get_by_text("healthy").wait_for(timeout=30_000)
    row.get_by_role("link").click()
    page.locator(".graph .main-svg").first.wait_for()
    page.locator(".read-notes summary").click()
    page.get_by_text("Read in place").wait_for()
