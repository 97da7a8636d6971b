"""Answers over the network: only signed, fresh, small ones, once, and nothing but a file in `requests/`."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from stabilizer.cli import main
from stabilizer.core.records import Action
from stabilizer.live import people, webhook
from stabilizer.live.answer_links import LIFE_S, links
from stabilizer.live.follow import follow
from stabilizer.live.notify import Notices
from stabilizer.live.webhook import MAX_BODY, WINDOW_S, Answers, Refused, Server, checked_secret, signature
from stabilizer.runs.requests import look
from stabilizer.runs.writer import RunWriter
from stabilizer.trainers.reading import load

SECRET = b"a secret of many characters"
NOW = 1_800_000_000.0


@pytest.fixture
def run(tmp_path) -> Path:
    """A run that trains, in this process, and asks a1."""
    writer = RunWriter.create(tmp_path / "runs/run", config={})
    writer.action(Action("a1", "proposed", "lower-lr", 5, change={"control/lr_scale": (1.0, 0.5)}))
    writer.status("running", 5, remedy="approve")
    writer.close()
    return writer.path


def proposal(run: Path) -> str:
    from stabilizer.runs.reader import read_records

    return read_records(run / "actions.jsonl", Action).records[0].hash


def message(
    run: Path, nonce: str = "n" * 16, at: float = NOW, secret: bytes = SECRET, run_named: str = "run", **changes
):
    row = {"run": run_named, "kind": "approve", "action": "a1", "proposal": proposal(run), "by": "ops", **changes}
    body = json.dumps({key: value for key, value in row.items() if value is not None}).encode()
    stamp = str(int(at))
    headers = {"Stabilizer-Timestamp": stamp, "Stabilizer-Nonce": nonce}
    return headers | {"Stabilizer-Signature": signature(secret, stamp, nonce, body)}, body


def answers(run: Path, now: float = NOW) -> Answers:
    made = Answers(run.parent, SECRET, lambda: now)
    made._began = NOW - 100
    return made


def test_a_signed_answer_becomes_a_request_and_nothing_else(run) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    told = answers(run).handle(*message(run))
    (request,) = look(run).requests
    assert told == {"run": "run", "action": "a1", "state": "asked", "request": request.id}
    assert (request.kind, request.action, request.by) == ("approve", "a1", "webhook: ops")
    assert request.proposal == proposal(run)
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.parent.name != "requests"}
    assert after == before


def link(run: Path, kind: str = "approve", secret: bytes = SECRET, named: str = "run") -> str:
    from stabilizer.runs.reader import read_records

    asked = read_records(run / "actions.jsonl", Action).records[0]
    found = links("https://ops.example/answer", secret, named, asked, NOW)[kind]
    assert found.startswith("https://ops.example/link?")
    return found.partition("?")[2]


def test_a_link_shows_a_page_and_only_its_button_answers(run) -> None:
    heard = answers(run)
    shown = heard.link(link(run), answers=False).decode()
    assert "lower-lr: control/lr_scale" in shown and "<button>Approve</button>" in shown and look(run).requests == []
    assert b"at its next step" in heard.link(link(run), answers=True)
    (request,) = look(run).requests
    assert (request.kind, request.action, request.by, request.proposal) == (
        "approve", "a1", "webhook: link", proposal(run),
    )  # fmt: skip
    heard.link(link(run), answers=True)
    assert len(look(run).requests) == 1, "the same link asks for the same thing"


def test_a_link_of_another_proposal_or_secret_and_an_old_one_are_refused(run) -> None:
    other = link(run, secret=b"another secret of many characters")
    changed = link(run).replace("kind=approve", "kind=reject")
    for query, now, why in (
        (other, NOW, "signature"), (changed, NOW, "signature"), ("", NOW, "signature"), ("&sig=é", NOW, "signature"),
        (link(run), NOW + LIFE_S + 1, "expired"), (link(run, named="gone"), NOW, "no run of this name"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=why):
            answers(run, now).link(query, answers=True)
    assert look(run).requests == []


def test_a_link_over_the_wire_is_a_page_that_runs_nothing(run) -> None:
    heard = Answers(run.parent, SECRET, lambda: NOW)
    with Server(heard, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def page(query: str, method: str) -> tuple[int, str, dict[str, str]]:
            connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
            connection.request(method, f"/link?{query}")
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())

        status, text, headers = page(link(run, "reject"), "GET")
        assert status == 200 and "<button>Reject</button>" in text and look(run).requests == []
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
        assert page(link(run, "reject")[:-1], "POST")[0] == 401
        assert page(link(run, "reject"), "POST")[0] == 200 and look(run).requests[0].kind == "reject"
        server.shutdown()


def test_a_message_for_people_has_the_links_instead_of_commands() -> None:
    body = {"kind": "proposal", "run": "r", "id": "lower-lr", "severity": "question", "last_step": 5, "summary": "s",
            "or": ["stabilizer fix r approve a1"]}  # fmt: skip
    assert people._lines([body])[1] == "answer: stabilizer fix r approve a1"
    signed = body | {"links": {"approve": "https://x/link?a&sig=1", "reject": "https://x/link?b&sig=2"}}
    assert people._lines([signed])[1:] == ["approve: https://x/link?a&sig=1", "reject: https://x/link?b&sig=2"]


def refused(run: Path, status: int, *, now: float = NOW, **changes) -> str:
    with pytest.raises(Refused) as error:
        answers(run, now).handle(*message(run, **changes))
    assert error.value.status == status and look(run).requests == []
    return str(error.value)


def test_what_is_not_signed_with_the_secret_is_refused(run) -> None:
    assert "signature does not match" in refused(run, 401, secret=b"another secret, as long")
    headers, body = message(run)
    for changed in (
        (headers | {"Stabilizer-Signature": ""}, body),
        (headers | {"Stabilizer-Signature": headers["Stabilizer-Signature"][:-1]}, body),
        (headers | {"Stabilizer-Signature": "é"}, body),
        (headers, body + b" "),
        (headers | {"Stabilizer-Timestamp": str(int(NOW) + 1)}, body),
        (headers | {"Stabilizer-Nonce": "m" * 16}, body),
        ({}, body),
    ):
        with pytest.raises(Refused, match="signature does not match"):
            answers(run).handle(*changed)
    assert look(run).requests == []


def test_an_old_message_and_one_from_before_the_server_are_refused(run) -> None:
    assert "check the clocks" in refused(run, 401, at=NOW - WINDOW_S - 2)
    assert "check the clocks" in refused(run, 401, at=NOW + WINDOW_S + 2)
    assert "older than this server process" in refused(run, 401, at=NOW - 101)


def test_a_message_counts_once(run) -> None:
    server = answers(run)
    server.handle(*message(run))
    with pytest.raises(Refused, match="valid once"):
        server.handle(*message(run))
    server.handle(*message(run, nonce="m" * 16))  # asked twice, and the run acts once
    assert len(look(run).requests) == 2


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (404, {"run_named": "../run"}), (404, {"run_named": "other"}), (404, {"action": "a2"}),
        (409, {"proposal": "0" * 64}),
        (400, {"proposal": ""}), (400, {"kind": "set"}), (400, {"kind": "do"}), (400, {"kind": None}),
        (400, {"path": "/etc"}), (400, {"action": 3}), (400, {"nonce": "short"}), (409, {"kind": "revert"}),
    ],
)  # fmt: skip
def test_what_can_not_be_asked_for_is_refused(run, status, changes) -> None:
    refused(run, status, **changes)


def test_what_was_done_already_is_said_and_not_asked_again(run) -> None:
    writer = RunWriter.reopen(run)
    writer.action(Action("a1", "applied", "lower-lr", 9))
    told = answers(run).handle(*message(run))
    assert (told["state"], told["request"]) == ("applied", None) and look(run).requests == []


def test_an_answer_to_what_has_expired_is_told_so(run) -> None:
    writer = RunWriter.reopen(run)
    writer.action(Action("a1", "expired", "lower-lr", 9, text="the incident is over"))
    assert "it has expired: the incident is over" in refused(run, 410)


def test_a_run_that_is_over_is_not_asked(run) -> None:
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"state": "finished"}))
    assert "the run is finished" in refused(run, 409)


def test_over_the_wire(run) -> None:
    said: list[str] = []
    with Server(Answers(run.parent, SECRET), "127.0.0.1", 0, said.append) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/answer"

        def post(headers, body, at=url, method=None) -> tuple[int, dict]:
            try:
                with urlopen(Request(at, body, headers, method=method), timeout=10) as answer:  # noqa: S310 (our own address)
                    return answer.status, json.load(answer)
            except HTTPError as error:
                return error.code, json.loads(error.read() or b"{}")

        now = time.time() + 1  # whole seconds: never before the server's start
        assert post(*message(run, at=now))[1]["state"] == "asked"
        assert post(*message(run, at=now))[0] == 409
        assert post({}, b"{}")[0] == 401
        assert post({}, b"x" * (MAX_BODY + 1))[0] == 413
        assert post(*message(run, at=now), at=url + "/../x")[0] == 404
        for method in ("GET", "PUT", "DELETE", "PROPFIND"):
            assert post({}, None, method=method) == (405, {"error": "POST a signed message to /answer"})
        assert post({}, None, method="HEAD") == (405, {})
        server.shutdown()
        thread.join()
    # Answers end before they are said, so in any order.
    assert len(look(run).requests) == 1 and said.count("200 asked") == 1


def test_without_a_secret_nothing_listens(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("STABILIZER_WEBHOOK_SECRET", raising=False)
    assert main(["webhook", str(tmp_path), "--host", "0.0.0.0"]) == 2  # noqa: S104
    assert "STABILIZER_WEBHOOK_SECRET is not set" in capsys.readouterr().err
    with pytest.raises(ValueError, match="has 5 characters"):
        checked_secret("short", "NAME")


def test_a_proposal_that_waits_is_told_once_with_all_an_answer_needs(run) -> None:
    told: list[dict] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        notices = Notices("run", None, [f"http://127.0.0.1:{server.server_address[1]}/"], report=pytest.fail)
        followed = follow(run, load)
        for _ in range(2):
            notices.ask(followed.look().asked, "https://here/answer")
        notices.close()
        server.shutdown()
        thread.join()
    (body,) = told
    assert body["kind"] == "proposal" and body["answer_at"] == "https://here/answer"
    assert "control/lr_scale 1 → 0.5" in body["summary"]
    headers, _ = message(run)
    signed = json.dumps(body["answer"]).encode()
    headers["Stabilizer-Signature"] = signature(SECRET, headers["Stabilizer-Timestamp"], "n" * 16, signed)
    assert answers(run).handle(headers, signed)["state"] == "asked"


def test_a_run_that_waits_for_nobody_asks_nobody(run) -> None:
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"remedy": "suggest"}))
    assert follow(run, load).look().asked == []


def test_senders_who_drip_keep_no_place(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.live.webhook.TIMEOUT_S", 0.5)
    server = Server(Answers(tmp_path, b"s" * 32), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    slow = [socket.create_connection(server.server_address) for _ in range(16)]
    try:
        for connection in slow:
            connection.sendall(b"POST /answer HTTP/1.0\r\nContent-Length: 16000\r\n\r\n")
        until = time.time() + 1.5
        while time.time() < until:
            for connection in list(slow):
                try:
                    connection.sendall(b"a")
                except OSError:
                    slow.remove(connection)
            time.sleep(0.1)
        with pytest.raises(HTTPError, match="405"):
            urlopen(f"http://127.0.0.1:{server.server_address[1]}/answer", timeout=5)
    finally:
        for connection in slow:
            connection.close()
        server.shutdown()
        server.server_close()


def test_half_open_connections_keep_nobody_out(run) -> None:
    with Server(Answers(run.parent, SECRET), "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        half_open = [socket.create_connection(server.server_address) for _ in range(3 * webhook.MAX_AT_ONCE)]
        time.sleep(webhook.GRACE_S)
        began = time.monotonic()
        connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
        connection.request("GET", "/answer")
        assert connection.getresponse().status == 405 and time.monotonic() - began < 2
        for held in half_open:
            held.close()
        server.shutdown()
