"""Messages that people read: in each service's form, few, complete, and unable to ping anybody."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec

import pytest

from stabilizer.core.records import Action, Finding
from stabilizer.live import people
from stabilizer.live.notify import Notices


def finding(incident=1, severity="warn", state="open", summary="the reward fell", step=4):
    return Finding("reward/collapse", severity, summary, 3, 4, step, {}, state, incident)


@contextmanager
def service(status=200):
    """A webhook that keeps what it gets."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/secret-path", got
    finally:
        server.shutdown()
        server.server_close()


def waited(condition):
    end = time.monotonic() + 10
    while time.monotonic() < end and not condition():
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize(
    "url,form",
    [
        ("https://hooks.slack.com/services/T0/B0/x", "slack"),
        ("slack+https://mattermost.example/hooks/x", "slack"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("discord+http://127.0.0.1:1/x", "discord"),
        ("https://discord.com/developers", ""),
        ("https://hooks.slack.com.example/services", ""),
        ("https://example.org/hook", ""),
        ("mailto://user:password@example.org", "apprise"),
    ],
)
def test_the_form_follows_from_the_address(url, form):
    assert people.form_of(url)[0] == form


@pytest.mark.parametrize("form,key", [("slack", "text"), ("discord", "content")])
def test_slack_and_discord_get_a_message_in_their_form(form, key):
    with service() as (url, got):
        notices = Notices("mine", None, [f"{form}+{url}"], report=print)
        notices.send([finding()])
        notices.close()
    (message,) = got
    assert "mine: reward/collapse" in message[key] and "warn at step 4: the reward fell" in message[key]


def test_text_of_a_log_pings_nobody():
    with service() as (url, got):
        notices = Notices("mine", None, [f"slack+{url}", f"discord+{url}"], report=print)
        notices.send([finding(summary="<!channel> @everyone " + "x" * 50_000)])
        notices.close()
    slack = next(message for message in got if "text" in message)
    discord = next(message for message in got if "content" in message)
    assert "<!channel>" not in slack["text"] and "&lt;!channel&gt;" in slack["text"] and len(slack["text"]) <= 40_000
    assert discord["allowed_mentions"] == {"parse": []} and len(discord["content"]) <= 2_000


def test_what_follows_within_a_while_is_one_message_with_the_newest_of_each():
    with service() as (url, got):
        notices = Notices("mine", None, [f"slack+{url}"], report=print, every=0.6)
        notices.send([finding(1)])
        assert waited(lambda: len(got) == 1)
        for step in range(5, 9):
            notices.send([finding(2, step=step), finding(3, step=step)])
        notices.send([finding(3, state="resolved", step=9)])
        time.sleep(0.2)
        assert len(got) == 1
        assert waited(lambda: len(got) == 2)
        notices.close()
    text = got[1]["text"]
    assert "2 notifications, the worst warn" in text and text.count("warn at step 8") == 1
    assert "resolved at step 9" in text and "step 5" not in text


def test_critical_findings_and_proposals_are_not_held_back():
    proposal = Action("a1", "proposed", "raise-beta", 5, change={"control/beta": (0.0, 0.01)}, text="KL ran away")
    with service() as (url, got):
        notices = Notices("mine", None, [f"slack+{url}"], report=print, every=600)
        notices.send([finding(1)])
        assert waited(lambda: len(got) == 1)
        notices.send([finding(2)])
        notices.send([finding(2, severity="critical", step=6)])
        assert waited(lambda: len(got) == 2)
        notices.ask([proposal], None)
        assert waited(lambda: len(got) == 3)
        notices.close()
    assert "critical at step 6" in got[1]["text"]
    assert "stabilizer fix mine approve a1" in got[2]["text"]


def test_what_is_held_is_sent_at_the_end():
    with service() as (url, got):
        notices = Notices("mine", None, [f"discord+{url}"], report=print, every=600)
        notices.send([finding(1)])
        assert waited(lambda: len(got) == 1)
        notices.send([finding(incident) for incident in range(2, 40)])
        notices.close()
    assert "38 notifications" in got[1]["content"] and "and 18 more" in got[1]["content"]


def test_a_failing_webhook_is_reported_once_and_its_address_stays_hidden():
    said = []
    with service(status=500) as (url, _):
        notices = Notices("mine", None, [f"slack+{url}"], report=said.append, every=0)
        for incident in range(3):
            notices.send([finding(incident, severity="critical")])
        notices.close()
    assert len(said) == 1 and "slack at 127.0.0.1" in said[0] and "secret-path" not in said[0]


def test_programs_get_every_notification_as_json():
    with service() as (url, got):
        notices = Notices("mine", None, [url], report=print)
        notices.send([finding(1), finding(2)])
        notices.close()
    assert [message["incident"] for message in got] == [1, 2]


@pytest.mark.skipif(
    find_spec("apprise") is None, reason="needs apprise: make test-sinks runs this in an environment of its own"
)
def test_apprise_itself_delivers_a_digest():
    with service() as (url, got):
        notices = Notices("mine", None, [url.replace("http://", "json://")], report=print, every=600)
        notices.send([finding(1)])
        assert waited(lambda: len(got) == 1)
        notices.send([finding(2), finding(3)])
        notices.close()
    assert got[0]["title"] == "mine: reward/collapse" and got[0]["type"] == "warning"
    assert "2 notifications" in got[1]["title"] and got[1]["message"].count("warn at step 4") == 2
