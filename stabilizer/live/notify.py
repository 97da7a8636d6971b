"""Notifications of incidents and of proposals that wait, through a user's command, a webhook or apprise.

A finding is sent as JSON, on standard input or as the body, so that no text of a log becomes part of a command line or
an address. Every receiver has a thread of its own: a slow one delays neither the watch nor the others. A failure is
reported once per receiver.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from queue import Empty, Full, Queue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from stabilizer.core.knobs import change_words
from stabilizer.core.records import Action, Finding, as_json
from stabilizer.core.text import plain
from stabilizer.live import people
from stabilizer.live.answer_links import links
from stabilizer.live.post import on_this_machine, post
from stabilizer.runs.secrets import redacted_text

CLOSE_S = 15.0
"""Longest wait at the end for notifications that are still being sent, in seconds: one slow receiver's time limit."""
COMMAND_S = 60.0
"""Longest time a command of --on-critical may take, in seconds."""
MOST_WAITING = 1000
"""Notifications that wait for one receiver. Further ones are dropped, and reported as a failure of it."""
SENT = ("open", "resolved")
"""States that are sent."""


class Receiver:
    """One receiver with its own queue and thread. The thread is a daemon: a receiver that hangs can't keep the process
    alive."""

    def __init__(self, name: str, deliver: Callable[[dict[str, Any]], None], report: Callable[[str], None]):
        self._name, self._deliver, self._report = name, deliver, report
        self._queue: Queue[dict[str, Any] | None] = Queue(MOST_WAITING)
        self._complained = False
        self._thread: Thread | None = None

    def put(self, body: dict[str, Any]) -> None:
        """Deliver this, after what waits already."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name=f"notify {self._name}", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(body)
        except Full:
            self._complain(f"{MOST_WAITING} notifications wait for it; further ones are dropped")

    def finish(self) -> None:
        """Nothing more will be put: the thread ends once it has delivered what waits."""
        with contextlib.suppress(Full):
            self._queue.put_nowait(None)

    def wait(self, until: float) -> None:
        """Wait for the deliveries, until that time of the monotonic clock."""
        if self._thread is None:
            return
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._complain(f"it took too long: {max(1, self._queue.qsize() - 1)} or more notifications are undelivered")

    def _work(self) -> None:
        while (body := self._queue.get()) is not None:
            try:
                self._deliver(body)
            except Exception as error:  # a failing receiver must not stop the watch
                self._complain(f"{type(error).__name__}: {error}")

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            text = redacted_text(f"notification to {plain(self._name)} failed: {plain(why)}; not reported again")
            self._report(f"stabilizer watch: {text}")


class DigestReceiver(Receiver):
    """A receiver that people read: what comes within a while of a message is sent as one message."""

    def __init__(self, name: str, form: str, url: str, every: float, report: Callable[[str], None]):
        super().__init__(name, lambda body: people.send(form, url, [body]), report)
        self._send = partial(people.send, form, url)
        self._every, self._due = every, 0.0

    def _work(self) -> None:
        held: list[dict[str, Any]] = []
        ended = False
        while not ended:
            now = True
            try:
                body = self._queue.get(timeout=max(0.0, self._due - time.monotonic()) if held else None)
                ended = body is None
                held += [body] if body is not None else []
                now = ended or (body is not None and people.urgent(body)) or time.monotonic() >= self._due
            except Empty:
                pass
            if held and now:
                self._due = time.monotonic() + self._every
                try:
                    self._send(held)
                except Exception as error:
                    self._complain(f"{type(error).__name__}: {error}")
                held = []


class Notices:
    """Sends the incidents of one run. ValueError when a receiver can't work."""

    def __init__(
        self,
        run: str,
        command: str | None,
        urls: Sequence[str],
        *,
        report: Callable[[str], None],
        unencrypted: bool = False,
        every: float = people.EVERY_S,
    ):
        self._run = run
        words = _words(command)
        for url in urls:
            _check(url, unencrypted=unencrypted)
        self._addresses = [_receiver(url, every, report) for url in urls]
        self._command = Receiver(words[0], partial(_call, words), report) if words else None
        self._loud: set[tuple[int, str]] = set()

    def send(self, changed: Sequence[Finding]) -> None:
        """Send changed findings: warnings and worse to the addresses, critical ones to the command."""
        for finding in changed:
            key = (finding.incident, finding.id)
            if finding.severity != "info" and finding.state in SENT:
                for address in self._addresses:
                    address.put(self._body(finding))
            if self._command and finding.severity == "critical" and finding.state == "open" and key not in self._loud:
                self._loud.add(key)
                self._command.put(self._body(finding))

    def ask(self, proposals: Sequence[Action], answer_at: str | None, secret: bytes = b"") -> None:
        """Send proposals that wait, with all that an answer needs, to the addresses; with a secret, links too."""
        for proposal in proposals:
            for address in self._addresses:
                address.put(self._question(proposal, answer_at, secret))

    def close(self) -> None:
        """Wait for notifications that are being sent: for the command as long as it may take, for addresses less."""
        now = time.monotonic()
        command = [self._command] if self._command else []
        for receiver in (*self._addresses, *command):
            receiver.finish()
        for receiver in self._addresses:
            receiver.wait(now + CLOSE_S)
        for receiver in command:
            receiver.wait(now + COMMAND_S)

    def _body(self, finding: Finding) -> dict[str, Any]:
        return {"run": self._run, **as_json(finding)}

    def _question(self, proposal: Action, answer_at: str | None, secret: bytes) -> dict[str, Any]:
        signed = links(answer_at, secret, self._run, proposal, time.time()) if answer_at and secret else {}
        change = "; ".join(change_words(proposal.change))
        return {
            "kind": "proposal",
            "run": self._run,
            **as_json(proposal),
            "id": proposal.remedy,
            "summary": f"{proposal.action} {proposal.remedy}: {change}. {proposal.text}",
            "severity": "question",
            "last_step": proposal.step,
            "answer": {"run": self._run, "kind": "approve", "action": proposal.action, "proposal": proposal.hash},
            "answer_at": answer_at,
            "links": signed,
            "or": [f"stabilizer fix {self._run} {kind} {proposal.action}" for kind in ("approve", "reject")],
        }


def _call(words: Sequence[str], body: dict[str, Any]) -> None:
    """Run the user's command. What it prints goes to stderr, because stdout may be JSON."""
    done = subprocess.run(  # noqa: S603 (the user's own command; no text of a log is in it)
        words, input=json.dumps(body), text=True, timeout=COMMAND_S, check=False, stdout=2
    )
    if done.returncode:
        raise OSError(f"exit code {done.returncode}")


def _receiver(url: str, every: float, report: Callable[[str], None]) -> Receiver:
    """Programs get each notification as JSON, people get few messages."""
    form, address = people.form_of(url)
    if form:
        hidden = form != people.APPRISE  # the path of such an address is its password
        name = f"{form} at {urlsplit(address).hostname}" if hidden else url
        return DigestReceiver(name, form, address, every, report)
    return Receiver(url, lambda body: post(url, json.dumps(body).encode()), report)


def _words(command: str | None) -> list[str]:
    """The command of --on-critical, as a shell would split it."""
    try:
        words = shlex.split(command) if command else []
    except ValueError as error:
        raise ValueError(f"--on-critical {command}: {error}; quote it as for a shell") from None
    if command is not None and not words:
        raise ValueError("--on-critical: the command is empty")
    return words


IN_THE_CLEAR = "http would send findings and answers to another machine in the clear; use https"


def _check(url: str, *, unencrypted: bool) -> None:
    """ValueError when nothing can be sent to this address, or only in the clear and nobody allowed it."""
    problem = problem_of(url)
    if problem == IN_THE_CLEAR:
        problem = "" if unencrypted else f"{problem}, or allow it with --notify-unencrypted"
    if problem:
        raise ValueError(f"--notify {redacted_text(url)}: {problem}")


def problem_of(url: str) -> str:
    """Why nothing can be sent to this address, in words; empty when it can."""
    try:
        parts = urlsplit(people.form_of(url)[1])
        scheme, host = parts.scheme, parts.hostname
        if scheme in ("http", "https"):
            _ = parts.port  # ValueError where that is none
    except ValueError as error:
        return f"{error}; write it as https://host/path"
    if scheme not in ("http", "https"):
        return _problem_of_apprise(url)
    if not host:
        return "it has no host; write it as https://host/path"
    return IN_THE_CLEAR if scheme == "http" and not on_this_machine(host) else ""


def _problem_of_apprise(url: str) -> str:
    if find_spec("apprise") is None:
        return "addresses other than http and https require apprise: pip install apprise"
    try:
        import apprise

        known = apprise.Apprise().add(url)
    except Exception as error:  # report a broken installation before the run is followed
        return f"apprise does not work here ({type(error).__name__}: {error})"
    return "" if known else "apprise does not know this kind of address; its README lists them"


def send_test(url: str) -> None:
    """Send a message that says it is a test, now. OSError when the receiver does not take it."""
    body = {
        "kind": "test",
        "run": "stabilizer",
        "id": "test",
        "severity": "warn",
        "last_step": 0,
        "summary": "This is a test. Alerts of your runs arrive here.",
    }
    form, address = people.form_of(url)
    if form:
        people.send(form, address, [body])
    else:
        post(url, json.dumps(body).encode())
