"""Who may ask, and what a browser may do with the answer. Loopback alone does not keep other sites' pages out.

A page elsewhere can make the user's browser send requests here (and, by rebinding a name, read the answers), so the
Host header must name this machine, and a request that changes something must not come from another site.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any
from urllib.parse import urlsplit

from dash.exceptions import DependencyException
from flask import Flask, Response, request

from dashboards.door import Door

MAX_BODY = 1024 * 1024
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::\d{1,5})?")


def guard(server: Flask, door: Door, outputs: Container[str]) -> None:
    """Put the checks before every request and the headers on every response. `outputs` is what pages can ask for."""
    server.config["MAX_CONTENT_LENGTH"] = MAX_BODY

    @server.before_request
    def check() -> Response | None:
        host = request.headers.get("Host", "")
        if not named(host, door.hosts):
            known = " or ".join(sorted(door.hosts))
            return _refusal(400, f"this dashboard answers to {known} only; use that, or an ssh tunnel")
        if request.method not in ("GET", "HEAD", "OPTIONS") and foreign(host):
            return _refusal(403, "requests from other sites are refused")
        if (request.content_length or 0) > MAX_BODY:
            return _refusal(413, f"a request holds at most {MAX_BODY} bytes")
        answer = door.answer(request)
        updates = answer is None and request.method == "POST" and request.is_json
        if updates and not asks_for_an_update(body := request.get_json(silent=True)):
            return _refusal(400, "a callback is a JSON object that names its output and lists its inputs")
        if updates and body["output"] not in outputs:
            return _refusal(400, "no page here has such an output; reload the page, it may be of an older version")
        return answer

    @server.errorhandler(DependencyException)
    def no_such_script(_: DependencyException) -> Response:
        return _refusal(404, "there is no such script")

    @server.after_request
    def seal(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response


def named(host: str, hosts: frozenset[str]) -> bool:
    """Whether a Host header is one of these names, with whatever port."""
    match = _HOST.fullmatch(host)
    return bool(match) and match[1].lower() in hosts


def foreign(host: str) -> bool:
    """Whether the browser says the current request comes from a page of another site."""
    if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc.lower() != host.lower()


def asks_for_an_update(body: Any) -> bool:
    """Whether the JSON of a request has the form of a page's callbacks; the framework fails on any other."""
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return False
    given = [body.get("inputs", []), body.get("state", [])]
    return all(isinstance(part, list) for part in given) and all(_names_a_property(one) for one in sum(given, []))


def _names_a_property(one: Any) -> bool:
    if isinstance(one, list):  # what a pattern of ids matches
        return all(isinstance(inner, dict) and _names_a_property(inner) for inner in one)
    return isinstance(one, dict) and "id" in one and "property" in one


def of_this_page() -> bool:
    """Whether the browser says the current request comes from a page of this server. Silence is no: actions need it."""
    host = request.headers.get("Host", "")
    if foreign(host):
        return False
    origin = request.headers.get("Origin")
    same = origin is not None and urlsplit(origin).netloc.lower() == host.lower()
    return same or request.headers.get("Sec-Fetch-Site") == "same-origin"


def _refusal(status: int, why: str) -> Response:
    return Response(why + "\n", status, mimetype="text/plain")
