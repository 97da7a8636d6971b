"""Alerts of the dashboard: a thread looks at all runs and sends their news to the addresses that viewers set up.

It sends what `stabilizer watch --notify` sends (findings that open or are resolved, proposals that wait), and runs that
stop without being finished. What is there when the thread first sees a run is not news. An address may be a secret: it
stays in the viewer's file, and only `target` is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from dashboards.data.files import modified_ns, size_of
from stabilizer.core.records import Action, Finding
from stabilizer.core.text import spoken
from stabilizer.live import notify, people
from stabilizer.runs.listing import state_of, whole_number
from stabilizer.runs.reader import read_json, read_records
from stabilizer.runs.story import newest_findings, trials

Record = TypeVar("Record", Finding, Action)

LOOK_S = 5.0
"""Seconds between two looks at the files of all runs."""
MAX_ALERTS = 20
MAX_STORY = 8 << 20
"""Bytes of findings or of a journal that are read."""
MAX_URL = 2_000
"""Characters of an address."""
SEVERITIES = {"warn": "warnings and critical findings", "critical": "critical findings only"}
PAUSES = (0, 60, 300, 1800, 3600)
"""Least seconds between two messages about one run; critical findings and proposals are not held back."""
ENDED = {"failed": "the run ended with an error", "stalled": "the run sends no heartbeat any more"}
"""States of a run that are sent, in words."""


@dataclass(frozen=True)
class Alert:
    """Where to send news, from which severity on, and how often at most."""

    url: str = field(repr=False)
    severity: str = "warn"
    every: int = 300

    @classmethod
    def read(cls, row: Any) -> Alert | None:
        """An alert from a file or a browser; None where it has no address."""
        row = row if isinstance(row, Mapping) else {}
        url, severity, every = row.get("url"), row.get("severity"), row.get("every")
        if not isinstance(url, str) or not url.strip() or not _is_address(url.strip()):
            return None
        return cls(
            url.strip()[:MAX_URL],
            severity if severity in SEVERITIES else cls.severity,
            every if isinstance(every, int) and every in PAUSES else cls.every,
        )

    @property
    def target(self) -> str:
        """The address without what may be secret: its form and its host, or the service of apprise."""
        form, address = people.form_of(self.url)
        if form == people.APPRISE:
            return urlsplit(address).scheme or "apprise"
        return f"{form.capitalize() or 'JSON'} at {urlsplit(address).hostname}"

    @property
    def words(self) -> str:
        """What is sent, and how often. Programs that take JSON get each at once, as from `watch --notify`."""
        held = self.every and self.severity == "warn" and people.form_of(self.url)[0]
        pause = f"warnings of one run at most every {spoken(self.every)}" if held else "each at once"
        return f"{SEVERITIES[self.severity]}; {pause}"

    def takes(self, finding: Finding) -> bool:
        """Whether a finding is grave enough."""
        return finding.severity == "critical" or (finding.severity == "warn" and self.severity == "warn")

    def problem(self) -> str:
        """Why nothing can be sent there, in words without the address; empty when it can."""
        return notify.problem_of(self.url)

    def test(self) -> str:
        """Send a test message now; why that failed, in words without the address, or nothing."""
        if problem := self.problem():
            return problem
        try:
            notify.send_test(self.url)
        except Exception as error:  # whatever a receiver or its library does, the page reports it
            words = str(error) or type(error).__name__
            for secret in (self.url, people.form_of(self.url)[1]):
                words = words.replace(secret, "the address")
            return words[:300]
        return ""


def _is_address(url: str) -> bool:
    try:
        return bool(urlsplit(people.form_of(url)[1]).scheme)
    except ValueError:
        return False


@dataclass(frozen=True)
class _Story:
    """What happened in a run, without its numbers."""

    FILES: ClassVar[tuple[str, ...]] = ("status.json", "findings.jsonl", "actions.jsonl")

    status: Mapping[str, Any]
    findings: Sequence[Finding]
    actions: Sequence[Action]

    @classmethod
    def of(cls, path: Path) -> _Story:
        """The story of a run directory; files that are unreadable or very long are left out."""
        status, findings, actions = (path / name for name in cls.FILES)
        return cls(read_json(status), _records(findings, Finding), _records(actions, Action))


def _records(file: Path, kind: type[Record]) -> Sequence[Record]:
    return read_records(file, kind).records if size_of(file) < MAX_STORY else []


@dataclass
class _Known:
    """What was sent of a run, or was there before."""

    stamp: Any = None
    findings: Mapping[tuple[int, str], tuple[str, str]] = field(default_factory=dict)
    """Incident and detector -> state and severity."""
    proposals: frozenset[str] = frozenset()
    state: str = ""


@dataclass(frozen=True)
class Run:
    """A run to look at: its id, its folder or file, and the findings of a foreign log."""

    id: str
    path: Path
    findings: list[Finding] | None = None


class Alerts:
    """Looks at runs and sends what is new. `runs` lists them, `alerts` reads the viewer's file."""

    def __init__(
        self,
        runs: Callable[[], Iterator[Run]],
        alerts: Callable[[], dict[str, Alert]],
        clock: Callable[[], float],
    ):
        self._runs, self._alerts, self._clock = runs, alerts, clock
        self._known: dict[str, _Known] = {}
        self._senders: dict[tuple[str, Alert], notify.Notices] = {}
        self._stopped = threading.Event()
        self._armed = False
        """Whether all runs were seen once since there is an alert."""
        self.problems: dict[str, str] = {}
        """Target -> why the last message to it failed."""

    def start(self) -> None:
        """Look now and then until `stop`."""
        threading.Thread(target=self._go, name="alerts", daemon=True).start()

    def stop(self) -> None:
        """End the thread. What is being sent is sent."""
        self._stopped.set()
        for sender in self._senders.values():
            sender.close()

    def _go(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception as error:  # whatever a directory holds, later looks go on
                self.problems["runs"] = (str(error) or type(error).__name__)[:300]
            self._stopped.wait(LOOK_S)

    def look(self) -> None:
        """Send what is new. Without an alert nothing is read, and what happens meanwhile is not news later."""
        alerts = tuple(self._alerts().values())
        if not alerts:
            self._known, self._armed = {}, False
            return
        for run in self._runs():
            old = not self._armed or (run.findings is not None and run.id not in self._known)
            self._look_at(run, alerts, quiet=old)
        self._armed = True

    def _look_at(self, run: Run, alerts: tuple[Alert, ...], *, quiet: bool) -> None:
        """`quiet`: only remember."""
        known = self._known.setdefault(run.id, _Known())
        stamp = tuple(modified_ns(run.path / name) for name in _Story.FILES) if run.findings is None else None
        if stamp and known.stamp == stamp and known.state != "running":  # a running one may have fallen silent
            return
        story = _Story.of(run.path) if run.findings is None else _Story({}, run.findings, ())
        findings, proposals = self._news(known, story)
        known.stamp = stamp
        for alert in () if quiet else alerts:
            if wanted := [finding for finding in findings if alert.takes(finding)]:
                self._sender(run.id, alert).send(wanted)
            if proposals:
                self._sender(run.id, alert).ask(proposals, None)

    def _news(self, known: _Known, story: _Story) -> tuple[list[Finding], list[Action]]:
        """Findings and proposals that are new; they are known from now on."""
        newest = newest_findings(story.findings)
        states = {(finding.incident, finding.id): (finding.state, finding.severity) for finding in newest}
        findings = [f for f in newest if known.findings.get((f.incident, f.id)) != states[f.incident, f.id]]
        waiting = [trial.newest for trial in trials(story.actions) if trial.waiting]
        proposals = [action for action in waiting if action.hash not in known.proposals]
        state = state_of(story.status, self._clock()) if story.status else ""
        if state in ENDED and known.state != state:
            findings.append(_ended(state, story))
        known.findings, known.proposals, known.state = states, frozenset(action.hash for action in waiting), state
        return findings, proposals

    def _sender(self, run: str, alert: Alert) -> notify.Notices:
        def report(words: str) -> None:
            self.problems[alert.target] = words[:300]

        key = (run, alert)
        if key not in self._senders:
            self._senders[key] = notify.Notices(run, None, [alert.url], report=report, every=alert.every)
        return self._senders[key]


def _ended(state: str, story: _Story) -> Finding:
    """The end of a run as a finding."""
    step = whole_number(story.status.get("step")) or 0
    return Finding(f"system/{state}", "critical", ENDED[state], step, step, step, state="open")
