"""Notifications for people: as Slack, Discord and apprise take them, few, and without mentions.

Text of a log must not ping a channel: Slack gets it escaped, Discord with mentions switched off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from stabilizer.core.text import cut
from stabilizer.live.post import post

EVERY_S = 300.0
"""Least seconds between two messages to one receiver; what comes meanwhile is sent as one. Urgent ones are not held."""
MOST_LINES = 20
"""Notifications that one message lists."""
SLACK, DISCORD, APPRISE = "slack", "discord", "apprise"
PREFIXES = {"slack+https": SLACK, "slack+http": SLACK, "discord+https": DISCORD, "discord+http": DISCORD}
"""Schemes that say which form a receiver takes; Mattermost and Rocket.Chat take Slack's."""
LONGEST = {SLACK: 35_000, DISCORD: 1_900, APPRISE: 10_000}
"""Characters of a message. Slack takes 40,000 and Discord 2,000; escaping makes a text longer."""
_KINDS = {"warn": "warning", "critical": "failure"}
"""Apprise's words for severities; a proposal is "info"."""


def form_of(url: str) -> tuple[str, str]:
    """The form that an address takes, empty for plain JSON, and the address without a prefix of ours."""
    scheme, host = urlsplit(url).scheme, urlsplit(url).hostname or ""
    if scheme in PREFIXES:
        return PREFIXES[scheme], url.partition("+")[2]
    if scheme not in ("http", "https"):
        return APPRISE, url
    if host == "hooks.slack.com":
        return SLACK, url
    if host in ("discord.com", "discordapp.com") and urlsplit(url).path.startswith("/api/webhooks/"):
        return DISCORD, url
    return "", url


def urgent(body: Mapping[str, Any]) -> bool:
    """Whether a notification is not held back: a critical finding that opens, and a proposal that waits."""
    return body.get("kind") == "proposal" or (body.get("severity") == "critical" and body.get("state") == "open")


def newest(bodies: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The notifications of a digest: of each finding the newest, in the order in which they began."""
    kept: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for body in bodies:
        kept[body.get("kind"), body.get("incident"), body["id"], body.get("action")] = body
    return list(kept.values())


def send(form: str, url: str, bodies: Sequence[Mapping[str, Any]]) -> None:
    """Deliver notifications as one message. OSError where the receiver does not take it."""
    bodies = newest(bodies)
    title, text = _title(bodies), "\n".join(_lines(bodies))
    if form == SLACK:
        text = cut(_escaped(f"*{title}*\n{text}"), LONGEST[form])
        post(url, json.dumps({"text": text}).encode())
    elif form == DISCORD:
        text = cut(f"**{title}**\n{text}", LONGEST[form])
        post(url, json.dumps({"content": text, "allowed_mentions": {"parse": []}}).encode())
    else:
        import apprise

        kind = _KINDS.get(_worst(bodies), "info")
        if not apprise.Apprise([url]).notify(title=title, body=cut(text, LONGEST[form]), notify_type=kind):
            raise OSError("apprise could not deliver it")


def _title(bodies: Sequence[Mapping[str, Any]]) -> str:
    first = bodies[0]
    if len(bodies) == 1:
        return f"{first['run']}: {first['id']}"
    return f"{first['run']}: {len(bodies)} notifications, the worst {_worst(bodies)}"


def _worst(bodies: Sequence[Mapping[str, Any]]) -> str:
    open_ones = [body["severity"] for body in bodies if body.get("state") != "resolved"]
    return next((word for word in ("critical", "warn", "question") if word in open_ones), "resolved")


def _lines(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for body in bodies[:MOST_LINES]:
        word = "resolved" if body.get("state") == "resolved" else body["severity"]
        about = f"{body['id']}: " if len(bodies) > 1 else ""
        lines.append(f"{word} at step {body['last_step']}: {about}{body['summary']}")
        links = [f"{kind}: {link}" for kind, link in dict(body.get("links", {})).items()]
        lines += links or [f"answer: {command}" for command in body.get("or", ())]
    return lines + ([f"and {len(bodies) - MOST_LINES} more"] if len(bodies) > MOST_LINES else [])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
