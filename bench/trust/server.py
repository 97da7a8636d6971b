"""Attacks on the dashboard's server over real sockets: requests of odd shapes, and clients that are slow."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

from bench.trust.row import Attack, Effort, Measured
from stabilizer.runs.writer import RunWriter

ANSWER_S = 10.0
"""Seconds within which every request is answered or its connection closed."""
HOST = b"Host: 127.0.0.1\r\n"


def _get(path: bytes = b"/", *headers: bytes, method: bytes = b"GET") -> bytes:
    return method + b" " + path + b" HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in headers) + b"\r\n"


def _post(body: bytes, *headers: bytes, path: bytes = b"/_dash-update-component") -> bytes:
    return _get(path, *headers, method=b"POST") + body


JSON = b"Content-Type: application/json"
SHAPES = (
    b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", b"GET\r\n\r\n", b"\r\n\r\n\r\n",
    b"\0" * 64 + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1:99999\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    _get(b"http://evil.example/"), _get(b"/%00"), _get(b"/%ff%fe"), _get(b"/../../etc/passwd"),
    _get(b"/assets/..%2f..%2fetc%2fpasswd"), _get(b"/" + b"a" * 300_000), _get(b"/", b"X: " + b"b" * 300_000),
    _get(b"/", *[b"X: y"] * 5000), _get(b"/run?run=" + b"%2e%2e%2f" * 50), _get(method=b"TRACE"),
    _get(b"/run", method=b"DELETE"), _get(b"/\xff", method=b"FOO"),
    _post(b"", b"Content-Length: -1"), _post(b"", b"Content-Length: 99999999999999"), _post(b"", b"Content-Length: x"),
    _post(b"0\r\n\r\n", b"Content-Length: 4", b"Transfer-Encoding: chunked"),
    _post(b"ffffffffffffffff\r\n", b"Transfer-Encoding: chunked"), _post(b"x", b"Transfer-Encoding: gzip"),
    _post(b"null\r\n", JSON, b"Content-Length: 6"), _post(b"[]", JSON, b"Content-Length: 2"),
    _post(b"\xff\xfe{}", JSON, b"Content-Length: 4"),
    _post(b"", b"Origin: http://[::1", b"Content-Length: 0", path=b"/"),
    _post(b"", b"Origin: http://evil.example", b"Content-Length: 0", path=b"/"),
    _get(b"/", b"Cookie: " + b"=;" * 3000), _get(b"/", b"Range: bytes=9-1,-,x"),
    _get(b"/", b"Accept-Encoding: " + b"gzip;q=nan," * 500), _get(b"/", b'If-None-Match: "\xff"'),
    b"GET / HTTP/1.1\nHost: 127.0.0.1\n\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)  # fmt: skip


@contextlib.contextmanager
def served(folder: Path) -> Iterator[int]:
    """The dashboard over a small run, in a process of its own; yields its port."""
    run = RunWriter.create(folder / "runs" / "run", config={"seed": 1}, task="attack")
    for step in range(1, 30):
        run.metrics(step, {"reward/mean": 0.1, "policy/entropy": 1.0})
    run.status("finished", 29)
    run.close()
    command = [sys.executable, "-m", "dashboards", str(folder / "runs"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r":(\d+)/", line)
            if found is None:
                raise OSError(f"the dashboard did not start: {line!r}")
            yield int(found[1])
        finally:
            process.kill()


def _ask(port: int, request: bytes) -> tuple[int | None, float]:
    """(status, seconds) of one request; None where the connection was closed without an answer."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        try:
            head = connection.recv(64)
        except ConnectionError:
            head = b""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    return int(found[1]) if found else None, time.monotonic() - began


def odd_requests(effort: Effort) -> Measured:
    draw, wrong, slowest, count = random.Random(effort.seed), [], 0.0, 0
    with served(effort.folder) as port:
        shapes = list(SHAPES)
        for _ in range(effort.times(20, 3000)):  # the same with a bit, or a piece, changed
            shape = bytearray(draw.choice(SHAPES)[:4000])
            for _ in range(draw.randrange(1, 5)):
                shape[draw.randrange(len(shape))] = draw.randrange(256)
            shapes.append(bytes(shape))
        for shape in shapes:
            count += 1
            try:
                status, spent = _ask(port, shape)
            except TimeoutError:
                status, spent = 0, ANSWER_S
            slowest = max(slowest, spent)
            if status is not None and not 200 <= status < 500 and status not in (501, 505):
                wrong.append(f"{shape[:40]!r}: {status}")
        alive = _ask(port, b"GET / HTTP/1.0\r\n" + HOST + b"\r\n")[0]
    named = f": {wrong[0]}" if wrong else ""
    words = f"{count} requests: {len(wrong)} answered 5xx or not at all{named}; slowest {slowest:.1f} s; then {alive}"
    return Measured(not wrong and alive == 200, words)


def slow_clients(effort: Effort) -> Measured:
    held = effort.times(300, 1200)
    with served(effort.folder) as port:
        _ask(port, b"GET / HTTP/1.0\r\n" + HOST + b"\r\n")  # the first page of a process takes longer
        idle, unread = [], _get(_largest(port)) * 30
        try:
            for number in range(held):
                idle.append(socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S))
                idle[-1].sendall((b"GET / HTTP/1.1\r\n" + HOST + b"X: ", _get(), unread)[number % 3])
            status, spent = _ask(port, b"GET / HTTP/1.0\r\n" + HOST + b"\r\n")
        except (TimeoutError, ConnectionError):
            status, spent = None, ANSWER_S
        finally:
            for connection in idle:
                connection.close()
    words = f"{held} held connections, a third with 30 unread requests; the next answered {status} in {spent:.1f} s"
    return Measured(status == 200 and spent < 5, words)


def _largest(port: int) -> bytes:
    """The largest script of the first page."""
    connection, sizes = HTTPConnection("127.0.0.1", port), {}
    for path in ["/", *re.findall(r'src="(/_dash-component-suites[^"]+)"', _body(connection, "/").decode())]:
        sizes[path] = len(_body(connection, path))
    return max(sizes, key=lambda path: sizes[path]).encode()


def _body(connection: HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    return connection.getresponse().read()


ATTACKS = (
    Attack("server", "Every request is answered 2xx to 4xx in time", "odd methods, hosts, lengths, encodings, bytes",
           odd_requests),
    Attack("server", "Slow clients keep nobody out", "half-sent requests, and many whose answers nobody reads",
           slow_clients),
)  # fmt: skip
