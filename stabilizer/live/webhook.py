"""Signed answers to proposals over the network. All an answer can do is create one file in `requests/`.

A message is a POST to /answer with three headers,

    Stabilizer-Timestamp: seconds since 1970
    Stabilizer-Nonce: 16 to 64 letters, digits, - or _, never used before
    Stabilizer-Signature: sha256=HMAC-SHA256(secret, TIMESTAMP "." NONCE "." BODY) in hexadecimal

and, as its body, the `answer` of a proposal's notification with the kind filled in. The signature is checked before
anything else. A message is valid once, for `WINDOW_S` after its time. Messages from before the server started are
refused, so that a restart can't forget a nonce that is still valid. A message can answer (approve, reject, revert) or
pause a run, but not set a knob. A person answers by a link of the notification instead (`answer_links`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson

from stabilizer.core.knobs import change_words
from stabilizer.core.records import Action
from stabilizer.core.text import spoken
from stabilizer.live import answer_links
from stabilizer.runs import asking
from stabilizer.runs.journal import newest
from stabilizer.runs.listing import list_runs
from stabilizer.runs.reader import read_json, read_records
from stabilizer.runs.requests import Kind, Request, ask

SECRET_ENV = "STABILIZER_WEBHOOK_SECRET"  # noqa: S105 (a name, not a secret)
KINDS: tuple[Kind, ...] = ("approve", "reject", "revert", "pause", "resume")
WINDOW_S = 300.0
"""Longest age of a message, in seconds."""
AHEAD_S = 5.0
"""Seconds by which a clock may run ahead: a message from the future could be replayed after a restart."""
MAX_BODY = 16 * 1024
MAX_NONCES = 100_000
"""Nonces remembered per window; further messages are refused."""
MIN_SECRET = 16
TIMEOUT_S = 10.0
"""Seconds a sender may take to send its message."""
MAX_AT_ONCE = 16
GRACE_S = 0.25
"""Seconds that a sender has in any case, even where others wait for its place."""
EVICTION_S = 0.5
"""Longest wait for the place of a connection that was hung up, in seconds."""

Headers = Mapping[str, str] | Message
"""Of an HTTP message (names in any case), or a plain mapping."""
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_FIELDS = {"run", "kind", "action", "proposal", "by"}
_ALREADY = {"approve": ("approved", "applied", "verified"), "reject": ("rejected",), "revert": ("reverted",)}


class Refused(Exception):
    """A message that is refused, with its HTTP status."""

    def __init__(self, status: int, why: str):
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Answer:
    """What a message asks for."""

    run: str
    kind: Kind
    action: str
    proposal: str
    by: str


def signature(secret: bytes, timestamp: str, nonce: str, body: bytes) -> str:
    """The value of the signature header."""
    signed = f"{timestamp}.{nonce}.".encode() + body
    return "sha256=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


def checked_secret(secret: str, name: str) -> bytes:
    """The shared secret as bytes; ValueError when it is missing or too short."""
    if len(secret) < MIN_SECRET:
        state = "is not set" if not secret else f"has {len(secret)} characters"
        raise ValueError(
            f"{name} {state}: set it to a shared secret of at least {MIN_SECRET} characters, for example with"
            f" export {name}=$(openssl rand -hex 32)"
        )
    return secret.encode()


class Answers:
    """Handles messages, independently of the network. `now` is the wall clock, in seconds."""

    def __init__(self, runs: Path, secret: bytes, now: Callable[[], float] = time.time):
        self._runs, self._secret, self._now = runs, secret, now
        self._began = now()
        self._nonces: dict[str, float] = {}
        self._lock = threading.Lock()

    def handle(self, headers: Headers, body: bytes) -> dict[str, Any]:
        """Check a message and leave the request; returns the state of the proposal. Raises Refused."""
        nonce = self._authentic(headers, body)
        answer = _answer(body)
        run = self._run(answer.run)
        already = _state_already(run, answer)
        if already:
            return {"run": run.name, "action": answer.action, "state": already, "request": None}
        made = self._ask(run, answer, nonce)
        return {"run": run.name, "action": answer.action, "state": "asked", "request": made.id}

    def link(self, query: str, *, answers: bool) -> bytes:
        """The page of a link; with `answers`, its button was pressed. Raises Refused."""
        try:
            asked, signature = answer_links.opened(query, self._secret, self._now())
        except ValueError as error:
            raise Refused(401, str(error)) from None
        answer = _answer(orjson.dumps(asked | {"by": "link"}))
        run = self._run(answer.run)
        title = f"{answer.kind.capitalize()} {answer.action} of {run.name}"
        if already := _state_already(run, answer):
            return answer_links.page(title, [f"It is {already} already."])
        if answers:
            self._ask(run, answer, signature)
            return answer_links.page(title, ["The answer is with the run, which takes it up at its next step."])
        proposal = _entries(run, answer.action)[0]
        lines = [f"{proposal.remedy}: {'; '.join(change_words(proposal.change))}", proposal.text]
        return answer_links.page(title, lines, answer.kind.capitalize())

    def _authentic(self, headers: Headers, body: bytes) -> str:
        stamp, nonce, given = (headers.get(f"Stabilizer-{name}") or "" for name in ("Timestamp", "Nonce", "Signature"))
        wanted = signature(self._secret, stamp, nonce, body)
        if not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace")):
            raise Refused(401, "the signature does not match this server's secret")
        if not stamp.isascii() or not stamp.isdigit() or len(stamp) > 12 or not _NONCE.fullmatch(nonce):
            raise Refused(
                400, "Stabilizer-Timestamp must be whole seconds, Stabilizer-Nonce 16 to 64 of A-Z a-z 0-9 - _"
            )
        self._check_age(float(stamp))
        self._check_unused(nonce)
        return nonce

    def _check_age(self, sent: float) -> None:
        now = self._now()
        if not -AHEAD_S <= now - sent <= WINDOW_S:
            age = f"{spoken(now - sent)} old" if now >= sent else f"dated {spoken(sent - now)} in the future"
            raise Refused(401, f"the message is {age}; the limit is {spoken(WINDOW_S)} (check the clocks)")
        if sent < int(self._began):
            raise Refused(401, "the message is older than this server process; sign it again")

    def _check_unused(self, nonce: str) -> None:
        now = self._now()
        with self._lock:
            self._nonces = {n: t for n, t in self._nonces.items() if now - t <= 2 * WINDOW_S}
            if nonce in self._nonces:
                raise Refused(409, "this nonce was used already; a message is valid once")
            if len(self._nonces) >= MAX_NONCES:
                raise Refused(503, "too many messages; try again later")
            self._nonces[nonce] = now

    def _run(self, name: str) -> Path:
        found = [path for path in list_runs(self._runs) if path.name == name]
        if len(found) != 1:
            raise Refused(404, "no run of this name" if not found else "several runs have this name")
        return found[0]

    @staticmethod
    def _trainer(run: Path) -> object:
        return read_json(run / "run.json").get("trainer")

    def _ask(self, run: Path, answer: Answer, nonce: str) -> Request:
        status = read_json(run / "status.json")
        if why := asking.over_and_on(status, self._now(), run.name, self._trainer(run)):
            raise Refused(409, why)
        if answer.kind == "approve" and (why := asking.idle(status, run.name, self._trainer(run))):
            raise Refused(409, why)
        id = hashlib.sha256(nonce.encode()).hexdigest()[:32]
        try:
            return ask(run, answer.kind, answer.action, f"webhook: {answer.by}", proposal=answer.proposal, id=id)
        except OSError as error:
            raise Refused(500, f"the request could not be written: {error.strerror}") from None


def _strings(body: bytes) -> dict[str, str]:
    """The JSON object of a message; raises Refused."""
    try:
        row = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
        raise Refused(400, "the body must be an object of strings: run, kind, action, proposal, by")
    if unknown := sorted(set(row) - _FIELDS):
        raise Refused(400, f"unknown field {unknown[0][:40]!r}; the fields are run, kind, action, proposal, by")
    return row


def _answer(body: bytes) -> Answer:
    """The answer in a message; raises Refused."""
    row = _strings(body)
    run, action, proposal, by = (row.get(name, "") for name in ("run", "action", "proposal", "by"))
    kind = next((kind for kind in KINDS if kind == row.get("kind")), None)
    if kind is None:
        raise Refused(400, f"kind must be one of {', '.join(KINDS)}")
    if kind in ("approve", "reject") and not proposal:
        raise Refused(400, f"{kind} requires the proposal's hash, which the notification holds")
    return Answer(run, kind, action, proposal, by)


def _state_already(run: Path, answer: Answer) -> str:
    """The state of the proposal if it is the requested one already, else ""; raises Refused when it can't become it."""
    if answer.kind in ("pause", "resume"):
        return ""
    life = _entries(run, answer.action)
    if not life:
        raise Refused(404, "the run's journal has no such action")
    if answer.proposal and answer.proposal not in {entry.hash for entry in life}:
        raise Refused(409, "the action is now another proposal than the one answered")
    entry = newest(life)[answer.action].entry
    if entry in _ALREADY[answer.kind]:
        return entry
    if entry == "expired":
        raise Refused(410, f"it has expired: {life[-1].text}")
    if answer.kind not in asking.ANSWERS.get(entry, ()):
        raise Refused(409, f"the action is {entry}, so {answer.kind} does not apply")
    return ""


def _entries(run: Path, action: str) -> list[Action]:
    return [entry for entry in read_records(run / "actions.jsonl", Action).records if entry.action == action]


class Server(ThreadingHTTPServer):
    """Listens; handles each message in its own thread, a bounded number at once."""

    daemon_threads = True

    def __init__(self, answers: Answers, host: str, port: int, report: Callable[[str], None] = lambda line: None):
        self.answers, self.report = answers, report
        self._places = threading.BoundedSemaphore(MAX_AT_ONCE)
        self._open: OrderedDict[socket.socket, float] = OrderedDict()
        """Connections being served, oldest first, and when they came."""
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """While all places are taken, the oldest connection makes room: a message that is coming takes milliseconds, so
        that one is half open or slow. Where it does not end at once, the new one is closed, instead of piling up
        threads."""
        if not self._places.acquire(blocking=False):
            self._evict()
            if not self._places.acquire(timeout=EVICTION_S):
                self.shutdown_request(request)
                return
        self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def _evict(self) -> None:
        """Hang up on the oldest connection, if it had the time that a message takes."""
        with contextlib.suppress(StopIteration, RuntimeError):  # others end meanwhile
            oldest, came = next(iter(self._open.items()))
            if time.monotonic() - came >= GRACE_S:
                _hang_up(oldest)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Free the place in any case, and after `TIMEOUT_S` at the latest: a slow sender can't hold it."""
        ends = threading.Timer(TIMEOUT_S, _hang_up, (request,))
        ends.daemon = True
        ends.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            ends.cancel()
            self._open.pop(request, None)
            self._places.release()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


NO_POST = {"error": "POST a signed message to /answer"}


class _Handler(BaseHTTPRequestHandler):
    """One message per connection."""

    server: Server
    server_version, sys_version = "stabilizer", ""
    timeout = TIMEOUT_S

    def do_POST(self) -> None:
        if self._link(answers=True):
            return
        try:
            state = self.server.answers.handle(self.headers, self._body())
        except Refused as refused:
            self._send(refused.status, {"error": str(refused)})
            return
        self._send(200, state)

    def do_GET(self) -> None:
        if not self._link(answers=False):
            self._send(405, NO_POST)

    def _link(self, *, answers: bool) -> bool:
        """Answer a request for a link with a page; False if it is none."""
        path, _, query = self.path.partition("?")
        if path != answer_links.PATH:
            return False
        status = 200
        try:
            text = self.server.answers.link(query, answers=answers)
        except Refused as refused:
            status, text = refused.status, answer_links.page("Not possible", [str(refused)])
        self._send_bytes(status, text, {"Content-Type": "text/html; charset=utf-8"} | answer_links.HEADERS)
        self.server.report(f"{status} a link was {'answered' if answers else 'opened'}")
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer malformed requests in JSON too, instead of with an HTML page."""
        if code == 501:  # unsupported method
            self._send(405, NO_POST)
        else:
            self._send(code, {"error": message or "invalid request"})

    def _body(self) -> bytes:
        if self.path != "/answer":
            raise Refused(404, "the only path is /answer")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise Refused(411, "Content-Length must be the length of the body")
        if int(length[:9]) > MAX_BODY or len(length) > 9:
            raise Refused(413, f"a message may have at most {MAX_BODY} bytes")
        return self.rfile.read(int(length))

    def _send(self, status: int, row: Mapping[str, Any]) -> None:
        self._send_bytes(status, orjson.dumps(row) + b"\n", {"Content-Type": "application/json"})
        self.server.report(f"{status} {row.get('error') or row.get('state')}")

    def _send_bytes(self, status: int, text: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text)), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: `_send` reports each answer, without the sender's text."""
