"""Buttons that ask something of a run: what is offered when, that asking twice is asking once, and who may ask."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking_run import ASKING, asking, entry, press, pressable, propose, requests, take
from page_client import Client

from stabilizer.runs.asking import waiting
from stabilizer.runs.writer import RunWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def writer(folder: Path) -> Iterator[RunWriter]:
    writer = asking(folder / ASKING)
    yield writer
    writer.close()


@pytest.fixture
def client(folder: Path, writer: RunWriter) -> Client:
    from dashboards.app import build

    return Client(build([folder]))


def incident(client: Client) -> Any:
    return client.open("/incident", f"?run={ASKING}&n=2")


def fresh(client: Client) -> None:
    """The next look reads the run again, however short ago the last was."""
    client.app.runs.get(ASKING)._read = 0


# --- what is offered --------------------------------------------------------------------------------------------------


def test_a_proposal_of_a_run_in_approve_mode_can_be_approved_or_rejected(client) -> None:
    assert set(pressable(incident(client))) == {"approve", "reject"}


def test_the_journal_offers_the_same_and_pause_and_snapshot_of_the_run(client) -> None:
    assert set(pressable(client.open("/journal", f"?run={ASKING}"))) == {"approve", "reject", "pause", "snapshot"}


def test_a_silent_run_says_so_beside_its_buttons_and_a_dead_one_says_how_it_goes_on(client, folder: Path) -> None:
    file = folder / ASKING / "status.json"
    assert "No sign of life" not in json.dumps(incident(client))
    silent = json.loads(file.read_text()) | {"t": time.time() - 600}
    file.write_text(json.dumps(silent))
    fresh(client)
    shown = incident(client)
    assert "No sign of life" in json.dumps(shown) and set(pressable(shown)) == {"approve", "reject"}
    file.write_text(json.dumps(silent | {"pid": 2**22 + 1}))  # beyond what Linux gives out
    fresh(client)
    shown = incident(client)
    assert f"stabilizer train --resume {folder / ASKING}" in json.dumps(shown) and not pressable(shown)


def test_a_press_leaves_one_request_that_the_process_reads(client, folder: Path) -> None:
    assert "applies it at its next step" in press(client, "approve")
    (request,) = take(folder / ASKING)
    assert (request.kind, request.action, request.by) == ("approve", "a1", "dashboard")


def test_a_second_press_while_it_waits_does_nothing_new(client, folder: Path) -> None:
    press(client, "approve")
    assert "approve requested" in press(client, "approve")
    assert "approve requested" in press(client, "reject")  # the one question is answered already
    assert len(requests(folder / ASKING)) == 1
    assert pressable(incident(client)) == {}


def test_what_the_command_line_asked_counts_as_asked(client, folder: Path) -> None:
    from stabilizer.runs.requests import ask

    ask(folder / ASKING, "approve", "a1", "cli")
    assert "approve requested by cli" in json.dumps(incident(client))
    press(client, "approve")
    assert len(requests(folder / ASKING)) == 1


def test_between_the_taking_and_the_journal_nothing_is_asked_again(client, folder: Path, writer: RunWriter) -> None:
    press(client, "approve")
    take(folder / ASKING)
    assert "the run has received it" in press(client, "approve")
    assert requests(folder / ASKING) == []
    entry(writer, "approved", 301)
    entry(writer, "applied", 301, "set control/lr_scale 1 → 0.5")
    fresh(client)
    page = incident(client)
    assert set(pressable(page)) == {"revert"} and "applied" in json.dumps(page)


def test_after_a_while_without_an_answer_it_may_be_asked_again(client, folder: Path) -> None:
    press(client, "approve")
    take(folder / ASKING)
    runs = client.app.runs
    status = folder / ASKING / "status.json"
    later = time.time() + 130
    status.write_text(json.dumps({**json.loads(status.read_text()), "t": later}))
    runs.clock = lambda: later
    fresh(client)
    assert set(pressable(incident(client))) == {"approve", "reject"}


def test_a_kept_fix_can_be_reverted_and_a_reverted_one_not(client, writer: RunWriter) -> None:
    entry(writer, "applied", 301)
    entry(writer, "verified", 331)
    assert set(pressable(incident(client))) == {"revert"}
    entry(writer, "reverted", 340)
    fresh(client)
    assert pressable(incident(client)) == {}


def test_pause_turns_into_resume(client, folder: Path, writer: RunWriter) -> None:
    assert "pause requested" in press(client, "pause", action="")
    take(folder / ASKING)
    writer.status("paused", 300, force=True)
    fresh(client)
    page = client.open("/journal", f"?run={ASKING}")
    assert {"resume", "snapshot"} <= set(pressable(page)) and "pause" not in pressable(page)


def test_a_snapshot_is_an_order(client, folder: Path) -> None:
    press(client, "snapshot", action="")
    (request,) = requests(folder / ASKING)
    assert (request["kind"], request["action"]) == ("do", "snapshot")


@pytest.mark.parametrize("mode", ["off", "suggest"])
def test_a_run_that_carries_nothing_out_says_how_it_would(tmp_path: Path, mode: str) -> None:
    from dashboards.app import build

    asking(tmp_path / ASKING, mode=mode).close()
    client = Client(build([tmp_path]))
    page = incident(client)
    assert pressable(page) == {} and f"the remedy mode {mode}" in json.dumps(page)
    press(client, "approve")
    assert requests(tmp_path / ASKING) == []


@pytest.mark.parametrize("state", ["finished", "failed", "stopped", "preempted"])
def test_a_run_that_is_over_is_asked_nothing(client, folder: Path, writer: RunWriter, state: Any) -> None:
    writer.status(state, 300, force=True)
    page = incident(client)
    assert pressable(page) == {} and f"the run is {state}, so it can't be changed" in json.dumps(page)
    press(client, "approve")
    press(client, "pause", action="")
    assert not (folder / ASKING / "requests").exists()


def test_advice_can_not_be_approved(tmp_path: Path) -> None:
    from dashboards.app import build

    asking(tmp_path / ASKING, safety="advice").close()
    page = incident(Client(build([tmp_path])))
    assert pressable(page) == {} and "waits for your answer" not in json.dumps(page)


def test_a_hard_change_is_confirmed_with_what_it_costs(tmp_path: Path) -> None:
    from dashboards.app import build

    asking(tmp_path / ASKING, safety="hard", back=250).close()
    words = json.dumps(incident(Client(build([tmp_path]))))
    assert "rolls back to the state after step 250" in words and "Yes, approve" in words


def test_before_a_return_is_approved_the_page_says_what_would_be_lost(tmp_path: Path) -> None:
    from dashboards.app import build

    asking(tmp_path / ASKING, safety="hard", back=250).close()
    words = json.dumps(incident(Client(build([tmp_path]))))
    assert "50 steps would be discarded: the run is at step 300." in words
    assert "reward/mean: " in words and " at step 250 (mean of 10 steps, " in words


def test_an_answer_to_a_proposal_that_has_expired_says_so(client, folder: Path, writer: RunWriter) -> None:
    incident(client)
    entry(writer, "expired", 301, "the incident is over, so it is no longer needed")
    fresh(client)
    assert "a1 has expired, at step 301: the incident is over" in press(client, "approve")
    assert requests(folder / ASKING) == []


def test_the_level_to_keep_is_told_as_it_was_measured_at_the_change(client, writer: RunWriter) -> None:
    assert "stays at 0.71 or above" in json.dumps(incident(client))
    entry(writer, "applied", 302, "set", guard="reward/mean", guard_level=0.44)
    fresh(client)
    assert "stays at 0.44 or above" in json.dumps(incident(client))


def test_a_soft_change_needs_no_second_press(client) -> None:
    assert "Yes," not in json.dumps(incident(client))


# --- who may ask ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "x", 7, [], {"a": 1}, "é" * 40])
def test_without_the_token_of_this_server_nothing_is_asked(client, folder: Path, token: Any) -> None:
    assert "Reload" in press(client, "approve", token=token)
    assert not (folder / ASKING / "requests").exists()


def test_tokens_differ_between_servers_and_are_in_the_page(folder: Path, client) -> None:
    from dashboards.app import build

    other = build([folder])
    assert other.runs.token != client.app.runs.token and len(other.runs.token) >= 32
    layout = client.http.get("/_dash-layout", headers={"Host": "localhost"}).get_data(as_text=True)
    assert client.app.runs.token in layout


@pytest.mark.parametrize(
    "headers",
    [{"Host": "127.0.0.1:8050"}, {"Host": "127.0.0.1:8050", "Sec-Fetch-Site": "none"}],
)
def test_a_request_that_does_not_say_where_it_comes_from_is_refused(client, folder: Path, headers: Any) -> None:
    assert "Reload" in press(client, "approve", headers=headers)
    assert not (folder / ASKING / "requests").exists()


def test_the_word_of_the_browser_is_enough(client, folder: Path) -> None:
    press(client, "approve", headers={"Host": "127.0.0.1:8050", "Sec-Fetch-Site": "same-origin"})
    assert len(requests(folder / ASKING)) == 1


def test_buttons_that_come_and_go_press_nothing(client, folder: Path) -> None:
    assert press(client, "approve", clicks=None) == ""
    assert not (folder / ASKING / "requests").exists()


@pytest.mark.parametrize("kind", ["set", "do", "delete", "", "restore", "../x"])
def test_only_what_is_offered_can_be_asked(client, folder: Path, kind: str) -> None:
    press(client, kind)
    press(client, kind, action="")
    assert not (folder / ASKING / "requests").exists()


@pytest.mark.parametrize("run", ["", "..", "../..", "/etc", f"{ASKING}/../{ASKING}", "nothing", "a\0b"])
def test_a_run_that_was_not_found_is_asked_nothing(client, folder: Path, run: str) -> None:
    assert "no such run" in press(client, "approve", run=run)
    assert not (folder / ASKING / "requests").exists()


@pytest.mark.parametrize("action", ["a2", "../a1", "trial-1", "<img src=x onerror=alert(1)>"])
def test_an_action_that_is_not_in_the_journal_is_not_asked_for(client, folder: Path, action: str) -> None:
    press(client, "approve", action=action)
    assert not (folder / ASKING / "requests").exists()


def test_a_link_in_place_of_the_folder_leads_nowhere(client, folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    incident(client)  # the run is known before the link is there; one that has it from the start is not listed
    (folder / ASKING / "requests").symlink_to(elsewhere)
    assert "symbolic link" in press(client, "approve")
    assert list(elsewhere.iterdir()) == []


def test_a_press_creates_nothing_in_a_run_but_files_in_requests(client, folder: Path, writer: RunWriter) -> None:
    propose(writer, "a2", safety="hard", back=250)
    before = {path for path in folder.rglob("*")}
    written: list[tuple[str, str]] = []
    watching = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not watching or str(folder) not in str(args[:2]):
            return
        if event == "open":
            flags = args[2] if isinstance(args[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(str(args[1] or "r")) & set("wax+"):
                written.append((event, str(args[0])))
        elif event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"):
            written.append((event, str(args[0])))

    sys.addaudithook(hook)
    incident(client)
    client.open("/incident", f"?run={ASKING}")
    client.open("/journal", f"?run={ASKING}")
    client.open("/preflight", f"?run={ASKING}")
    assert written == []
    press(client, "approve")
    press(client, "reject", action="a2")
    press(client, "pause", action="")
    watching.clear()
    inside = str(folder / ASKING / "requests")
    assert written and all(path.startswith(inside) for _, path in written)
    assert {path for path in folder.rglob("*")} - before == {
        folder / ASKING / "requests",
        *(folder / ASKING / "requests").glob("*.json"),
    }


# --- what lies in the folder ------------------------------------------------------------------------------------------


def test_a_damaged_folder_of_requests_is_no_error(client, folder: Path) -> None:
    requests_folder = folder / ASKING / "requests"
    requests_folder.mkdir()
    for index, body in enumerate(
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"kind":7}',
            b'{"kind":"approve","action":"a1"}',
            b'{"kind":"approve","t":"x"}',
            b"\xff" * 100,
            b"x" * 100_000,
        ]
    ):
        (requests_folder / f"{index}.json").write_bytes(body)
    os.mkfifo(requests_folder / "pipe.json")
    (requests_folder / "link.json").symlink_to(folder / ASKING / "run.json")
    (requests_folder / "folder.json").mkdir()
    assert waiting(folder / ASKING) == []
    assert set(pressable(incident(client))) == {"approve", "reject"}
