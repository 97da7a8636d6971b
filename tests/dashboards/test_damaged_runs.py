"""A run with a file nested too deep is told of in words, and every other run is shown as ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from page_client import CALM, RUN, Client, addresses, page_now

from stabilizer.core.records import Cause, Finding, encode
from tests.deep import DEPTHS, nested
from tests.runs.test_damaged_runs import damage

SMALL = ("run.json", "status.json", "summary.json")
LINES = ("events.jsonl", "findings.jsonl", "actions.jsonl", "metrics/r0-a0.jsonl", "samples/000010-r0.jsonl")


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("name", SMALL)
def test_the_list_shows_both_runs_and_all_pages_open(client: Client, runs_folder: Path, name: str, levels: int) -> None:
    damage(runs_folder / CALM / name, levels)
    listed = {line.id: line for line in client.app.runs.lines()}
    assert listed.keys() == {RUN, CALM} and listed[RUN].step == 400
    assert (listed[CALM].state == "unreadable") == (name == "run.json")
    for path, query in (*addresses(CALM, RUN), *addresses(RUN, CALM)):
        client.open(path, query)
    assert RUN in json.dumps(client.show(f"?run={RUN}")["tree"])
    told = json.dumps(client.show(f"?run={CALM}"), default=str)
    assert ("nested more than 100 levels" in told) == (name == "run.json")


@pytest.mark.parametrize("name", LINES)
def test_a_nested_line_leaves_every_page_as_it_was(client: Client, runs_folder: Path, name: str) -> None:
    place = runs_folder / CALM / name
    place.parent.mkdir(exist_ok=True)
    with open(place, "a") as file:
        file.write(f'{{"step": 3, "m": {{"x": {nested(990)}}}}}\n')
    for path, query in addresses(CALM, RUN):
        client.open(path, query)
    notes = page_now(client.app.runs.get(CALM)).notes
    assert notes == (() if "samples" in name else ("1 unreadable line skipped",))


@pytest.mark.ui
def test_a_browser_shows_the_list_with_the_damaged_run_in_it(served: tuple[str, Path], tab: Any) -> None:
    address, folder = served
    damage(folder / CALM / "run.json", 990)
    tab.goto(address)
    tab.wait_for_selector(".runs-table tbody tr")
    table = tab.inner_text(".runs-table")
    assert RUN in table and CALM in table and "unreadable" in table


def test_findings_that_can_not_be_opened_leave_the_incidents_of_other_runs(client: Client, runs_folder: Path) -> None:
    findings = runs_folder / CALM / "findings.jsonl"
    findings.unlink(missing_ok=True)
    findings.symlink_to(findings)
    seen = {"incident-seen.data": {"run": RUN, "n": "2"}}
    assert "in 2 runs" in str(client.call("incident-similar", "incident-seen.data", seen))


def test_a_cause_of_the_wrong_type_costs_its_line(client: Client, runs_folder: Path) -> None:
    causes = (Cause("a", 1, ""), Cause("b", 0, ""))
    line = encode(Finding("optim/grad-spike", "warn", "x", 3, 4, 5, incident=1, causes=causes))
    (runs_folder / CALM / "findings.jsonl").write_bytes(line.replace(b'"confidence":1', b'"confidence":{}') + line)
    page = page_now(client.app.runs.get(CALM))
    assert [card.id for card in page.incidents] == ["optim/grad-spike"] and page.notes[0].startswith("1 unreadable")
    client.open("/incident", f"?run={CALM}")
