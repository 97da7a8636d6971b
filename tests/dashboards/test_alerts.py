"""Alerts that a viewer sets up: what is news, where it is sent, and that an address stays a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_client import Client
from synthetic_run import silence

from dashboards.app import build
from dashboards.data import alerts as alerts_module
from dashboards.data.alerts import Alert, Alerts
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import ViewerFile
from stabilizer.core.records import Action, Finding
from stabilizer.runs.writer import RunWriter

PRIVATE = "T0P/s3cret"
URL = f"https://hooks.slack.com/services/{PRIVATE}"


ALERT = Alert(URL)


def found(severity: Any = "critical", state: Any = "open", incident: int = 1) -> Finding:
    return Finding("reward/collapse", severity, "the reward fell", 3, 4, 4, state=state, incident=incident)


class Sent:
    """Takes the place of what sends."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, str]] = []

    def notices(self, run: str, command: None, urls: list[str], **_: Any) -> Sent:
        self.run, self.url = run, urls[0]
        return self

    def send(self, changed: list[Finding]) -> None:
        self.got += [(self.run, finding.id, finding.state) for finding in changed]

    def ask(self, proposals: list[Action], answer_at: None) -> None:
        self.got += [(self.run, action.remedy, "waits") for action in proposals]

    def close(self) -> None:
        pass

    def taken(self) -> list[tuple[str, str, str]]:
        taken, self.got = self.got, []
        return taken


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    sent = Sent()
    monkeypatch.setattr(alerts_module.notify, "Notices", sent.notices)
    return sent


def writer(folder: Path, name: str = "one") -> RunWriter:
    made = RunWriter.create(folder / name, config={}, task="sorting", argv=[])
    made.status("running", 1, force=True)
    return made


def watching(folder: Path, alert: Alert | None = ALERT) -> Alerts:
    """The alerts of a dashboard that was open for a moment."""
    runs = Runs([folder])
    if alert:
        assert runs.home.keep_alert("a", alert) == ""
    runs.alerts.look()
    return runs.alerts


def test_what_happens_after_the_start_is_sent_once(tmp_path: Path, sent: Sent) -> None:
    run = writer(tmp_path)
    run.finding(found(incident=7))
    alerts = watching(tmp_path)
    assert sent.taken() == []
    run.finding(found())
    alerts.look()
    alerts.look()
    assert sent.taken() == [("one", "reward/collapse", "open")]
    run.finding(found(state="resolved"))
    alerts.look()
    assert sent.taken() == [("one", "reward/collapse", "resolved")]


def test_a_run_that_begins_later_is_told_from_its_start(tmp_path: Path, sent: Sent) -> None:
    alerts = watching(tmp_path)
    writer(tmp_path).finding(found())
    alerts.look()
    assert sent.taken() == [("one", "reward/collapse", "open")]


def test_nothing_is_sent_below_the_severity_or_without_an_alert(tmp_path: Path, sent: Sent) -> None:
    run = writer(tmp_path)
    critical = watching(tmp_path, Alert(URL, "critical"))
    run.finding(found("warn"))
    run.finding(found("info", incident=2))
    critical.look()
    assert sent.taken() == []
    other = tmp_path / "other"
    other.mkdir()
    silent, run = watching(other, None), writer(other)
    run.finding(found())
    silent.look()
    assert sent.taken() == []


def test_a_proposal_that_waits_and_a_run_that_falls_silent_are_sent(tmp_path: Path, sent: Sent) -> None:
    run = writer(tmp_path)
    alerts = watching(tmp_path)
    run.action(Action("a1", "proposed", "lower-lr", 5, 1, change={"control/lr_scale": (1.0, 0.5)}))
    alerts.look()
    alerts.look()
    assert sent.taken() == [("one", "lower-lr", "waits")]
    run.action(Action("a1", "approved", "lower-lr", 5, 1))
    alerts.look()
    assert sent.taken() == []
    silence(tmp_path / "one", 7200.0)
    alerts.look()
    alerts.look()
    assert sent.taken() == [("one", "system/stalled", "open")]


def test_an_archived_run_is_not_told(tmp_path: Path, sent: Sent) -> None:
    run = writer(tmp_path)
    alerts = watching(tmp_path)
    assert Runs([tmp_path]).notes.archive(tmp_path / "one", True) == ""
    run.finding(found())
    alerts.look()
    assert sent.taken() == []


# --- the page ---------------------------------------------------------------------------------------------------------


@contextmanager
def asked(client: Client, trigger: str, **given: Any) -> Iterator[dict[str, Any]]:
    """The answer to a click, and that it does not hold the secret."""
    values = {"alerts-severity.value": "warn", "alerts-every.value": "60", "action-token.data": client.app.runs.token}
    pressed = {"alerts-save.n_clicks": 1, **values, **given}
    answer = client.call("alerts-told", trigger, pressed)
    assert PRIVATE not in json.dumps({**answer, "alerts-url": None})
    yield answer


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client(build([tmp_path]))
    monkeypatch.setattr("dashboards.pages.alerts.of_this_page", lambda: True)
    return client


def test_an_alert_is_saved_and_its_address_is_not_shown_again(client: Client, tmp_path: Path) -> None:
    with asked(client, "alerts-save.n_clicks", **{"alerts-url.value": URL}) as answer:
        assert "Slack at hooks.slack.com" in json.dumps(answer) and answer["alerts-url"]["value"] == ""
    assert PRIVATE not in json.dumps(client.open("/alerts"))
    file = ViewerFile(tmp_path)
    assert [alert.url for alert in file.alerts().values()] == [URL]
    assert file.path.stat().st_mode & 0o077 == 0 and PRIVATE not in repr(file.alerts())


@pytest.mark.parametrize(
    ("url", "words"),
    [("", "needs an address"), ("http://elsewhere.example/x", "use https"), ("https://", "no host")],
)
def test_an_address_that_can_not_work_is_refused(client: Client, url: str, words: str, tmp_path: Path) -> None:
    with asked(client, "alerts-save.n_clicks", **{"alerts-url.value": url}) as answer:
        assert words in answer["alerts-told"]["children"]
    assert not ViewerFile(tmp_path).alerts()


def test_only_this_page_on_this_machine_changes_alerts(tmp_path: Path) -> None:
    client = Client(build([tmp_path]))
    for given in ({}, {"action-token.data": "guess"}):  # the test client states no origin
        with asked(client, "alerts-save.n_clicks", **{"alerts-url.value": URL, **given}) as answer:
            assert "Reload it" in answer["alerts-told"]["children"]
    assert not ViewerFile(tmp_path).alerts()


def test_an_alert_says_how_often_it_sends() -> None:
    assert "at most every 5 min" in Alert(URL).words
    for alert in (Alert(URL, "critical"), Alert(URL, every=0), Alert("https://example.com/hook")):
        assert alert.words.endswith("each at once")


def test_a_test_message_says_why_it_failed_without_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, data: bytes) -> None:
        raise OSError(f"no route to {url}")

    monkeypatch.setattr("stabilizer.live.people.post", refuse)
    assert Alert(URL).test() == "no route to the address"
    monkeypatch.setattr("stabilizer.live.people.post", lambda url, data: None)
    assert Alert(URL).test() == ""
