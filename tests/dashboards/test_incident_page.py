"""The incident's page and the journal's: what they say, and that no run, however damaged, takes them down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from asking_run import ASKING, asking, entry
from page_client import CALM, RUN, Client, components
from synthetic_run import EXPLOSION, RUNAWAY, healthy, record, values

from dashboards.data.incident_details import incident_details
from dashboards.pages.incident import GROWTH_TICKS
from stabilizer.core.records import Action, Cause, Event, Finding, RemedyAdvice, encode
from stabilizer.runs.reader import RunReader
from stabilizer.runs.writer import RunWriter

HOSTILE = '<img src=x onerror="window.pwned=1">'


def words(tree: Any) -> str:
    """All text of a page, in reading order."""
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, str):
            found.append(node)
        elif isinstance(node, list):
            for child in node:
                walk(child)
        elif isinstance(node, dict) and "props" in node:
            walk(node["props"].get("children"))

    walk(tree)
    return " ".join(found)


def ids(tree: Any) -> dict[str, dict[str, Any]]:
    return {c["props"]["id"]: c["props"] for c in components(tree) if isinstance(c["props"].get("id"), str)}


def over(folder: Path) -> Client:
    from dashboards.app import build

    return Client(build([folder]))


# --- the list ---------------------------------------------------------------------------------------------------------


def test_all_incidents_are_listed_those_that_stand_first(client) -> None:
    page = client.open("/incident", f"?run={RUN}")
    ways = [c["props"]["href"] for c in reversed(components(page)) if "href" in c["props"]]
    assert ways == [f"/incident?run={RUN}&n={n}" for n in (3, 2, 1)]
    assert "1 open, 2 resolved" in words(page)


def test_a_calm_run_says_so_and_leads_to_what_is_looked_for(client) -> None:
    page = client.open("/incident", f"?run={CALM}")
    assert "Nothing found" in words(page) and "/detectors" in json.dumps(page)


@pytest.mark.parametrize("n", ["99", "-1", "x" * 5000, "../1", HOSTILE, "1.0", "٢", ""])
def test_an_incident_that_is_not_there_is_an_empty_state(client, n: str) -> None:
    page = client.open("/incident", f"?run={RUN}&n={quote(n)}")
    assert ("There is no such incident" in words(page)) == bool(n)


@pytest.mark.parametrize("path", ["/incident", "/journal"])
@pytest.mark.parametrize("run", ["../../etc", "nothing", HOSTILE])
def test_a_run_that_is_not_there_is_an_empty_state(client, path: str, run: str) -> None:
    assert "There is no such run" in words(client.open(path, f"?run={quote(run)}&n=1"))


@pytest.mark.parametrize("path", ["/incident", "/journal"])
def test_an_empty_folder_says_what_to_do(tmp_path: Path, path: str) -> None:
    assert "stabilizer demo" in words(over(tmp_path / "none").open(path))


# --- one incident -----------------------------------------------------------------------------------------------------


def test_an_incident_tells_onset_order_cause_advice_and_what_was_tried(client) -> None:
    page = client.open("/incident", f"?run={RUN}&n=2")
    text = words(page)
    assert "step 262 (259–272)" in text
    assert "no-kl-anchor" in text and "confidence 72%" in text and "lr-too-high" in text
    assert "policy/kl_ref left its band 9 steps before the gradient did" in text
    assert "beta=0.01 in GRPOConfig" in text and "control/beta 0.001 → 0.01" in text
    assert "rewind-and-anchor" in text and "KL 0.11 (was 1.31)" in text
    assert "rolled back: the run continued from step 250" in " ".join(text.split())


def test_the_order_is_drawn_and_said_in_words(client) -> None:
    page = client.open("/incident", f"?run={RUN}&n=2")
    figure = ids(page)["incident-order"]["figure"]
    rows = next(trace for trace in figure["data"] if trace["mode"] == "markers+text")
    assert rows["y"][0] == "optim/grad_norm" and rows["y"][-1] == "accuracy/train"
    assert rows["x"] == sorted(rows["x"])
    said = [words(c) for c in components(page) if c["type"] == "Li" and "at step" in words(c)]
    assert len([line for line in said if " up at step " in line or " down at step " in line]) >= len(rows["y"])


def test_the_charts_show_the_branch_on_which_it_happened_around_the_onset(client) -> None:
    page = client.open("/incident", f"?run={RUN}&n=2")
    graphs = [
        c["props"]["figure"] for c in components(page) if c["type"] == "Graph" and isinstance(c["props"]["id"], dict)
    ]
    assert 2 <= len(graphs) <= 6
    first = graphs[0]["data"][0]
    assert max(first["x"]) == 300 and min(first["x"]) >= 160  # attempt 1 ended there
    assert "applied" not in json.dumps(graphs)  # what was done later, on another course, is not drawn into this one


def test_previous_and_next_follow_the_list(client) -> None:
    middle = ids(client.open("/incident", f"?run={RUN}&n=2"))
    assert middle["incident-previous"]["href"].endswith("n=3") and middle["incident-next"]["href"].endswith("n=1")
    first = ids(client.open("/incident", f"?run={RUN}&n=3"))
    assert "incident-previous" not in first and "incident-next" in first


def test_lookalikes_say_what_this_run_measured_of_them_and_no_more(tmp_path: Path) -> None:
    writer = asking(tmp_path / ASKING)
    writer.finding(
        Finding("policy/mismatch", "warn", "engine and trainer disagree", 268, 281, 300, state="open", incident=2)
    )
    page = words(over(tmp_path).open("/incident", f"?run={ASKING}&n=2"))
    assert "policy/stale-rollouts not checked: this run does not log" in " ".join(page.split())
    assert "control/mismatch not logged by this run" in " ".join(page.split())


def test_the_past_of_other_runs_is_found_by_failure_and_cause(client, runs_folder: Path) -> None:
    other = healthy(runs_folder / "20250101-000000-older-0001")
    other.finding(record(replace(EXPLOSION, incident=1), "resolved", 300))
    other.action(Action("a1", "proposed", "raise-beta", 282, incident=1))
    other.action(Action("a1", "reverted", "raise-beta", 299, incident=1))
    other.close()
    seen = ids(client.open("/incident", f"?run={RUN}&n=2"))["incident-seen"]["data"]
    found = client.call("incident-similar", "incident-seen.data", {"incident-seen.data": seen})
    text = words(found["incident-similar"]["children"])
    assert "20250101-000000-older-0001 · 1" in text and "raise-beta reverted" in text and "no-kl-anchor" in text
    assert f"{RUN} · 2" not in text


def test_without_a_past_it_says_so_and_how_far_it_looked(client) -> None:
    seen = ids(client.open("/incident", f"?run={RUN}&n=2"))["incident-seen"]["data"]
    found = client.call("incident-similar", "incident-seen.data", {"incident-seen.data": seen})
    assert "None found" in words(found["incident-similar"]["children"])
    assert "in 2 runs" in words(found["incident-similar"]["children"])


def test_the_past_is_read_again_only_where_it_changed(client, runs_folder: Path, monkeypatch) -> None:
    from dashboards.data import similar_incidents

    read: list[str] = []
    real = similar_incidents._read
    monkeypatch.setattr(similar_incidents, "_read", lambda id, files: read.append(id) or real(id, files))
    seen = ids(client.open("/incident", f"?run={RUN}&n=2"))["incident-seen"]["data"]
    client.call("incident-similar", "incident-seen.data", {"incident-seen.data": seen})
    client.call("incident-similar", "incident-seen.data", {"incident-seen.data": seen})
    assert sorted(read) == sorted([RUN, CALM])
    RunWriter.reopen(runs_folder / RUN).finding(record(RUNAWAY, "resolved", 301))
    client.call("incident-similar", "incident-seen.data", {"incident-seen.data": seen})
    assert read.count(RUN) == 2 and read.count(CALM) == 1


def test_a_poll_without_news_sends_nothing_and_with_news_the_page(tmp_path: Path) -> None:
    writer = asking(tmp_path / ASKING)
    client = over(tmp_path)
    seen = ids(client.open("/incident", f"?run={ASKING}&n=2"))["incident-seen"]["data"]
    poll = {"incident-tick.n_intervals": 1, "incident-seen.data": seen}
    assert client.call("incident-body", "incident-tick.n_intervals", poll) is None
    entry(writer, "approved", 301, "snapshot at step 301")
    client.app.runs.get(ASKING)._read = 0
    answer = client.call("incident-body", "incident-tick.n_intervals", poll)
    assert "snapshot at step 301" in words(answer["incident-body"]["children"])


def test_the_charts_of_an_open_incident_follow_the_run_and_those_of_an_old_one_do_not(tmp_path: Path) -> None:
    writer = asking(tmp_path / ASKING)
    client = over(tmp_path)
    seen = ids(client.open("/incident", f"?run={ASKING}&n=2"))["incident-seen"]["data"]

    def poll(ticks: int, seen: Any, there: Any = ()) -> Any:
        client.app.runs.get(ASKING)._read = 0
        given = {"incident-tick.n_intervals": ticks, "incident-seen.data": seen}
        return client.call("incident-body", "incident-tick.n_intervals", given, there)

    assert poll(GROWTH_TICKS, seen) is None
    writer.metrics(301, values(301))
    assert poll(GROWTH_TICKS + 1, seen) is None, "not at every poll"
    answer = poll(2 * GROWTH_TICKS, seen, ["reward/mean", "optim/grad_norm"])
    assert "incident-body" not in answer and answer["incident-seen"]["data"]["reach"][0] == 301
    grown = json.loads(next(key for key in answer if "incident-chart" in key))
    assert grown["incident-chart"] and "–301" in json.dumps(answer, ensure_ascii=False)
    for reach in ([300, 300], None, [], ["x", 2], "x"):
        assert poll(GROWTH_TICKS, {**seen, "reach": reach}) is None


def test_an_incident_that_began_before_the_run_was_taken_up_again_follows_its_present_course(tmp_path: Path) -> None:
    writer = asking(tmp_path / ASKING)
    writer.begin_attempt(301, "resume")
    for step in (301, 302):
        writer.metrics(step, values(step))
    writer.finding(replace(record(EXPLOSION, "open", 302), incident=2, attempt=1))
    page = over(tmp_path).open("/incident", f"?run={ASKING}&n=2")
    assert "left behind" not in words(page) and ids(page)["incident-seen"]["data"]["reach"][0] == 302


@pytest.mark.parametrize("seen", [None, {}, [], "x", {"run": 7}, {"run": RUN, "n": [], "rev": "x", "theme": 3}])
def test_whatever_a_browser_sends_back_is_no_error(client, seen: Any) -> None:
    for page in ("incident", "journal"):
        given = {f"{page}-tick.n_intervals": 1, f"{page}-seen.data": seen}
        client.call(f"{page}-body", f"{page}-tick.n_intervals", given)
    client.call("incident-similar", "incident-seen.data", {"incident-seen.data": seen})


# --- hostile and damaged runs -----------------------------------------------------------------------------------------


@pytest.fixture
def hostile(tmp_path: Path) -> Client:
    """A run whose every text is markup."""
    writer = healthy(tmp_path / HOSTILE, steps=80)
    advice = RemedyAdvice(HOSTILE, "soft", {HOSTILE: (0.1, 0.2)}, HOSTILE, HOSTILE)
    finding = Finding(
        HOSTILE,
        "critical",
        HOSTILE,
        40,
        50,
        60,
        evidence={"metric": "reward/mean", HOSTILE: HOSTILE},
        state="open",
        incident=1,
        causes=(Cause(HOSTILE, 0.9, f"{HOSTILE}; `{HOSTILE}`"),),
        remedies=(advice,),
    )
    writer.finding(finding)
    writer.finding(replace(finding, id="reward/collapse", evidence={"metric": HOSTILE}))
    data = {
        "hypothesis": {"expects": HOSTILE, "guard": HOSTILE, "undo": {HOSTILE: HOSTILE}},
        "twin": {"metric": HOSTILE},
    }
    writer.action(
        Action(HOSTILE, "proposed", HOSTILE, 50, incident=1, text=HOSTILE, change={HOSTILE: (1, 2)}, data=data)
    )
    writer.event(60, "note", HOSTILE, by=HOSTILE, change={HOSTILE: [1, 2]})
    writer.status("running", 80, remedy="approve", force=True)
    writer.close()
    return over(tmp_path)


def test_text_of_a_run_is_only_ever_text(hostile: Client) -> None:
    run = quote(HOSTILE)
    for path, query in (("/incident", f"?run={run}&n=1"), ("/incident", f"?run={run}"), ("/journal", f"?run={run}")):
        page = hostile.open(path, query)
        assert HOSTILE in words(page)
        for part in components(page):
            assert not any(name.startswith("dangerously") for name in part["props"])
            assert part["type"] not in ("Markdown", "DangerouslySetInnerHTML", "Iframe")
            if part["type"] == "Graph":
                assert "<img" not in json.dumps(part["props"]["figure"])
        hrefs = [c["props"]["href"] for c in components(page) if "href" in c["props"]]
        assert all("<" not in href for href in hrefs)


@pytest.mark.parametrize(
    "file", ["findings.jsonl", "actions.jsonl", "events.jsonl", "run.json", "status.json", "metrics/r0-a1.jsonl"]
)
@pytest.mark.parametrize("body", [b"", b"\0\0\0", b'{"a":1}\n[]\nnull\n', b"\xff\xfe\n", b"{" * 5000 + b"\n"])
def test_a_damaged_file_is_no_server_error(client, runs_folder: Path, file: str, body: bytes) -> None:
    (runs_folder / RUN / file).write_bytes(body)
    for path in ("/incident", "/journal"):
        for query in (f"?run={RUN}", f"?run={RUN}&n=2"):
            assert components(client.open(path, query))


def test_odd_values_in_the_journal_are_no_server_error(client, runs_folder: Path) -> None:
    path = runs_folder / RUN / "actions.jsonl"
    odd = [
        Action("o1", "proposed", "x", 1, incident=2, data={"hypothesis": {"undo": 7, "guard_level": "x", "guard": 3}}),
        Action("o2", "proposed", "x", 1, incident=2, data={"hypothesis": [1], "twin": {"with": 1, "without": 2}}),
        Action("o3", "applied", "x", 1, incident=2, data={"twin": {"with": float("nan"), "without": 1, "metric": {}}}),
        Action("", "applied", "", -5, incident=-3, data={"twin": "no"}),
        Action("h1", "applied", "by-hand", 3, data={"by": {"a": 1}}),
    ]
    with path.open("ab") as file:
        for action in odd:
            file.write(encode(action))
    (runs_folder / RUN / "events.jsonl").open("ab").write(
        encode(Event(5, "note", "x", data={"by": ["a"], "change": {"k": 3, "l": [1, 2, 3], "m": [1, "x"]}}))
    )
    for query in (f"?run={RUN}", f"?run={RUN}&n=2"):
        assert "Traceback" not in words(client.open("/incident", query))
        assert "o1" in words(client.open("/journal", query))


# --- the journal ------------------------------------------------------------------------------------------------------


def test_the_journal_tells_hypothesis_change_and_outcome(tmp_path: Path) -> None:
    writer = asking(tmp_path / ASKING)
    text = words(over(tmp_path).open("/journal", f"?run={ASKING}"))
    for said in (
        "findings clear",
        "reward/mean stays at 0.71 or above (tolerance 0.04",
        "30 steps",
        "control/lr_scale: back to 1",
        "control/lr_scale 1 → 0.5",
        "incident 2",
    ):
        assert said in text
    assert "Twin" not in text  # nothing was made yet
    entry(writer, "applied", 301)
    assert "no twin was run" in words(over(tmp_path).open("/journal", f"?run={ASKING}"))
    entry(writer, "verified", 331, "kept", twin={"steps": 8, "metric": "reward/mean", "with": 0.7, "without": 0.5})
    assert "over 8 steps reward/mean was 0.7 with it and 0.5 in the twin" in words(
        over(tmp_path).open("/journal", f"?run={ASKING}")
    )


def test_a_twin_that_spoke_against_a_fix_is_told_though_nothing_was_made(tmp_path: Path) -> None:
    writer = asking(tmp_path / ASKING)
    curves = {"nothing": {"reward/mean": [0.6, 0.6]}, "lower-lr": {"reward/mean": [0.4, 0.4]}}
    entry(writer, "rejected", 301, "the twin without it did better", twin={"steps": 2, "curves": curves})
    text = words(over(tmp_path).open("/journal", f"?run={ASKING}"))
    assert "reward/mean was 0.4 with it and 0.6 in the twin without it" in text


def test_what_people_turned_is_told_with_their_name(tmp_path: Path) -> None:
    writer = asking(tmp_path / ASKING)
    writer.event(
        290, "intervention", "control/beta 0.001 → 0.01, set by anna", by="anna", change={"control/beta": [0.001, 0.01]}
    )
    text = words(over(tmp_path).open("/journal", f"?run={ASKING}"))
    assert "by anna" in text and "control/beta 0.001 → 0.01" in text


def test_starts_and_returns_are_attempts(client) -> None:
    text = words(client.open("/journal", f"?run={RUN}"))
    assert "attempt 2" in text and "rollback" in text and "back to the checkpoint of step 249" in text


def test_the_chain_is_checked_and_the_first_broken_link_named(client, runs_folder: Path) -> None:
    assert "The hash chain is intact: 4 entries" in words(client.open("/journal", f"?run={RUN}"))
    path = runs_folder / RUN / "actions.jsonl"
    path.write_bytes(path.read_bytes().replace(b"by hand", b"by magic"))
    text = words(client.open("/journal", f"?run={RUN}"))
    assert "The chain is broken after 1 entries: line 2 (trial-1 approved at step 298) was changed" in text


def test_a_calm_run_has_an_empty_journal_that_says_so(client) -> None:
    text = words(client.open("/journal", f"?run={CALM}"))
    assert "Nothing tried yet" in text and "The journal is empty" in text and "None yet" in text


def test_an_incident_that_came_back_on_another_branch_began_where_its_charts_show_it() -> None:
    reader = RunReader(Path(__file__).parents[2] / "sample_runs" / "addition-rescued")
    page = incident_details(reader, "1")
    assert (page.attempt, page.onset.step, page.incident.onset) == (0, 6, 6)
