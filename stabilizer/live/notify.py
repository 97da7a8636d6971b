"""Notifications of incidents and of proposals that wait, through a user's command, a webhook or apprise.

A finding is sent as JSON, on standard input or as the body, so that no text of a log becomes part of a command line or
an address. Sending happens in a thread: a slow receiver delays nothing. A failure is reported once per address.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from stabilizer.core.records import Action, Finding, as_json
from stabilizer.core.text import change_words, plain

TIMEOUT_S = 10.0
SENT = ("open", "resolved")
"""States that are sent."""


_KINDS = {"warn": "warning", "critical": "failure"}
"""Apprise's words for severities; a proposal is "info"."""


class Notices:
    """Sends the incidents of one run. ValueError when a receiver can't work."""

    def __init__(self, run: str, command: str | None, urls: Sequence[str], *, report: Callable[[str], None]):
        self._run, self._report = run, report
        self._command = _words(command)
        self._urls = list(urls)
        for url in urls:
            _check(url)
        self._complained: set[str] = set()
        self._loud: set[tuple[int, str]] = set()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="notify")

    def send(self, changed: Sequence[Finding]) -> None:
        """Send changed findings: warnings and worse to the addresses, critical ones to the command."""
        for finding in changed:
            key = (finding.incident, finding.id)
            if finding.severity != "info" and finding.state in SENT:
                for url in self._urls:
                    self._threads.submit(self._send, url, self._body(finding))
            if self._command and finding.severity == "critical" and finding.state == "open" and key not in self._loud:
                self._loud.add(key)
                self._threads.submit(self._call, self._body(finding))

    def ask(self, proposals: Sequence[Action], answer_at: str | None) -> None:
        """Send proposals that wait, with all that an answer needs, to the addresses."""
        for proposal in proposals:
            for url in self._urls:
                self._threads.submit(self._send, url, self._question(proposal, answer_at))

    def close(self) -> None:
        """Wait for notifications that are being sent."""
        self._threads.shutdown()

    def _body(self, finding: Finding) -> dict[str, Any]:
        return {"run": self._run, **as_json(finding)}

    def _question(self, proposal: Action, answer_at: str | None) -> dict[str, Any]:
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
            "or": [f"stabilizer fix {self._run} {kind} {proposal.action}" for kind in ("approve", "reject")],
        }

    def _call(self, body: dict[str, Any]) -> None:
        try:
            done = subprocess.run(  # noqa: S603 (the user's own command; no text of a log is in it)
                self._command, input=json.dumps(body), text=True, timeout=60, check=False
            )
            if done.returncode:
                self._complain(self._command[0], f"exit code {done.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            self._complain(self._command[0], str(error))

    def _send(self, url: str, body: dict[str, Any]) -> None:
        try:
            if urlsplit(url).scheme in ("http", "https"):
                data = json.dumps(body).encode()
                request = Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 (scheme was checked)
                with urlopen(request, timeout=TIMEOUT_S):  # noqa: S310
                    return
            import apprise

            text = f"{body['severity']} at step {body['last_step']}: {body['summary']}"
            title, kind = f"{body['run']}: {body['id']}", _KINDS.get(body["severity"], "info")
            if not apprise.Apprise([url]).notify(title=title, body=text, notify_type=kind):
                raise OSError("apprise could not deliver it")
        except Exception as error:  # a failing receiver must not stop the watch
            self._complain(url, f"{type(error).__name__}: {error}")

    def _complain(self, receiver: str, why: str) -> None:
        if receiver not in self._complained:
            self._complained.add(receiver)
            self._report(
                f"stabilizer watch: notification to {plain(receiver)} failed: {plain(why)}; not reported again"
            )


def _words(command: str | None) -> list[str]:
    """The command of --on-critical, as a shell would split it."""
    try:
        words = shlex.split(command) if command else []
    except ValueError as error:
        raise ValueError(f"--on-critical {command}: {error}; quote it as for a shell") from None
    if command is not None and not words:
        raise ValueError("--on-critical: the command is empty")
    return words


def _check(url: str) -> None:
    """ValueError when nothing can be sent to this address."""
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname
        if scheme in ("http", "https"):
            _ = parts.port  # ValueError where that is none
    except ValueError as error:
        raise ValueError(f"--notify {url}: {error}; write it as https://host/path") from None
    if scheme in ("http", "https"):
        if not host:
            raise ValueError(f"--notify {url}: it has no host; write it as https://host/path")
        return
    if find_spec("apprise") is None:
        raise ValueError(f"--notify {url}: addresses other than http and https require apprise: pip install apprise")
    try:
        import apprise

        known = apprise.Apprise().add(url)
    except Exception as error:  # report a broken installation before the run is followed
        raise ValueError(f"--notify {url}: apprise does not work here ({type(error).__name__}: {error})") from None
    if not known:
        raise ValueError(f"--notify {url}: apprise does not know this kind of address; its README lists them")
