"""Serve the app: bind first, so that a taken port is a clear error, then print the address, then answer."""

from __future__ import annotations

import errno
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dashboards.security.access import Access, host_in_url

if TYPE_CHECKING:
    from waitress.channel import HTTPChannel
    from waitress.server import BaseWSGIServer

THREADS = 8
MAX_CONNECTIONS = 2000
"""Connections at once. A browser keeps six, so this is 300 open pages; each costs a descriptor and 20 kB."""
IDLE_S, CLEANUP_S = 30, 5
"""Seconds after which a connection without traffic is closed, and between looks for such. Pages poll every second."""
IN_MEMORY = 256 * 1024
"""Bytes of a request, and of an answer that nobody has read yet, that are kept in memory; more goes to a file."""
MOST_WAITING = 1 << 30
"""Bytes of an answer after which a thread would wait for a slow client. No answer is as large, so none waits."""
SWITCH_S = 0.001
"""How long one thread may keep the others waiting: a large run that is read must not hold up everybody's polls."""


class PortInUse(ValueError):
    """Another program listens on the port already."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on one address of this machine. ValueError or OSError explain what to do otherwise."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port {port}: a port is a number from 0 to 65535; 0 picks a free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = "127.0.0.1" if host == "localhost" else host
    try:
        return _listen(family, address, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = _next_free(family, address, port)
            hint = f"try --port {free}" if free else "try --port 0"
            raise PortInUse(f"port {port} is in use; {hint} (--port 0 picks a free one)") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"--host {host}: not an address of this machine; `ip addr` lists them") from None
        if error.errno == errno.EACCES:
            raise ValueError(f"port {port} is not for ordinary users; choose one above 1023, or --port 0") from None
        raise


def say(address: str) -> None:
    """Print the address at once: a parent process may wait for it."""
    print(f"dashboard: {address}", flush=True)


def prepare(
    paths: Sequence[Path], host: str = "127.0.0.1", port: int = 8050, *, token: bool = False
) -> tuple[BaseWSGIServer, str]:
    """A server that is bound but does not answer yet, and its address, with the token in it where there is one."""
    access = Access.of(host, token)
    listener = bind(host, port)
    import waitress  # after binding, so that a taken port is reported at once

    from dashboards.app import build
    from dashboards.compression import CompressedFiles
    from dashboards.security.request_guard import MAX_BODY

    app, compressed = build(paths, access), CompressedFiles()
    compressed.take(app.server)
    compressed.begin(app.server, access.key())
    app.runs.logs.start()
    app.runs.alerts.start()
    server = waitress.create_server(
        app.server,
        sockets=[listener],
        threads=THREADS,
        ident=None,
        max_request_body_size=MAX_BODY,
        connection_limit=MAX_CONNECTIONS,
        channel_timeout=IDLE_S,
        cleanup_interval=CLEANUP_S,
        inbuf_overflow=IN_MEMORY,
        outbuf_overflow=IN_MEMORY,
        outbuf_high_watermark=MOST_WAITING,
        asyncore_use_poll=True,  # select() knows no descriptor above 1023
    )
    server.channel_class = _one_at_a_time()
    server.close = _all(app.runs.alerts.stop, app.runs.logs.stop, server.close)
    key = f"?token={access.token}" if access.token else ""
    return server, f"http://{host_in_url(host)}:{listener.getsockname()[1]}/{key}"


def serve(
    paths: Sequence[Path],
    host: str = "127.0.0.1",
    port: int = 8050,
    *,
    token: bool = False,
    browser: bool = False,
    announce: Callable[[str], None] = say,
    find: str = "",
) -> None:
    """Bind, announce the address, and answer until interrupted. `find` is what the list of runs is searched for."""
    server, address = prepare(paths, host, port, token=token)
    if find:
        address = f"{address}{'&' if '?' in address else '?'}{urlencode({'q': find})}"
    sys.setswitchinterval(SWITCH_S)
    _allow_descriptors(2 * MAX_CONNECTIONS)
    announce(address)
    if browser:
        threading.Timer(0.3, webbrowser.open, (address,)).start()
    try:
        server.run()
    finally:
        server.close()


def _one_at_a_time() -> type[HTTPChannel]:
    """Connections that answer one request and close where others were sent behind it without waiting for the answer.

    No browser does that. A client that did, and did not read, would keep one of the threads for itself.
    """
    from waitress.channel import HTTPChannel
    from waitress.parser import HTTPRequestParser

    class One(HTTPRequestParser):  # type: ignore[misc]
        def received(self, data: bytes) -> int:
            taken: int = super().received(data)
            if self.completed and not self.empty and taken < len(data):
                self.headers["CONNECTION"] = "close"
                return len(data)
            return taken

    class Channel(HTTPChannel):  # type: ignore[misc]
        parser_class = One

    return Channel


def _allow_descriptors(count: int) -> None:
    """Raise this process's limit of open files to `count`, as far as the system permits."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _all(*steps: Callable[[], None]) -> Callable[[], None]:
    def close() -> None:
        for step in steps:
            step()

    return close


def _listen(family: int, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def _next_free(family: int, address: str, port: int) -> int | None:
    for candidate in range(port + 1, min(port + 50, 65536)):
        try:
            _listen(family, address, candidate).close()
        except OSError:
            continue
        return candidate
    return None
