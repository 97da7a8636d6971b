"""Answering a proposal in a real browser: the request appears, the page says so, and what came of it follows."""

from __future__ import annotations

from typing import Any

import pytest
from asking_run import ASKING, asking, entry, requests, take
from page_client import RUN
from synthetic_run import values
from watched import Watched

pytestmark = pytest.mark.ui


def test_a_proposal_is_approved_and_the_page_follows_what_the_run_does(watched: Watched, served) -> None:
    run = served[1] / ASKING
    writer = asking(run)
    page = watched.page
    page.goto(f"{watched.address}incident?run={ASKING}&n=2")
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("approve requested by dashboard; the run applies it at its next step").wait_for()
    assert [(row["kind"], row["action"]) for row in requests(run)] == [("approve", "a1")]

    take(run)
    entry(writer, "approved", 301, "snapshot at step 301")
    entry(writer, "applied", 301, "set control/lr_scale 1 → 0.5")
    page.get_by_role("button", name="Revert").wait_for()
    assert page.get_by_text("set control/lr_scale 1 → 0.5").is_visible()
    assert watched.errors == []


def test_the_charts_of_an_open_incident_follow_the_run_and_keep_what_is_looked_at(watched: Watched, served) -> None:
    run = served[1] / ASKING
    writer = asking(run)
    page = watched.page
    page.goto(f"{watched.address}incident?run={ASKING}&n=2")
    page.locator("#incident-charts .main-svg").first.wait_for()
    plot = "document.querySelector('#incident-charts .js-plotly-plot')"
    chosen = watched.zoom(page.locator("#incident-charts .graph").first)
    for step in (301, 302):
        writer.metrics(step, values(step))
        watched.until(lambda step=step: page.evaluate(f"{plot}.data[0].x.at(-1)") == step)
    assert page.evaluate(f"{plot}.layout.xaxis.range.map(Math.round)") == chosen
    shown = page.evaluate(f"{plot}.data[0].x")
    assert len(shown) == len(set(shown)), "every point is drawn once"
    assert page.get_by_text("–302").is_visible()
    assert watched.errors == []


def test_a_hard_change_is_asked_for_only_after_its_cost_was_read(watched: Watched, served) -> None:
    run = served[1] / ASKING
    asking(run, safety="hard", back=250)
    page = watched.page
    page.goto(f"{watched.address}journal?run={ASKING}")
    sure = page.get_by_role("button", name="Yes, approve")
    page.get_by_text("Approve …").wait_for()
    assert not sure.is_visible()
    page.get_by_text("Approve …").press("Enter")
    assert page.get_by_text("The run rolls back to the state after step 250").is_visible()
    assert page.get_by_text("50 steps would be discarded: the run is at step 300.").is_visible()
    sure.press("Enter")
    page.get_by_text("approve requested by dashboard").wait_for()
    assert len(requests(run)) == 1 and watched.errors == []


def test_a_pasted_configuration_is_judged_and_none_of_the_pages_asks_another_host(watched: Watched, served) -> None:
    page = watched.page
    page.goto(f"{watched.address}preflight")
    page.get_by_label("Configuration, or the script").fill("num_generations: 8\nscale_rewards: true\nlogging_step: 3\n")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("keys/unknown").first.wait_for()
    page.get_by_role("link", name="Detectors").click()
    page.get_by_label("search detectors").fill("mismatch")
    page.get_by_role("link", name="policy/mismatch").click()
    page.get_by_role("heading", name="Look-alikes").wait_for()
    assert watched.errors == []
    assert {url for url in watched.requests if not url.startswith((watched.address, "data:", "blob:"))} == set()


@pytest.mark.parametrize(("size", "most"), [((1440, 900), 250), ((390, 844), 844)])
def test_an_incident_opens_with_its_picture(watched: Watched, size: Any, most: int) -> None:
    page = watched.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(f"{watched.address}incident?run={RUN}&n=2")
    page.locator("#incident-order .main-svg").first.wait_for()
    assert page.locator("figure:has(#incident-order)").bounding_box()["y"] <= most
    watched.until(lambda: page.title() == f"resolved · Incident 2 · policy/kl-runaway · {RUN} · stabilizer")


def test_the_tab_names_what_is_critical_before_the_state_of_the_run(watched: Watched, served) -> None:
    asking(served[1] / ASKING)
    watched.page.goto(f"{watched.address}run?run={ASKING}")
    watched.until(lambda: watched.page.title() == f"■ critical · {ASKING} · stabilizer")
