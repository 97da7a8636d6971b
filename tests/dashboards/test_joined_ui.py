"""The pages together in a real browser: none is hard to use for anybody, none asks another host, and a run that really
trains is answered from its page."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from asking_run import ASKING, asking, requests, take
from page_client import CALM, RUN, THERE, addresses
from synthetic_run import eventful, healthy, values
from test_completions import log, sample
from watched import Watched, serving

pytestmark = pytest.mark.ui

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()
FADING_S = 15.0
"""How long a page may be hard to use while it is drawn."""
GRAVE = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter(found => ["serious", "critical"].includes(found.impact))
  .map(found => [found.id, found.nodes.length, found.nodes.slice(0, 3).map(node => node.html.slice(0, 200))])"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A served folder with all there is to look at: incidents, fixes, an answer to give, texts."""
    folder = tmp_path_factory.mktemp("everything")
    calm = healthy(folder / CALM)
    calm.status("finished", 30, force=True)
    calm.close()
    eventful(folder / RUN).close()
    asking(folder / ASKING).close()
    for run in (CALM, RUN, ASKING):
        log(folder / run, 10, [sample(10, g, float(g == i), f"<b>{g}</b> {i}") for g in range(2) for i in range(3)])
        log(folder / run, 20, [sample(20, g, float(g == i), f"<b>{g}</b> {i}") for g in range(2) for i in range(3)])
    with serving(folder) as address:
        yield address, folder


@pytest.fixture(scope="module")
def walking(browser: Any, everything: tuple[str, Path]) -> Iterator[Watched]:
    """One tab in which page after page is opened."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="light")
    yield Watched(context.new_page(), everything[0])
    context.close()


def opened(watched: Watched, path: str, query: str) -> None:
    watched.page.goto(watched.address.rstrip("/") + path + query)
    watched.page.locator(THERE[path]).first.wait_for(timeout=60_000)


PLACES = sorted({*addresses(RUN, CALM), *addresses(ASKING, CALM)[:4], ("/run", "?run=nothing"), ("/nowhere", "")})


@pytest.mark.parametrize(("path", "query"), PLACES, ids=[path + query for path, query in PLACES])
def test_a_page_is_for_everybody_and_stays_on_this_host_light_and_dark(walking: Watched, path: str, query: str) -> None:
    walking.errors.clear()
    page = walking.page
    page.emulate_media(color_scheme="light")
    page.goto(walking.address.rstrip("/") + path + query)
    there = THERE[path] if path in THERE and "nothing" not in query else "main h1"
    page.locator(there).first.wait_for(timeout=60_000)
    page.evaluate(AXE)
    page.add_style_tag(content="* { transition: none !important }")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.locator(f"html[data-mantine-color-scheme={scheme}]").wait_for()
        page.locator(there).first.wait_for(timeout=60_000)
        grave: list[Any] = []

        def fine(grave: list[Any] = grave) -> bool:  # a page that is just drawn again is asked again
            grave[:] = page.evaluate(GRAVE)
            return not grave

        with contextlib.suppress(AssertionError):
            walking.until(fine, FADING_S)
        assert grave == [], scheme
    assert page.locator("h1").count() == 1 and page.locator("html[lang=en] main").count() == 1
    assert walking.errors == []
    assert {url for url in walking.requests if not url.startswith((walking.address, "data:", "blob:"))} == set()


def test_pages_lead_to_one_another(walking: Watched) -> None:
    page = walking.page
    walking.errors.clear()
    opened(walking, "/", "")
    page.get_by_role("link", name=RUN).click()
    page.locator(".incident-link").first.click()
    page.locator(".headline .ways").wait_for()
    incident = page.url
    page.locator(".pills .code-link").click()
    page.get_by_role("heading", name="Look-alikes").wait_for()
    page.go_back()
    page.locator(".facts a", has_text="near step").click()
    page.locator(".sample").first.wait_for()
    assert f"run={RUN}" in page.url and "step=" in page.url
    page.goto(incident)
    page.locator(".headline .ways").wait_for()
    opened(walking, "/", "")
    for name in (RUN, CALM):
        page.get_by_role("checkbox", name=f"select {name}").click()
        page.get_by_role("checkbox", name=f"select {name}", checked=True).wait_for()
    page.get_by_role("link", name="Compare selected").click()
    page.locator(".compare-verdict").wait_for(timeout=60_000)
    assert walking.errors == []


SAVED = {"/incident": f"?run={RUN}&n=2", "/completions": f"?run={RUN}&step=10", "/compare": f"?runs={RUN},{CALM}"}


def choose(menu: Any, kind: str) -> None:
    """Open a chart's menu and press in it, in one go: a page that is redrawn in between would close it."""
    menu.evaluate("(menu, kind) => { menu.open = true; menu.querySelector(`[data-save=${kind}]`).click() }", kind)


@pytest.mark.parametrize("path", SAVED)
def test_every_chart_of_every_page_is_saved_with_its_numbers(walking: Watched, path: str) -> None:
    walking.errors.clear()
    opened(walking, path, SAVED[path])
    page = walking.page
    drawn, menus = page.locator("main .js-plotly-plot"), page.locator("main .save")
    drawn.first.wait_for(state="attached", timeout=60_000)
    walking.until(lambda: drawn.count() == menus.count() > 0)
    for place in range(min(menus.count(), 3)):
        with page.expect_download() as saved:
            choose(menus.nth(place), "csv")
        rows = Path(saved.value.path()).read_text().splitlines()
        assert rows[0] == "series,x,y,text" and len(rows) > 2
    with page.expect_download() as saved:
        choose(menus.first, "png")
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    assert walking.errors == []


def test_a_press_on_the_run_page_survives_its_redraws(watched: Watched, served: tuple[str, Path]) -> None:
    writer = asking(served[1] / ASKING)
    page = watched.open(f"?run={ASKING}").page
    page.locator("#now").get_by_role("button", name="Approve").focus()
    for step in (301, 302, 303):  # the page takes in steps; the button stays the same one, with its focus
        writer.metrics(step, values(step))
        watched.until(lambda step=step: watched.last_step() == step)
        assert page.evaluate("document.activeElement.textContent") == "Approve"
    page.keyboard.press("Enter")
    page.locator("#now").get_by_text("approve requested by dashboard").wait_for()
    assert [row["kind"] for row in requests(served[1] / ASKING)] == ["approve"]
    page.locator("#asks").get_by_role("button", name="Pause").click()
    page.locator("#asks").get_by_text("pause requested").wait_for()
    take(served[1] / ASKING)
    writer.status("paused", 303, remedy="approve", force=True)
    page.locator("#asks").get_by_role("button", name="Resume").wait_for()
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(node => node.id)")
    assert len(ids) == len(set(ids)) and watched.errors == []
    writer.close()


def test_an_address_with_its_token_lets_in_and_loses_it(browser: Any, runs_folder: Path) -> None:
    context = browser.new_context()
    with serving(runs_folder, token=True) as address:
        watched = Watched(context.new_page(), address.partition("?")[0])
        watched.page.goto(f"{watched.address}run")
        watched.page.get_by_text("open the address that was printed").wait_for()
        watched.page.goto("about:blank")  # what the refused page still asks for ends with it
        watched.errors.clear()  # the browser says that this was refused
        watched.page.goto(address)
        watched.page.locator(THERE["/"]).first.wait_for()
        assert "token" not in watched.page.url and watched.page.evaluate("document.cookie") == ""
        watched.page.get_by_role("link", name=RUN).click()
        watched.page.locator(THERE["/run"]).first.wait_for()
        assert watched.errors == []
    context.close()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A real run whose learning rate is too high, in approve mode, with its dashboard: the address, and its folder.

    Its batch is large, so that a question is not out of date before a browser on a busy machine has shown it.
    """
    command = [
        sys.executable,
        "-m",
        "stabilizer",
        "train",
        "addition",
        "--variant",
        "unstable",
        "--seed",
        "11",
        "--remedy",
        "approve",
        "--steps",
        "2000",
        "--set",
        "samples.every=5",
        "--set",
        "rollout.prompts=32",
        "--runs",
        str(tmp_path / "runs"),
        "--dashboard",
        "--port",
        "0",
    ]
    environment = {
        **os.environ,
        "COLUMNS": "400",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    with open(tmp_path / "said.txt", "w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        printed = []
        for line in process.stdout:
            printed.append(line)
            if line.startswith("dashboard: http"):
                break
        else:
            pytest.fail(f"no dashboard; exit code {process.wait(60)}: {printed} {(tmp_path / 'said.txt').read_text()}")
        threading.Thread(target=process.stdout.read, daemon=True).start()  # it must not wait for us to read on
        yield line.split()[1], tmp_path / "runs"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


PRESS_BOTH = """() => {
  [...document.querySelectorAll('#now summary')].find(each => each.textContent.startsWith('Approve'))?.click();
  [...document.querySelectorAll('#now button')].find(each => each.textContent === 'Yes, approve')?.click();
}"""


def test_a_fix_is_approved_in_the_browser_and_the_trainer_applies_it(training: tuple[str, Path], tab: Any) -> None:
    address, folder = training
    watched = Watched(tab, address.partition("run?")[0])
    page = watched.page
    page.emulate_media(color_scheme="dark")
    page.goto(address)
    page.locator(".graph .main-svg").first.wait_for(timeout=60_000)
    # A return to a checkpoint takes two presses. The page is redrawn all the time, and a proposal may end before it is
    # answered, so both are pressed until the trainer has the answer.
    page.locator("#now summary", has_text="Approve").first.wait_for(timeout=120_000)
    (run,) = folder.iterdir()

    def approved() -> bool:
        page.evaluate(PRESS_BOTH)
        return '"entry":"approved"' in (run / "actions.jsonl").read_text()

    watched.until(approved, 120)
    seen: set[int] = set()

    def lives() -> bool:  # while it trains; it may just go back to its start
        seen.add(watched.last_step())
        return len(seen) > 3

    watched.until(lives)
    chosen = watched.zoom(page.locator(".graph").first)
    zoom = "document.querySelector('.js-plotly-plot')?.layout?.xaxis?.range?.map(Math.round)"

    done = page.locator(".entry-applied, .entry-verified, .entry-reverted")  # a trial may be over by the time it shows
    page.locator("#journal").locator(done).first.wait_for(timeout=60_000)
    page.locator("#journal").get_by_text("control/lr_scale").first.wait_for(timeout=60_000)
    watched.until(lambda: page.evaluate(zoom) == chosen)  # also where a chart that joined had all charts redrawn

    page.locator("#find").fill("control/lr_scale")
    watched.until(lambda: page.locator(".chart .js-plotly-plot").count() == 1)
    scale = "Math.min(...(document.querySelector('.js-plotly-plot')?.data?.[0]?.y ?? []))"  # it may be undone by now
    watched.until(lambda: page.evaluate(scale) < 1)
    assert '"entry":"applied"' in (run / "actions.jsonl").read_text()
    page.get_by_role("link", name="Completions").click()
    page.locator(".sample").first.wait_for()
    assert watched.errors == []
    assert {url for url in watched.requests if not url.startswith((watched.address, "data:", "blob:"))} == set()
