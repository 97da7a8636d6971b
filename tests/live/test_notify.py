"""Receivers of notifications that misbehave: they delay nobody, learn nothing more, and their passwords stay hidden."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from stabilizer.core.records import Finding
from stabilizer.live import notify, post
from stabilizer.live.notify import Notices

CRITICAL = Finding("reward/collapse", "critical", "the reward fell", 3, 4, 4, {}, "open", 1)


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does as told with each connection; yields its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def loop() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=_suppressed, args=(serve, connection), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()


def _suppressed(serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with suppress(OSError):
        serve(connection)


def drip(connection: socket.socket) -> None:
    """Answer one byte at a time, without end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        connection.sendall(b"a")
        time.sleep(0.02)


def silent(connection: socket.socket) -> None:
    """Never answer."""
    time.sleep(60)


@contextmanager
def http_server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[int, list[dict]]]:
    """A server that remembers the headers it gets and answers as told."""
    got: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            got.append({"path": self.path, **self.headers})
            answer(self)

        do_GET = do_POST

        def log_message(self, *args) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, got
    finally:
        server.shutdown()
        server.server_close()


def accept(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(204)
    handler.end_headers()


@pytest.mark.parametrize("serve", [drip, silent])
def test_a_receiver_that_never_finishes_delays_neither_the_end_nor_the_others(tmp_path, monkeypatch, serve) -> None:
    monkeypatch.setattr(post, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(notify, "CLOSE_S", 2.0)
    told, said = tmp_path / "told.json", []
    script = tmp_path / "tell.sh"
    script.write_text(f"#!/bin/sh\ncat > {told}\n")
    script.chmod(0o755)
    with raw_server(serve) as slow, http_server(accept) as (good, got):
        urls = [f"http://127.0.0.1:{slow}/", f"http://127.0.0.1:{good}/"]
        notices = Notices("run", str(script), urls, report=said.append)
        began = time.monotonic()
        for incident in range(10):
            notices.send([Finding("reward/collapse", "critical", "fell", 3, 4, 4, {}, "open", incident)])
        assert time.monotonic() - began < 0.5
        notices.close()
        assert time.monotonic() - began < 4
    assert len(got) == 10 and json.loads(told.read_text())["id"] == "reward/collapse"
    assert len(said) == 1 and "no answer within 1 s" in said[0]


def test_a_redirect_is_not_followed(monkeypatch) -> None:
    said: list[str] = []
    with http_server(accept) as (inner, reached):

        def away(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", f"http://localhost:{inner}/admin")
            handler.end_headers()

        with http_server(away) as (port, got):
            notices = Notices("run", None, [f"http://127.0.0.1:{port}/hook"], report=said.append)
            notices.send([CRITICAL])
            notices.close()
    assert len(got) == 1 and not reached
    assert len(said) == 1 and "302, a redirect" in said[0]


def test_a_password_in_an_address_reaches_its_receiver_and_no_message() -> None:
    said: list[str] = []
    with http_server(accept) as (port, got):
        notices = Notices("run", None, [f"http://me:hunter22@127.0.0.1:{port}/hook"], report=said.append)
        notices.send([CRITICAL])
        notices.close()
    assert got[0]["Authorization"] == "Basic bWU6aHVudGVyMjI=" and not said
    notices = Notices("run", None, [f"http://me:hunter22@127.0.0.1:{port}/hook"], report=said.append)
    notices.send([CRITICAL])
    notices.close()
    assert len(said) == 1 and "hunter22" not in said[0] and str(port) in said[0]
    with pytest.raises(ValueError, match="in the clear") as refused:
        Notices("run", None, ["http://me:hunter22@example.org/hook"], report=said.append)
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://example.org/hook", "http://10.0.0.7/hook", "http://127.0.0.1.example.org/"])
def test_findings_leave_this_machine_in_the_clear_only_when_allowed(url) -> None:
    with pytest.raises(ValueError, match="--notify-unencrypted"):
        Notices("run", None, [url], report=print)
    Notices("run", None, [url], report=print, unencrypted=True)


def test_what_a_command_prints_does_not_mix_with_the_json(tmp_path) -> None:
    code = (
        "from tests.live.test_notify import CRITICAL; from stabilizer.live.notify import Notices; import json;"
        "n = Notices('run', 'echo not json', [], report=print); n.send([CRITICAL]); n.close(); print(json.dumps({}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n" and "not json" in done.stderr
