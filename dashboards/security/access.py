"""Who may connect: this machine alone, or on another address everybody who has the token of this start.

The token is printed once, inside the address. Opening that address exchanges it for a cookie which no script can read
and which pages of other sites do not send; from then on the cookie is what counts, and the address is clean.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from flask import Request, Response

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True)
class Access:
    """Which names a request may call this server by, and the token it must know; empty for none."""

    hosts: frozenset[str] = LOCAL_HOSTS
    token: str = ""

    @classmethod
    def of(cls, host: str, token: bool) -> Access:
        """The access rules of a server that listens on `host`. ValueError explains what to do instead."""
        if host not in LOOPBACK:
            _check(host, token)
        hosts = LOCAL_HOSTS if host in LOOPBACK else frozenset({host_in_url(host).lower()})
        return cls(hosts, secrets.token_urlsafe(32) if token else "")

    @property
    def cookie(self) -> str:
        """The cookie's name. Cookies are not kept apart by port, so that of each start has its own."""
        return f"stabilizer-{hashlib.sha256(self.token.encode()).hexdigest()[:12]}"

    def key(self) -> dict[str, str]:
        """The headers with which this process itself may ask."""
        host = {"Host": min(self.hosts)}
        return {**host, "Cookie": f"{self.cookie}={self.token}"} if self.token else host

    def answer(self, request: Request) -> Response | None:
        """None for an allowed request; else a refusal, or the cookie in exchange for the token."""
        if not self.token or self._same(request.cookies.get(self.cookie)):
            return None
        if request.method == "GET" and self._same(request.args.get("token")):
            return self._welcome(request)
        why = "open the address that was printed at the start, including its token\n"
        return Response(why, 401, mimetype="text/plain")

    def _welcome(self, request: Request) -> Response:
        """Refreshed, not redirected: a browser that came by a link elsewhere keeps a strict cookie to itself until
        a page of our own asks again."""
        rest = urlencode([(key, value) for key, value in request.args.items(multi=True) if key != "token"])
        path = "/" + request.path.lstrip("/\\")  # never the address of another host
        response = Response("come in\n", 200, mimetype="text/plain")
        response.headers["Refresh"] = f"0; url={quote(path)}" + (f"?{rest}" if rest else "")
        response.headers["Cache-Control"] = "no-store"
        response.set_cookie(self.cookie, self.token, httponly=True, samesite="Strict", path="/")
        return response

    def _same(self, given: str | None) -> bool:
        """Compared in constant time."""
        return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def host_in_url(host: str) -> str:
    """A host as written in an address."""
    return f"[{host}]" if ":" in host else host


def _check(host: str, token: bool) -> None:
    if not token:
        raise ValueError(
            f"--host {host}: the dashboard has no login, so it listens on this machine only; leave --host out and use "
            f"`ssh -L 8050:127.0.0.1:8050 THIS_MACHINE`, then open http://127.0.0.1:8050, or let in whoever knows a "
            f"token, unencrypted, with --token"
        )
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(
            f"--host {host}: not an IP address; name one of this machine's, `ip addr` lists them"
        ) from None
    if address.is_unspecified or getattr(address, "scope_id", None):
        raise ValueError(f"--host {host}: name the one address to listen on; `ip addr` lists this machine's")
