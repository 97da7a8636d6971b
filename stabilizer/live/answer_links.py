"""Links by which a person approves or rejects a waiting fix from a message: signed, and valid for a day.

    https://HOST/link?run=NAME&kind=approve&action=a1&proposal=HASH&until=SECONDS&sig=HMAC-SHA256

A link shows a page with one button, and only the button answers: chat programs open links to preview them. Whoever has
the link can answer this one proposal, with nothing else than the answer that it names.
"""

from __future__ import annotations

import hashlib
import hmac
from html import escape
from urllib.parse import parse_qsl, urlencode

from stabilizer.core.records import Action

LIFE_S = 24 * 3600.0
"""Seconds for which a link is valid: a night and a morning."""
KINDS = ("approve", "reject")
SIGNED = "&sig="
PATH = "/link"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""The page runs nothing, and its address goes nowhere."""
STYLE = "body{font:16px sans-serif;max-width:40em;margin:4em auto;padding:0 1em}button{font:inherit;padding:.6em 1.5em}"


def links(answer_at: str, secret: bytes, run: str, proposal: Action, now: float) -> dict[str, str]:
    """A link for each answer to a proposal; `answer_at` is the address of `stabilizer webhook`."""
    base = answer_at.rstrip("/").removesuffix("/answer") + PATH
    found = {}
    for kind in KINDS:
        asked = {"run": run, "kind": kind, "action": proposal.action, "proposal": proposal.hash}
        query = urlencode(asked | {"until": str(int(now + LIFE_S))})
        found[kind] = f"{base}?{query}{SIGNED}{_signature(secret, query)}"
    return found


def opened(query: str, secret: bytes, now: float) -> tuple[dict[str, str], str]:
    """What a link asks for, and its signature; ValueError says why it is not valid."""
    text, _, given = query.rpartition(SIGNED)
    if not hmac.compare_digest(_signature(secret, text).encode(), given.encode("utf-8", "replace")):
        raise ValueError("the signature of this link does not match this server's secret")
    asked = dict(parse_qsl(text))
    if now > float(asked.pop("until")):
        raise ValueError("this link has expired; answer by `stabilizer fix RUN list` or in the dashboard")
    return asked, given


def _signature(secret: bytes, query: str) -> str:
    return hmac.new(secret, b"link." + query.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def page(title: str, lines: list[str], button: str = "") -> bytes:
    """A page that says something and may have one button, which posts to its own address."""
    words = "".join(f"<p>{escape(line)}</p>" for line in lines)
    form = f'<form method="post"><button>{escape(button)}</button></form>' if button else ""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    text = f"<!doctype html><html lang=en>{head}<title>{escape(title)}</title><h1>{escape(title)}</h1>{words}{form}"
    return text.encode()
