"""Who may ask, and what a browser may do with the answer. Loopback alone does not keep other sites' pages out.

A page elsewhere can make the user's browser send requests here (and, by rebinding a name, read the answers), so the
Host header must name this machine, and a request that changes something must not come from another site.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from dash.exceptions import DependencyException
from flask import Flask, Response, request

from dashboards.security.access import Access

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
MAX_PORT = 65535
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")


def install_request_guard(server: Flask, access: Access, callbacks: Mapping[str, Mapping[str, Any]]) -> None:
    """Put the checks before every request and the headers on every response. `callbacks` is what pages can ask for."""
    server.config["MAX_CONTENT_LENGTH"] = MAX_BODY

    @server.before_request
    def check() -> Response | None:
        host = request.headers.get("Host", "")
        if not named(host, access.hosts):
            known = " or ".join(sorted(access.hosts))
            return _refusal(400, f"this dashboard answers to {known} only; use that, or an ssh tunnel")
        if request.method not in ("GET", "HEAD", "OPTIONS") and foreign(host):
            return _refusal(403, "requests from other sites are refused")
        if (request.content_length or 0) > MAX_BODY:
            return _refusal(413, f"a request holds at most {MAX_BODY} bytes")
        refused = access.answer(request)
        if refused is None and request.method == "POST" and request.is_json:
            refused = _misfit(callbacks)
        return refused

    @server.errorhandler(DependencyException)
    def no_such_script(_: DependencyException) -> Response:
        return _refusal(404, "there is no such script")

    @server.after_request
    def seal(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response


def named(host: str, hosts: frozenset[str]) -> bool:
    """Whether a Host header is one of these names, with any valid port, because a tunnel has its own."""
    match = _HOST.fullmatch(host)
    return match is not None and match[1].lower() in hosts and int(match[2] or 0) <= MAX_PORT


def foreign(host: str) -> bool:
    """Whether the browser reports that the request comes from a page of another site."""
    if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("Origin")
    return origin is not None and _host_of(origin) != host.lower()


def _host_of(origin: str) -> str | None:
    """Host and port of an Origin header; None for text that is no address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def of_this_page() -> bool:
    """Whether the browser states that the request comes from a page of this server. Actions require it."""
    host = request.headers.get("Host", "")
    if foreign(host):
        return False
    origin = request.headers.get("Origin")
    same = origin is not None and _host_of(origin) == host.lower()
    return same or request.headers.get("Sec-Fetch-Site") == "same-origin"


# --- whether a request fits the callback it names: the framework fails on any other ----------------------------------


def _misfit(callbacks: Mapping[str, Mapping[str, Any]]) -> Response | None:
    try:
        body = request.get_json(silent=True)
    except RecursionError:  # brackets nested thousands deep
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return _refusal(400, "a callback is a JSON object that names its output and lists its inputs")
    declared = callbacks.get(body["output"])
    if declared is None or "callback" not in declared:  # without a function it runs in the browser alone
        return _refusal(400, "no page here has such an output; reload the page, it may be of an older version")
    if not _fits(body, declared):
        return _refusal(400, "this callback takes other inputs; reload the page, it may be of an older version")
    return None


def _fits(body: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    output, changed = body["output"], body.get("changedPropIds", [])
    names = [part.rsplit(".", 1) for part in output.strip(".").split("...")]
    outputs = body.get("outputs") if output.startswith("..") else [body.get("outputs")]
    return (
        isinstance(changed, list)
        and all(isinstance(one, str) for one in changed)
        and _alike(outputs, [{"id": id, "property": property} for id, property in names])
        and _alike(body.get("inputs", []), declared["inputs"])
        and _alike(body.get("state", []), declared["state"])
    )


def _alike(given: Any, declared: Sequence[Mapping[str, Any]]) -> bool:
    return isinstance(given, list) and len(given) == len(declared) and all(map(_same, given, declared))


def _same(given: Any, declared: Mapping[str, Any]) -> bool:
    """Whether this is the declared property; for an id pattern, one match or the list of all."""
    id = declared["id"]
    pattern = json.loads(id) if isinstance(id, str) and id.startswith("{") else id
    if not isinstance(pattern, dict):
        return isinstance(given, dict) and given.get("id") == id and _property(given) == _property(declared)
    several = ["ALL"] in pattern.values()
    if isinstance(given, list) != several:
        return False
    return all(_matches(one, pattern, _property(declared)) for one in (given if several else [given]))


def _matches(given: Any, pattern: Mapping[str, Any], property: str) -> bool:
    there = given.get("id") if isinstance(given, dict) and _property(given) == property else None
    if not isinstance(there, dict) or there.keys() != pattern.keys():
        return False
    return all(isinstance(part, (str, int, float)) for part in there.values())


def _property(item: Mapping[str, Any]) -> str:
    """Without the suffix that distinguishes several callbacks with the same output."""
    return str(item.get("property")).partition("@")[0]


def _refusal(status: int, why: str) -> Response:
    return Response(why + "\n", status, mimetype="text/plain")
