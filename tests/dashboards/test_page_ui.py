"""The runs page in a real browser. Waiting is on what a person would see, with a deadline; nothing sleeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_client import CALM, LARGE, RUN
from synthetic_run import SPIKE, values
from watched import Watched

from dashboards.pages.run import LIVE_MS
from stabilizer.core.records import Action
from stabilizer.runs.writer import RunWriter

pytestmark = pytest.mark.ui

POLLS = """() => {
  const ask = window.fetch;
  window.polls = 0;
  window.fetch = function (to, how) {
    const seen = document.querySelector('.js-plotly-plot').data[0].x.at(-1) > 400;
    if (!seen && String(how && how.body).includes('"changedPropIds":["tick.n_intervals"]')) window.polls += 1;
    return ask.apply(this, arguments);
  };
}"""
"""Counts polls until step 401 is drawn."""
HOSTILE = '<img src=x onerror="window.pwned=1">'


def test_loads_all_charts_without_errors_and_asks_no_other_host(looking: Watched) -> None:
    watched = looking.open()
    watched.until(lambda: watched.page.locator(".chart .js-plotly-plot").count() >= 14)
    assert watched.page.locator(".incident").count() == 3
    assert watched.page.locator(".timeline li").count() == 4
    assert watched.page.locator("main figure").first.bounding_box()["y"] <= 250
    assert watched.errors == []
    assert {url for url in watched.requests if not url.startswith((watched.address, "data:", "blob:"))} == set()


def test_a_step_appears_within_two_seconds_and_zoom_is_kept(watched: Watched, served: tuple[str, Path]) -> None:
    watched.open(f"?run={RUN}")
    watched.until(lambda: watched.page.locator(".chart .js-plotly-plot").count() >= 14)
    chosen = watched.zoom(watched.page.locator(".graph").first)
    zoom = "document.querySelector('.js-plotly-plot').layout.xaxis.range.map(Math.round)"

    watched.page.evaluate(POLLS)
    writer = RunWriter.reopen(served[1] / RUN)
    writer.metrics(401, values(401))
    watched.page.evaluate("window.polls = 0")
    watched.until(lambda: watched.last_step() == 401)
    assert watched.page.evaluate("window.polls") <= 2 and LIVE_MS <= 1000  # two seconds, however busy the machine is
    writer.finding(replace(SPIKE, state="open", incident=9, onset_step=395, attempt=1))
    watched.until(lambda: watched.page.locator(".incident").count() == 4)
    assert watched.page.evaluate(zoom) == chosen
    assert watched.errors == []


def test_what_is_said_of_a_point_stays_while_steps_come(watched: Watched, served: tuple[str, Path]) -> None:
    watched.open(f"?run={RUN}")
    watched.until(lambda: watched.page.locator(".chart .js-plotly-plot").count() >= 14)
    several = watched.page.locator(".graph").nth(1)  # of several lines: it answers wherever the mouse is
    box = several.locator(".nsewdrag").bounding_box()
    watched.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    said = several.locator(".hovertext")
    said.first.wait_for()
    writer = RunWriter.reopen(served[1] / RUN)
    for step in (401, 402, 403):
        writer.metrics(step, values(step))
        watched.until(lambda step=step: watched.last_step() == step)
        said.first.wait_for()
    assert watched.errors == []


def test_every_point_is_drawn_once(watched: Watched, served: tuple[str, Path]) -> None:
    watched.open(f"?run={RUN}")
    writer = RunWriter.reopen(served[1] / RUN)
    for step in range(401, 406):
        writer.metrics(step, values(step))
        watched.until(lambda step=step: watched.last_step() == step)
    steps = watched.page.evaluate("document.querySelector('.js-plotly-plot').data[0].x")
    assert steps == list(range(1, 406))


def test_dark_follows_the_system_and_the_toggle_and_is_printed_light(looking: Watched) -> None:
    looking.page.emulate_media(color_scheme="dark")
    watched = looking.open()
    watched.page.emulate_media(media="print")
    look = "([of, what]) => getComputedStyle(document.querySelector(of))[what]"
    assert watched.page.evaluate(look, [".card", "backgroundColor"]) == "rgb(255, 255, 255)"
    assert watched.page.evaluate(look, ["body", "color"]) == "rgb(31, 39, 51)"
    assert "invert" in watched.page.evaluate(look, [".js-plotly-plot", "filter"])
    watched.page.emulate_media(media="screen")
    assert watched.page.evaluate(look, [".js-plotly-plot", "filter"]) == "none"
    font = "document.querySelector('.js-plotly-plot')?._fullLayout.font.color"
    dark = watched.page.evaluate(font)
    watched.page.get_by_label("switch between light and dark").click()
    watched.until(lambda: watched.page.evaluate(font) not in (None, dark))
    assert watched.page.locator("html").get_attribute("data-mantine-color-scheme") == "light"
    assert watched.errors == []


def test_choosing_a_run_changes_page_and_address(looking: Watched) -> None:
    looking.open(f"?run={RUN}")
    looking.page.get_by_role("textbox", name="run").click()
    looking.page.get_by_role("option").filter(has_text=CALM).click()
    looking.page.locator("h1", has_text=CALM).wait_for()
    assert f"run={CALM}" in looking.page.url
    looking.page.go_back()
    looking.page.locator("h1", has_text=RUN).wait_for()


def test_hostile_text_is_shown_as_text(watched: Watched, served: tuple[str, Path]) -> None:
    writer = RunWriter.create(served[1] / HOSTILE, config={}, task=HOSTILE, argv=[])
    for step in range(1, 20):
        writer.metrics(step, {HOSTILE: float(step), f"{HOSTILE}2": 1.0})
    writer.finding(
        replace(SPIKE, summary=HOSTILE, state="open", onset_step=5, evidence={"metric": HOSTILE, HOSTILE: HOSTILE})
    )
    writer.action(Action("a", "applied", HOSTILE, 8, text=HOSTILE, change={HOSTILE: (0.0, 1.0)}))
    writer.event(9, "rollback", HOSTILE)
    writer.status("running", 19, force=True)
    watched.open()
    watched.page.locator("h1", has_text="<img src=x").wait_for()
    plot = watched.page.locator(".graph .nsewdrag").first.bounding_box()
    for share in (0.05, 0.2, 0.4, 0.45, 0.9):  # hover texts, too
        watched.page.mouse.move(plot["x"] + plot["width"] * share, plot["y"] + 4)
    watched.page.get_by_label("what").first.hover()
    watched.page.get_by_role("textbox", name="run").click()
    assert watched.page.evaluate("window.pwned") is None
    assert watched.page.locator('img:not([src^="data:image/svg+xml,"])').count() == 0
    assert watched.errors == []


def test_a_chart_out_of_sight_catches_up_when_it_comes_into_view(watched: Watched, served: tuple[str, Path]) -> None:
    watched.open(f"?run={RUN}")
    drawn = "document.querySelectorAll('.graph .js-plotly-plot').length == document.querySelectorAll('.graph').length"
    watched.until(lambda: watched.page.locator(".graph").count() >= 14 and watched.page.evaluate(drawn))
    writer = RunWriter.reopen(served[1] / RUN)
    writer.metrics(401, values(401))
    watched.until(lambda: watched.last_step() == 401)
    lowest = "[...document.querySelectorAll('.js-plotly-plot')].pop().data[0].x.slice(-1)[0]"
    assert watched.page.evaluate(lowest) < 401, "only what can be seen is drawn at every step"
    watched.page.locator(".graph").last.scroll_into_view_if_needed()
    watched.until(lambda: watched.page.evaluate(lowest) == 401)


def charts_of(watched: Watched) -> list[str]:
    return watched.page.evaluate("[...document.querySelectorAll('.graph')].map(graph => JSON.parse(graph.id).chart)")


def test_how_it_is_looked_at_is_in_the_address_and_the_same_after_a_reload_and_in_other_colours(
    watched: Watched, served: tuple[str, Path]
) -> None:
    RunWriter.reopen(served[1] / RUN).metrics(401, {"policy/dual_clip_frac": 0.1})
    watched.open(f"?run={RUN}")
    page = watched.page
    page.locator("[data-family=policy]").click()
    watched.until(lambda: "policy/dual_clip_frac" in charts_of(watched))
    page.locator("[data-pin=entropy]").click()
    watched.until(lambda: charts_of(watched)[:1] == ["entropy"])
    page.locator("#scale").get_by_text("log").click()
    page.locator("#axis").get_by_text("tokens").click()
    kind = "(g => [g?.layout?.xaxis?.title?.text, g?.layout?.yaxis?.type])(document.querySelector('.js-plotly-plot'))"
    watched.until(lambda: page.evaluate(kind) == ["tokens", "log"])
    for word in ("open=policy", "pin=entropy", "y=log", "x=tokens"):
        assert word in page.url
    before = page.url
    for again in (page.reload, page.get_by_label("switch between light and dark").click):
        again()
        watched.until(lambda: page.locator(".chart .main-svg").count() >= 4)
        watched.until(lambda: charts_of(watched)[:1] == ["entropy"] and "policy/dual_clip_frac" in charts_of(watched))
        watched.until(lambda: page.evaluate(kind) == ["tokens", "log"])
        assert page.url == before
    assert watched.errors == []


def test_metrics_are_searched_from_the_keyboard_and_a_bad_search_says_why(looking: Watched) -> None:
    looking.open(f"?run={RUN}")
    looking.page.keyboard.press("/")
    looking.page.keyboard.type("grad|policy/kl")
    looking.until(lambda: set(charts_of(looking)) == {"grad-norm", "kl"})
    looking.page.keyboard.insert_text("x" * 200)
    looking.page.locator("#find-problem", has_text="at most 200 characters").wait_for()
    looking.until(lambda: len(charts_of(looking)) >= 4)
    assert looking.errors == []


SENT = """
window.sent = [];
window.Notification = class {
  constructor(title, more) { window.sent.push(title + ": " + more.body); }
  static get permission() { return "granted"; }
  static requestPermission() {}
};
"""
"""A browser that allows notifications and keeps them."""


def test_the_legend_hides_lines_marks_can_be_switched_off_and_a_new_incident_notifies(
    browser: Any, served: tuple[str, Path]
) -> None:
    page = browser.new_page(viewport=LARGE)  # a tab of its own: what is added to a tab stays
    page.add_init_script(SENT)
    watched = Watched(page, served[0])
    writer = RunWriter.reopen(served[1] / RUN)
    writer.status("running", 400, force=True)
    watched.open(f"?run={RUN}&smooth=5")
    card = page.locator(".chart:has([data-line])").first
    plot = card.locator(".js-plotly-plot")
    plot.wait_for()
    hidden = "plot => plot.data.map((line, place) => line.visible === false ? place : -1).filter(place => place >= 0)"
    count = card.locator("[data-line]").count()
    card.locator("[data-line]").nth(1).click()
    watched.until(lambda: plot.evaluate(hidden) == [1, 1 + count])  # the mean, and the values behind it
    page.locator("[data-notify]", has_text="notify me").click()
    page.locator("[data-notify]", has_text="notifies you").wait_for()
    writer.finding(replace(SPIKE, state="open", incident=9, onset_step=395, attempt=1))
    writer.metrics(401, values(401))
    watched.until(lambda: page.evaluate("window.sent.length") == 1)
    assert SPIKE.summary[:40] in page.evaluate("window.sent[0]")
    watched.until(lambda: plot.evaluate(hidden) == [1, 1 + count])
    page.locator("label", has_text="Marks").click()
    watched.until(lambda: plot.evaluate("plot => (plot.layout.shapes || []).length") == 0)
    assert "marks=0" in page.url and watched.errors == []
    page.close()


def test_incidents_and_help_are_reached_from_the_keyboard(looking: Watched) -> None:
    looking.open(f"?run={RUN}")
    focused = "document.activeElement.textContent"
    links = looking.page.locator(".incident-link").all_inner_texts()
    for key, wanted in (("j", links[0]), ("j", links[1]), ("k", links[0])):
        looking.page.keyboard.press(key)
        assert looking.page.evaluate(focused) == wanted
    looking.page.keyboard.press("?")
    looking.page.locator("#keys").wait_for()
    looking.page.keyboard.press("Escape")
    looking.page.locator("#keys").wait_for(state="hidden")
    assert looking.errors == []


def test_a_chart_is_saved_as_picture_drawing_and_numbers_without_leaving_the_host(looking: Watched) -> None:
    looking.open(f"?run={RUN}")
    heads = {"png": b"\x89PNG", "svg": b"<svg", "csv": b"step,"}
    for kind, head in heads.items():
        looking.page.locator(".save summary").first.click()
        with looking.page.expect_download() as saved:
            looking.page.locator(f"[data-save={kind}]").first.click()
        assert saved.value.suggested_filename == f"{RUN}-Reward.{kind}"
        assert Path(saved.value.path()).read_bytes().startswith(head)
    assert looking.errors == []
    assert {url for url in looking.requests if not url.startswith((looking.address, "data:", "blob:"))} == set()


def test_an_answer_that_was_overtaken_by_a_search_gives_nothing_to_charts_that_went(watched: Watched, served) -> None:
    page, plot = watched.open(f"?run={RUN}").page, "document.querySelector('.js-plotly-plot')"
    writer = RunWriter.reopen(served[1] / RUN)
    last = watched.last_step()
    writer.metrics(last + 1, values(last + 1))
    watched.until(lambda: watched.last_step() == last + 1)  # all charts are there, and grow
    held: list[Any] = []

    def slow(route: Any) -> None:
        tick = '"changedPropIds":["tick.n_intervals"]' in (route.request.post_data or "")
        held.append(route) if tick and not held else route.continue_()

    page.route("**/_dash-update-component*", slow)
    watched.until(lambda: bool(held))
    writer.metrics(last + 2, values(last + 2))
    page.evaluate("window.dash_clientside.set_props('tick', {disabled: false})")  # as after a long wait
    page.locator("#find").fill("grad_norm")
    watched.until(lambda: page.locator(".chart .js-plotly-plot").count() == 1)
    with page.expect_response(lambda answer: answer.request == held[0].request) as late:
        held[0].continue_()
    assert '"Extend"' in late.value.text()
    for step in (last + 2, last + 3):
        watched.until(lambda step=step: page.evaluate(f"{plot}?.data[0].x.at(-1)") == step)  # it draws all once more
        writer.metrics(step + 1, values(step + 1))
    assert page.locator(".chart .js-plotly-plot").count() == 1
    shown = page.evaluate(f"{plot}.data[0].x")
    assert len(shown) == len(set(shown)) and watched.errors == []


def test_zooming_one_chart_zooms_all_when_they_are_linked(looking: Watched) -> None:
    looking.open(f"?run={RUN}&link=1")
    plots = "[...document.querySelectorAll('.chart .js-plotly-plot')]"
    ranges = plots + ".map(plot => (plot.layout.xaxis.range || []).map(Math.round))"
    looking.until(lambda: looking.page.locator(".chart .js-plotly-plot").count() >= 14)
    looking.until(lambda: looking.page.evaluate(plots + ".every(plot => plot.stabilizer)"))
    box = looking.page.locator(".graph .nsewdrag").first.bounding_box()
    mouse, y = looking.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + box["width"] * 0.3, y)
    mouse.down()
    mouse.move(box["x"] + box["width"] * 0.6, y, steps=8)
    mouse.up()
    looking.until(lambda: "zoom=" in looking.page.url)
    looking.until(lambda: len({tuple(range) for range in looking.page.evaluate(ranges)}) == 1)
    chosen = looking.page.evaluate(ranges)[0]
    looking.page.reload()
    looking.until(lambda: looking.page.locator(".chart .js-plotly-plot").count() >= 14)
    looking.until(lambda: {tuple(range) for range in looking.page.evaluate(ranges)} == {tuple(chosen)})
    assert looking.errors == []
