"""The page of all runs, callback by callback: what an address shows, what a poll sends, what a click changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from page_client import CALM, RUN, Client, components
from synthetic_run import HOSTILE_NAME, healthy, many, values

from bench.dashboard import listing
from dashboards.app import build
from dashboards.components import app_shell
from dashboards.pages.runs import MAX_PICKED
from stabilizer.runs.writer import RunWriter


class RunList:
    """The page as a browser holds it."""

    def __init__(self, client: Client, search: str = ""):
        self.client, self.clicks = client, 0
        self.tree = client.open("/", search)
        self.parts = {
            c["props"]["id"]: c["props"] for c in components(self.tree) if isinstance(c["props"].get("id"), str)
        }
        self.shown = [
            c["props"]["href"] for c in components(self.tree) if c["type"] == "Link" and "/run?" in c["props"]["href"]
        ]
        self.rows = self.parts["runs-rows"]["children"]

    def ask(self, trigger: str = "runs-tick.n_intervals", **changed: Any) -> Any:
        part = self.parts
        given = {
            "runs-tick.n_intervals": 1,
            "runs-find.value": part["runs-find"].get("value", ""),
            "runs-click.data": None,
            "runs-view.data": part["runs-view"]["data"],
            "runs-seen.data": part["runs-seen"]["data"],
            "runs-picked.data": part["runs-picked"]["data"],
            "scheme.data": "light",
            **changed,
        }
        self.answer = self.client.call("runs-rows", trigger, given, range(len(self.rows)))
        for id, props in (self.answer or {}).items():
            part.setdefault(id, {}).update(props)
        if self.answer and "runs-rows" in self.answer:
            self.rows = self.answer["runs-rows"]["children"]
        return self.answer

    def click(self, what: str, value: str = "") -> Any:
        self.clicks += 1
        return self.ask("runs-click.data", **{"runs-click.data": {"what": what, "value": value, "n": self.clicks}})

    def names(self) -> list[str]:
        return [text["props"]["children"] for row in self.rows for text in components(row) if text["type"] == "Link"]


@pytest.fixture
def page(client: Client) -> RunList:
    return RunList(client)


def test_the_list_opens_at_the_root_and_leads_to_each_run(page: RunList) -> None:
    assert sorted(page.shown) == [f"/run?run={CALM}", f"/run?run={RUN}"] and page.names() == [RUN, CALM]
    text = json.dumps(page.tree, ensure_ascii=False)
    assert "✓ finished" in text and "● running" in text and "data:image/svg+xml," in text


def test_an_address_shows_the_same_view(client: Client) -> None:
    assert RunList(client, "?q=sorting").names() == [RUN]
    assert RunList(client, "?q=state%3Dfinished").names() == [CALM]
    assert RunList(client, "?sort=name").names() == [CALM, RUN]


def test_what_is_typed_comes_into_the_address(page: RunList) -> None:
    page.ask("runs-find.value", **{"runs-find.value": "beta=0.001"})
    assert page.names() == [RUN] and page.parts["runs-view"]["data"] == {"q": "beta=0.001"}
    page.ask("runs-find.value", **{"runs-find.value": "nothing like it"})
    assert page.parts["runs-scroll"]["hidden"] is True
    assert "show all runs" in json.dumps(page.parts["runs-none"])


def test_a_poll_without_news_answers_nothing(page: RunList) -> None:
    assert page.ask() is None


def test_a_step_sends_its_row_alone(page: RunList, runs_folder: Path) -> None:
    writer = RunWriter.reopen(runs_folder / RUN)
    writer.metrics(401, values(401))
    writer.status("running", 401, force=True)
    answer = page.ask()
    assert "runs-rows" not in answer
    assert [id for id in answer if "runs-row" in id] == ['{"runs-row":0}']
    assert "401 / 500 steps" in json.dumps(answer) and CALM not in json.dumps(answer)
    assert page.ask() is None


def test_a_new_run_brings_the_list_anew(page: RunList, runs_folder: Path) -> None:
    healthy(runs_folder / "newest", 2).close()
    page.ask()
    assert page.names() == ["newest", RUN, CALM]


def test_the_head_counts_runs_that_need_a_person(tmp_path: Path) -> None:
    many(tmp_path, 2, 2, 12)
    page = RunList(Client(build([tmp_path])))
    counted = [part["props"] for part in components(page.parts["runs-standing"]) if part["type"] == "Link"]
    assert [(link["href"], link["children"]["props"]["children"]) for link in counted[:-3:-1]] == [
        ("/?q=verdict%3Dcritical", "■ critical: 1"),
        ("/?q=verdict%3Dwarn", "▲ warning: 1"),
    ]


def test_a_click_on_a_head_sorts_and_the_next_turns_it_round(page: RunList) -> None:
    page.click("sort", "name")
    assert page.names() == [CALM, RUN] and page.parts["runs-view"]["data"] == {"sort": "name"}
    page.click("sort", "name")
    assert page.names() == [RUN, CALM]
    assert '"aria-sort": "descending"' in json.dumps(page.parts["runs-heads"])


def test_chosen_runs_lead_to_their_comparison(page: RunList) -> None:
    page.click("pick", RUN)
    assert "select another run" in json.dumps(page.parts["runs-picks"])
    page.click("pick", CALM)
    assert f"/compare?runs={RUN}%2C{CALM}" in json.dumps(page.parts["runs-picks"])
    page.click("pick", RUN)
    assert page.parts["runs-picked"]["data"] == [CALM]
    page.click("unpick")
    assert page.parts["runs-picked"]["data"] == []


@pytest.mark.parametrize(
    "made_up",
    [
        {"runs-view.data": 5, "runs-seen.data": "x", "runs-picked.data": {}, "runs-find.value": 3},
        {"runs-view.data": {"sort": [], "open": 7, "show": "x"}, "runs-seen.data": {"rows": 3, "keys": None}},
        {"runs-picked.data": [1, None, "x" * 10_000] * 50, "runs-find.value": ["x"]},
        {"runs-click.data": {"what": ["sort"], "value": {"a": 1}}, "runs-find.value": "\x00"},
    ],
)
def test_what_a_browser_makes_up_is_not_believed(page: RunList, made_up: dict[str, Any]) -> None:
    page.ask("runs-click.data", **made_up)
    assert len(page.parts["runs-picked"]["data"]) <= MAX_PICKED


def test_text_of_a_run_is_only_text(tmp_path: Path) -> None:
    many(tmp_path, 1, 2, 4)
    page = RunList(Client(build([tmp_path])))
    assert HOSTILE_NAME in page.names()
    for part in components(page.tree):
        assert "dangerously_allow_html" not in part["props"] and part["type"] != "Markdown"
        source = part["props"].get("src")
        assert source is None or (source.startswith("data:image/svg+xml,%3Csvg") and "pwned" not in source)


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    page = RunList(Client(build([tmp_path / "nothing"])))
    assert "stabilizer demo" in json.dumps(page.tree) and page.parts["runs-scroll"]["hidden"] is True


def test_a_thousand_runs_come_a_page_at_a_time(tmp_path: Path) -> None:
    listing.make(tmp_path, 1000, 3)
    page = RunList(Client(build([tmp_path])))
    assert len(page.rows) == 50 and page.client.size < 500_000
    page.click("more")
    assert (
        len(page.rows) == 100 and "850" not in page.parts["runs-more"] and "900" in json.dumps(page.parts["runs-more"])
    )


def test_the_picker_offers_few_and_finds_the_others(tmp_path: Path) -> None:
    listing.make(tmp_path, 300, 3)
    client = Client(build([tmp_path]))
    lines = client.app.runs.lines()
    first = app_shell.options(lines)
    assert len(first) == app_shell.OFFERED
    hidden = lines[-1].id
    compare = client.open("/compare", f"?runs={hidden}")
    chosen = next(one for one in components(compare) if one["props"].get("id") == "compare-runs")
    assert len(chosen["props"]["data"]) == 300  # the browser searches all of them
    assert hidden not in {item["value"] for item in first}
    assert [item["value"] for item in app_shell.options(lines, typed=hidden)] == [hidden]
    assert app_shell.options(lines, chosen=hidden)[-1]["value"] == hidden
    label = app_shell.options(lines, chosen=hidden)[-1]["label"]
    assert (
        len(app_shell.options(lines, hidden, label)) == app_shell.OFFERED + 1
    )  # the picker shows the chosen one's label
    found = client.call("picker", "picker.searchValue", {"picker.searchValue": hidden, "picker.data": first})
    assert [item["value"] for item in found["picker"]["data"]] == [hidden]
