"""Posting JSON to an address: within a time limit, to that address alone.

A redirect is not followed, because it may lead to another machine or to a service of this one. The limit holds for the
whole exchange: a receiver that answers one byte at a time never exceeds the limit of a single read.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import socket
import threading
import urllib.request
from http.client import HTTPConnection, HTTPSConnection
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

TIMEOUT_S = 10.0
"""Seconds that an exchange may take in all."""


def post(url: str, data: bytes) -> None:
    """Send a JSON body. OSError when the receiver does not accept it in time."""
    bare, headers = _without_login(url)
    exchange = _Exchange()
    timer = threading.Timer(TIMEOUT_S, exchange.cut)
    timer.daemon = True
    timer.start()
    request = urllib.request.Request(bare, data, {"Content-Type": "application/json", **headers})  # noqa: S310
    opener = urllib.request.build_opener(_NoRedirect(), _Http(exchange), _Https(exchange))
    try:
        opener.open(request, timeout=TIMEOUT_S).close()
    except TimeoutError:  # of the socket, which may come just before the whole exchange is cut
        raise TimeoutError(f"no answer within {TIMEOUT_S:g} s") from None
    except Exception:
        if not exchange.ended:
            raise
    finally:
        timer.cancel()
    if exchange.ended:  # also where the half of an answer looks like a whole one
        raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")


def on_this_machine(host: str) -> bool:
    """Whether a host of an address is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """The address without `user:password@`, and the header that carries it."""
    parts = urlsplit(url)
    login, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    token = base64.b64encode(unquote(login).encode()).decode()
    return urlunsplit(parts._replace(netloc=place)), {"Authorization": f"Basic {token}"}


class _Exchange:
    """The connection of one exchange, which can be cut from another thread."""

    def __init__(self) -> None:
        self.connection: HTTPConnection | None = None
        self.ended = False

    def cut(self) -> None:
        self.ended = True
        connected = self.connection.sock if self.connection else None
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def http(self, host: str, **options: Any) -> HTTPConnection:
        self.connection = HTTPConnection(host, **options)
        return self.connection

    def https(self, host: str, **options: Any) -> HTTPConnection:
        self.connection = HTTPSConnection(host, **options)
        return self.connection


class _Http(urllib.request.HTTPHandler):
    def __init__(self, exchange: _Exchange):
        super().__init__()
        self._exchange = exchange

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self._exchange.http, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, exchange: _Exchange):
        super().__init__()
        self._exchange = exchange

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self._exchange.https, req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        raise OSError(f"it answers {code}, a redirect; give the address it leads to")
