"""Answers to proposals from outside the machine: signed, fresh, heeded once, and never more than a file in `requests/`.

A message is a POST to /answer with three headers,

    Stabilizer-Timestamp: seconds since 1970
    Stabilizer-Nonce: 16 to 64 letters, digits, - or _, never used before
    Stabilizer-Signature: sha256=HMAC-SHA256(secret, TIMESTAMP "." NONCE "." BODY) in hexadecimal

and as its body what the notification of a proposal holds under `answer`, with the kind filled in. The signature is
checked before anything of the message is looked at. A message counts for `WINDOW_S` after its time and once; one
from before the server started is refused, so that a restart forgets no nonce that still matters. What can be asked for
is an answer (approve, reject, revert) or a pause: no knob is turned from here.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson

from stabilizer.core.text import spoken
from stabilizer.runs.journal import newest
from stabilizer.runs.listing import list_runs, run_state, writer_lives
from stabilizer.runs.reader import read_json, read_records
from stabilizer.runs.requests import Request, ask

KINDS = ("approve", "reject", "revert", "pause", "resume")
WINDOW_S = 300.0
AHEAD_S = 5.0
"""Seconds by which a clock may run ahead: a message from the future could be sent again after a restart."""
"""Seconds a message's time may be off."""
MAX_BODY = 16 * 1024
MAX_NONCES = 100_000
"""Messages of one window that are remembered; more are refused, not forgotten."""
MIN_SECRET = 16
TIMEOUT_S = 10.0
"""Seconds a sender may take over its message."""
MAX_AT_ONCE = 16
STALE_S = 60.0

_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_FIELDS = {"run", "kind", "action", "proposal", "by"}
_TAKES = {"proposed": ("approve", "reject"), "applied": ("revert",), "verified": ("revert",)}
_ALREADY = {"approve": ("approved", "applied", "verified"), "reject": ("rejected",), "revert": ("reverted",)}


class Refused(Exception):
    """A message that is not heeded, with the HTTP status that says so."""

    def __init__(self, status: int, why: str):
        super().__init__(why)
        self.status = status


def signature(secret: bytes, timestamp: str, nonce: str, body: bytes) -> str:
    """What the signature header must hold."""
    signed = f"{timestamp}.{nonce}.".encode() + body
    return "sha256=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


def checked_secret(secret: str, name: str) -> bytes:
    """The shared secret as bytes; ValueError when there is none worth the name."""
    if len(secret) < MIN_SECRET:
        state = "is not set" if not secret else f"has {len(secret)} characters"
        raise ValueError(
            f"{name} {state}: put a shared secret of at least {MIN_SECRET} characters there, for example"
            f" export {name}=$(openssl rand -hex 32)"
        )
    return secret.encode()


class Answers:
    """What the server does with a message, apart from the network. `now` is the wall clock, in seconds."""

    def __init__(self, runs: Path, secret: bytes, now: Callable[[], float] = time.time):
        self._runs, self._secret, self._now = runs, secret, now
        self._began = now()
        self._nonces: dict[str, float] = {}
        self._lock = threading.Lock()

    def heed(self, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """Check a message and leave the request; raises Refused. The answer says what became of the proposal."""
        nonce = self._authentic(headers, body)
        row = _fields(body)
        run = self._run(row["run"])
        already = _standing(run, row)
        if already:
            return {"run": run.name, "action": row["action"], "state": already, "request": None}
        made = self._ask(run, row, nonce)
        return {"run": run.name, "action": row["action"], "state": "asked", "request": made.id}

    def _authentic(self, headers: Mapping[str, str], body: bytes) -> str:
        stamp, nonce, given = (headers.get(f"Stabilizer-{name}") or "" for name in ("Timestamp", "Nonce", "Signature"))
        wanted = signature(self._secret, stamp, nonce, body)
        if not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace")):
            raise Refused(401, "not signed with this server's secret")
        if not stamp.isascii() or not stamp.isdigit() or len(stamp) > 12 or not _NONCE.fullmatch(nonce):
            raise Refused(400, "Stabilizer-Timestamp is whole seconds, Stabilizer-Nonce 16 to 64 of A-Z a-z 0-9 - _")
        now, sent = self._now(), float(stamp)
        if not -AHEAD_S <= now - sent <= WINDOW_S:
            age = f"{spoken(now - sent)} old" if now >= sent else f"dated {spoken(sent - now)} in the future"
            raise Refused(401, f"the message is {age}; {spoken(WINDOW_S)} is the most (check the clocks)")
        if sent < int(self._began):
            raise Refused(401, "the message is from before this server started; sign it anew")
        with self._lock:
            self._nonces = {n: t for n, t in self._nonces.items() if now - t <= 2 * WINDOW_S}
            if nonce in self._nonces:
                raise Refused(409, "this nonce was used already; a message counts once")
            if len(self._nonces) >= MAX_NONCES:
                raise Refused(503, "too many messages; try again later")
            self._nonces[nonce] = now
        return nonce

    def _run(self, name: str) -> Path:
        found = [path for path in list_runs(self._runs) if path.name == name]
        if len(found) != 1:
            raise Refused(404, "no such run here" if not found else "several runs here have this name")
        return found[0]

    def _ask(self, run: Path, row: Mapping[str, str], nonce: str) -> Request:
        status = read_json(run / "status.json")
        state = run_state(status, self._now(), STALE_S)
        if state not in ("running", "paused") and not (state == "stalled" and writer_lives(status) is not False):
            raise Refused(409, f"the run is {state}, so nothing would answer")
        if row["kind"] == "approve" and status.get("remedy") in ("off", "suggest"):
            raise Refused(409, f"the run has --remedy {status['remedy']}, so it carries nothing out")
        id = hashlib.sha256(nonce.encode()).hexdigest()[:32]
        try:
            return ask(run, row["kind"], row["action"], f"webhook: {row['by']}", proposal=row["proposal"], id=id)
        except OSError as error:
            raise Refused(500, f"the request could not be left: {error.strerror}") from None


def _fields(body: bytes) -> dict[str, str]:
    try:
        row = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
        raise Refused(400, "the body must be an object of strings: run, kind, action, proposal, by")
    if unknown := sorted(set(row) - _FIELDS):
        raise Refused(400, f"nothing is known of {unknown[0][:40]!r}; there are run, kind, action, proposal, by")
    row = {name: row.get(name, "") for name in _FIELDS}
    if row["kind"] not in KINDS:
        raise Refused(400, f"kind must be one of {', '.join(KINDS)}")
    if row["kind"] in ("approve", "reject") and not row["proposal"]:
        raise Refused(400, f"{row['kind']} needs the proposal's hash, as the notification gives it")
    return row


def _standing(run: Path, row: Mapping[str, str]) -> str:
    """The state the proposal has already, when that is what was asked for; raises Refused when it can't be had."""
    if row["kind"] in ("pause", "resume"):
        return ""
    from stabilizer.core.records import Action

    actions = read_records(run / "actions.jsonl", Action).records
    life = [entry for entry in actions if entry.action == row["action"]]
    if not life:
        raise Refused(404, "no such action in the run's journal")
    if row["proposal"] and row["proposal"] not in {entry.hash for entry in life}:
        raise Refused(409, "this action is another proposal than the one that was answered")
    entry = newest(life)[row["action"]].entry
    if entry in _ALREADY[row["kind"]]:
        return entry
    if entry == "expired":
        raise Refused(410, f"it has expired: {life[-1].text}")
    if row["kind"] not in _TAKES.get(entry, ()):
        raise Refused(409, f"it is {entry}, so it can't be asked to {row['kind']}")
    return ""


class Server(ThreadingHTTPServer):
    """Listens; every message in a thread of its own, a bounded number at once."""

    daemon_threads = True

    def __init__(self, answers: Answers, host: str, port: int, told: Callable[[str], None] = lambda line: None):
        self.answers, self.told = answers, told
        self._places = threading.BoundedSemaphore(MAX_AT_ONCE)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Turn away what comes while all places are taken, rather than pile up threads."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Give the place back whatever happens, and soon: a sender who sends a byte now and then waits on nobody."""
        ends = threading.Timer(TIMEOUT_S, _hang_up, (request,))
        ends.daemon = True
        ends.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            ends.cancel()
            self._places.release()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


NO_POST = {"error": "POST a signed message to /answer"}


class _Handler(BaseHTTPRequestHandler):
    """One message; the connection ends with it."""

    server: Server
    server_version, sys_version = "stabilizer", ""
    timeout = TIMEOUT_S

    def do_POST(self) -> None:
        try:
            told = self.server.answers.heed(self.headers, self._body())
        except Refused as refused:
            self._say(refused.status, {"error": str(refused)})
            return
        self._say(200, told)

    def do_GET(self) -> None:
        self._say(405, NO_POST)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Whatever is no message, by its method or its words, gets a short answer like all others, not a page."""
        if code == 501:  # a method there is no function for
            self._say(405, NO_POST)
        else:
            self._say(code, {"error": message or "that is no request"})

    def _body(self) -> bytes:
        if self.path != "/answer":
            raise Refused(404, "there is only /answer")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise Refused(411, "Content-Length must say how long the body is")
        if int(length[:9]) > MAX_BODY or len(length) > 9:
            raise Refused(413, f"a message holds at most {MAX_BODY} bytes")
        return self.rfile.read(int(length))

    def _say(self, status: int, row: Mapping[str, Any]) -> None:
        text = orjson.dumps(row) + b"\n"
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(text)))):
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
        self.close_connection = True
        self.server.told(f"{status} {row.get('error') or row.get('state')}")

    def log_message(self, format: str, *args: Any) -> None:
        """What is worth saying is said by `_say`; a sender's words are not printed."""
