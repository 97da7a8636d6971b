"""The list of detectors and the page of each: our own texts, as components and never as markup."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from page_client import components
from test_incident_page import words

from dashboards.components.rich_text import inline, prose
from stabilizer.detectors import DETECTORS
from stabilizer.detectors.manual import SECTIONS, Paragraph, all_detectors, sections

HOSTILE = '<img src=x onerror="window.pwned=1">'


def test_every_detector_is_listed_with_what_it_was_worth(client) -> None:
    page = client.open("/detectors")
    text = words(page)
    assert all(detector.id in text for detector in DETECTORS)
    assert "recall" in text and "stabilizer bench detect" in text
    ways = {c["props"]["href"] for c in components(page) if "href" in c["props"]}
    assert f"/detector?id={quote('policy/mismatch', safe='')}" in ways


@pytest.mark.parametrize(("search", "found"), [("mismatch", "policy/mismatch"), ("KL reference", "policy/kl-runaway")])
def test_a_search_narrows_the_list(client, search: str, found: str) -> None:
    answer = client.call("detectors-found", "detectors-search.value", {"detectors-search.value": search})
    text = words(answer["detectors-found"]["children"])
    assert found in text and "optim/lr-too-low" not in text


@pytest.mark.parametrize("search", ["no such thing at all", HOSTILE, "x" * 100_000])
def test_a_search_without_a_hit_says_so(client, search: str) -> None:
    answer = client.call("detectors-found", "detectors-search.value", {"detectors-search.value": search})
    assert "No such detector" in words(answer["detectors-found"]["children"])
    assert client.open("/detectors", f"?q={quote(search)}")


@pytest.mark.parametrize("id", all_detectors())
def test_the_page_of_every_detector_has_its_sections(client, id: str) -> None:
    page = client.open("/detector", f"?id={quote(id, safe='')}")
    text = words(page)
    assert id in text and all(section.title in text for section in sections(all_detectors()[id]))
    assert not [c for c in components(page) if c["type"] == "Markdown"]
    assert "`" not in text


def test_every_manual_has_all_sections_with_something_in_them() -> None:
    for detector in DETECTORS:
        found = sections(detector)
        assert tuple(section.title for section in found) == SECTIONS, detector.id
        assert all(section.paragraphs for section in found), detector.id


def test_a_page_tells_recall_false_alarms_delay_and_fixes(client) -> None:
    text = words(client.open("/detector", "?id=policy/mismatch"))
    for said in (
        "recall",
        "injected faults",
        "false alarms",
        "per 1,000 healthy steps",
        "delay, mismatch",
        "lower-lr",
    ):
        assert said in text


@pytest.mark.parametrize("id", ["", "nothing", "../../etc/passwd", HOSTILE, "x" * 10_000, "policy/mismatch/.."])
def test_an_id_nobody_knows_is_an_empty_state(client, id: str) -> None:
    page = client.open("/detector", f"?id={quote(id)}")
    assert "There is no such detector" in words(page) and "/detectors" in json.dumps(page)


def test_words_in_backticks_are_code_and_detectors_are_ways() -> None:
    parts = inline(f"see `policy/mismatch`, `lower-lr` and {HOSTILE}")
    assert [type(part).__name__ for part in parts] == ["str", "Link", "str", "Code", "str"]
    assert parts[-1] == f" and {HOSTILE}"


def test_points_become_one_list() -> None:
    made = prose([Paragraph("a", False), Paragraph("b", True), Paragraph("c", True), Paragraph("d", False)])
    assert [type(part).__name__ for part in made] == ["P", "Ul", "P"]
    assert len(made[1].children) == 2
