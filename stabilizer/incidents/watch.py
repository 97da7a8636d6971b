"""Opens, keeps, merges and closes incidents: the only place with alert state.

Every detector is asked at every tick what it sees then. A finding must last for some ticks before it opens
(`Detector.confirm`). It stays open through short gaps, is recovering after `RECOVERING` quiet ticks and resolved when
it was not seen for `RESOLVED` ticks. One cause gives one incident, not fifty findings. A finding belongs to an open
incident when

- its onset lies near that of a finding of the incident;
- it can be a consequence of one (`diagnosis.graph`) and begins soon after, or at any time after one with proven damage
  (a critical finding) or a broken fact (a NaN, an outage): the other numbers of a ruined run are no second problem;
- it was resolved as part of the incident not long ago: the incident is back.

An incident that is only information attracts nothing that is not near. The owner of a run gets one warning about a new
incident in `BUDGET` ticks. Another one within them, of the same failure or of one further down while the first is still
open, is kept as information and marked `held_back`. It is raised when the budget is free or when it gets worse. Proof
(`confirm` = 1) and critical findings are never held back, and a declared change frees the budget.

A tick is one logged row, and distances are counted in rows, so a run logged every ten steps is judged like one logged
at each. The watch sees only the views it is given, in their order, so a live run, its replay and a resumed run give the
same incidents.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from stabilizer.core.metrics import is_rl
from stabilizer.core.records import SEVERITIES, Cause, Event, Finding, RemedyAdvice, Severity, worst
from stabilizer.detectors import DETECTORS, ENDINGS, MESSAGES
from stabilizer.detectors.base import Detector
from stabilizer.detectors.system.detector_error import DetectorError
from stabilizer.incidents.diagnosis.graph import is_integrity, may_follow
from stabilizer.runs.history import RunView

RECOVERING = 5
"""Quiet ticks in a row after which a finding is recovering."""
RESOLVED = 20
"""Ticks after it was last seen at which it is resolved."""
MERGE = 50
"""Rows within which onsets belong to one incident: about the uncertainty of an estimated onset, on both sides."""
FOLLOW = 150
"""Rows after a warning within which its possible consequences belong to it."""
REOPEN = 100
"""Ticks after its end within which a finding that is back belongs to its old incident."""
BUDGET = 1000
"""Ticks in which one new incident may warn."""
EXPLAIN_AGAIN = (10, 30)
"""Ticks after an incident's opening at which it is explained again: what else moved shows only then."""
TOO_SHORT = 25
"""Rows below which a run without findings is too short to be called healthy."""


Explain = Callable[[Sequence[Finding], RunView], tuple[Cause, ...]]
"""The causes of an incident, the likeliest first, from its findings."""
Outcomes = Callable[[Sequence[Callable[[], Any]]], Sequence[Any]]
"""Makes calls, and returns for each its result or the exception it ended with."""
Advise = Callable[[Sequence[Cause], RunView, int, Severity | None], tuple[RemedyAdvice, ...]]
"""Remedies for causes, given the step at which the incident began and its worst severity."""


@dataclass
class Incident:
    """One problem: its findings, when it began, and why."""

    number: int
    onset_step: int
    findings: list[str] = field(default_factory=list)
    causes: tuple[Cause, ...] = ()
    remedies: tuple[RemedyAdvice, ...] = ()
    opened: int = 0
    """Tick at which it opened."""
    warned: int | None = None
    """Tick since which it has been more than information; None while it is not."""


@dataclass
class _Track:
    """The state of one detector's finding while it is suspected or open."""

    detector: Detector
    finding: Finding
    seen: int
    """Tick at which it was last seen."""
    raised: int = 1
    quiet: int = 0
    """Ticks in a row at which nothing was seen."""
    opened: int = 0
    """Tick at which it opened; 0 while it is suspected."""


@dataclass(frozen=True)
class _Closed:
    """A finding that is over, and since when."""

    finding: Finding
    tick: int


class Watch:
    """Alert state of one run. Call `tick` with every new view; `findings` is the present state."""

    def __init__(
        self,
        explain: Explain,
        advise: Advise,
        detectors: Sequence[Detector] = DETECTORS,
        outcomes: Outcomes | None = None,
    ):
        self.explain, self.advise = explain, advise
        self._outcomes = outcomes or _direct
        self.detectors = tuple(detectors)
        self.incidents: list[Incident] = []
        self._tracks: dict[str, _Track] = {}
        self._closed: list[_Closed] = []
        self._broken: set[str] = set()
        self._given_up: set[str] = set()
        """Detectors that did not return in time. They are not asked again: each time would stop training as long."""
        self._tick = 0
        self._view: RunView | None = None
        """The newest view: what was computed of it is shared until the next one comes."""
        self._free_from = 0
        """Warnings before this tick do not count against the budget, because a change was declared since."""
        self._baseline = 0
        self._steps: deque[int] = deque(maxlen=21)
        self._unexplained: set[int] = set()
        """Incidents that changed at this tick: each is explained once, after all detectors were asked."""

    @property
    def step(self) -> int:
        """The step of the newest view; 0 before the first."""
        return self._steps[-1] if self._steps else 0

    def tick(self, view: RunView) -> list[Finding]:
        """Ask every detector about `view`; returns findings that opened, got worse, changed state or closed."""
        changed: list[Finding] = []
        if self._view is not None and self._view is not view:
            self._view.release()
        self._view = view
        self._tick += 1
        self._steps.append(view.step)
        self._heed_events(view, changed)
        self._ask([detector for detector in self.detectors if not detector.at_end], view, changed)
        for incident in self.incidents[-10:]:
            if self._tick - incident.opened in EXPLAIN_AGAIN and self._untreated(incident, view):
                self._unexplained.add(incident.number)
        self._explain_all(view, changed)
        return changed

    def ask(self, id: str, view: RunView) -> list[Finding]:
        """Ask one detector outside a row: something happened while no row comes."""
        changed: list[Finding] = []
        for detector in self.detectors:
            if detector.id == id and (result := detector.check(view)) is not None:
                self._advance(detector, result, view, changed)
        self._explain_all(view, changed)
        return changed

    def end(self, view: RunView) -> list[Finding]:
        """Tell the watch that the run is over at `view`: only now can a failure be known to be the last thing that
        happened."""
        changed: list[Finding] = []
        asked = [detector for detector in self.detectors if detector.at_end]
        for detector, results in zip(asked, self._outcomes([partial(d.ends, view) for d in asked]), strict=True):
            for result in results if isinstance(results, list) else [results]:
                self._hear(detector, result, view, changed)
        self._explain_all(view, changed)
        return changed

    def _ask(self, detectors: Sequence[Detector], view: RunView, changed: list[Finding]) -> None:
        """Ask detectors about `view`. One that fails must not stop training: that becomes a finding."""
        asked = [detector for detector in detectors if detector.id not in self._given_up]
        results = self._outcomes([partial(detector.check, view) for detector in asked])
        for detector, result in zip(asked, results, strict=True):
            self._hear(detector, result, view, changed)

    def _hear(self, detector: Detector, result: Any, view: RunView, changed: list[Finding]) -> None:
        """Take one answer of a detector: a finding, None, or an exception."""
        error = result if isinstance(result, Exception) else _junk(result)
        if error is not None:
            self._report_broken(detector, error, view, changed)
        self._advance(detector, None if error else result, view, changed)

    def findings(self) -> list[Finding]:
        """Every finding that ever opened, in its present state, in order of incident and onset."""
        return sorted([*(closed.finding for closed in self._closed), *self._standing()], key=_place)

    def active(self) -> list[Finding]:
        """Findings that are not resolved."""
        return sorted([f for f in self._standing() if f.state != "resolved"], key=_place)

    def _standing(self) -> list[Finding]:
        """Findings that have opened and are still tracked, in no order."""
        return [track.finding for track in self._tracks.values() if track.finding.state != "suspected"]

    def verdict(self, view: RunView) -> tuple[str, str | None]:
        """(present verdict, worst severity ever) as `diagnose` reports them."""
        ever = worst(finding.severity for finding in self.findings())
        now = worst(finding.severity for finding in self.active())
        if any(finding.severity == "critical" and finding.id in ENDINGS for finding in self.active()):
            return "crashed", ever
        if now:
            return now, ever
        rows = max((len(view.series(name).finite()) for name in view.names()), default=0)
        if not rows:
            return "too-short", ever
        if not is_rl(view.names()):
            return "not-rl", ever
        return ("too-short" if ever is None and rows < TOO_SHORT else "healthy"), ever

    def incident(self, number: int) -> Incident:
        """An incident by its number."""
        return self.incidents[number - 1]

    # --- the life of a finding --------------------------------------------------------------------------------------

    def _advance(self, detector: Detector, result: Finding | None, view: RunView, changed: list[Finding]) -> None:
        id = result.id if result else detector.id
        track = self._tracks.get(id)
        if result is not None:
            if track is None or (detector.at_end and track.finding.state == "suspected"):
                track = self._tracks[id] = _Track(detector, result, self._tick)  # no later row can confirm it
            else:
                track.raised, track.quiet, track.seen = track.raised + 1, 0, self._tick
            self._raise(track, result, view, changed)
        elif track is None:
            return
        elif _blind(track.finding, view):
            track.seen = self._tick
        else:
            track.raised, track.quiet = 0, track.quiet + 1
            self._quieten(track, changed)

    def _raise(self, track: _Track, result: Finding, view: RunView, changed: list[Finding]) -> None:
        old = track.finding
        if old.state == "suspected":
            track.finding = replace(result, onset_step=min(old.onset_step, result.onset_step))
            if track.raised >= track.detector.confirm:
                self._open(track, view, changed)
            return
        if self._is_another(old, result, view):
            over = replace(old, state="resolved")
            self._closed.append(_Closed(over, self._tick - REOPEN - 1))
            changed.append(over)
            track.finding = replace(result, onset_step=max(result.onset_step, view.step))
            self._open(track, view, changed)
            return
        incident = self.incident(old.incident)
        result = self._within_budget(track, result, incident)
        severity = old.severity
        if result.severity != severity:
            severity = max(severity, result.severity, key=SEVERITIES.index)
        state = "open" if old.state == "recovering" else old.state
        track.finding = Finding(
            old.id, severity, result.summary, old.onset_step, old.detected_step, view.step, result.evidence,
            state, old.incident, view.attempt, old.t, old.causes, old.remedies,
        )  # fmt: skip
        if severity != old.severity or state != old.state:
            changed.append(track.finding)
        if severity != old.severity:
            self._unexplained.add(incident.number)

    def _is_another(self, old: Finding, result: Finding, view: RunView) -> bool:
        """Whether long-standing information that suddenly does harm is another incident. The harm did not begin back
        then, and a rollback to before it would discard everything learned since."""
        worse = old.severity == "info" and result.severity == "critical" and "held_back" not in old.evidence
        return worse and (view.step - old.onset_step) / self._spacing() > FOLLOW

    def _quieten(self, track: _Track, changed: list[Finding]) -> None:
        state = track.finding.state
        if state == "suspected":
            del self._tracks[track.finding.id]
        elif track.quiet < RECOVERING:
            return
        elif self._tick - track.seen >= RESOLVED:
            track.finding = replace(track.finding, state="resolved")
            self._closed.append(_Closed(track.finding, self._tick))
            del self._tracks[track.finding.id]
            changed.append(track.finding)
        elif state != "recovering":
            track.finding = replace(track.finding, state="recovering")
            changed.append(track.finding)

    def _open(self, track: _Track, view: RunView, changed: list[Finding]) -> None:
        incident = self._incident_for(track.finding)
        track.opened = self._tick
        incident.findings += [track.finding.id] if track.finding.id not in incident.findings else []
        incident.onset_step = min(incident.onset_step, track.finding.onset_step)
        track.finding = replace(
            self._within_budget(track, track.finding, incident),
            state="open", incident=incident.number, detected_step=view.step, last_step=view.step,
        )  # fmt: skip
        changed.append(track.finding)
        self._unexplained.add(incident.number)

    def _incident_for(self, finding: Finding) -> Incident:
        """The incident that a finding belongs to; a new one when none fits."""
        for other in sorted(self._standing(), key=lambda f: f.onset_step, reverse=True):
            if not _apart(finding, other) and self._belongs(finding, other):
                return self.incident(other.incident)
        for closed in reversed(self._closed):
            if closed.finding.id == finding.id and self._tick - closed.tick <= REOPEN:
                return self.incident(closed.finding.incident)
        self.incidents.append(Incident(len(self.incidents) + 1, finding.onset_step, opened=self._tick))
        return self.incidents[-1]

    def _belongs(self, finding: Finding, other: Finding) -> bool:
        """Whether a finding is part of the incident of another, open one."""
        rows = (finding.onset_step - other.onset_step) / self._spacing()
        if abs(rows) <= MERGE:
            return True
        if rows < 0 or other.severity == "info" or other.state not in ("open", "mitigating"):
            return False
        if is_integrity(other.id):
            return True
        if is_integrity(finding.id):
            return False
        return other.severity == "critical" or (rows <= FOLLOW and may_follow(finding.id, other.id))

    def _spacing(self) -> float:
        """Usual number of steps between recent rows."""
        gaps = sorted(b - a for a, b in zip(self._steps, list(self._steps)[1:], strict=False) if b > a)
        return gaps[len(gaps) // 2] if gaps else 1

    # --- how often the owner of a run is warned ---------------------------------------------------------------------

    def _within_budget(self, track: _Track, finding: Finding, incident: Incident) -> Finding:
        """The finding, as information when its incident would be one warning too many."""
        if finding.severity == "info" or incident.warned is not None:
            return finding
        before = self._spent_on(finding) if finding.severity == "warn" and track.detector.confirm > 1 else None
        if before is None:
            incident.warned = self._tick
            return finding
        severity: Severity = "info"
        words = f"{finding.summary} (a warning, held back because of incident {before.number})"
        return replace(finding, severity=severity, summary=words, evidence={**finding.evidence, "held_back": "warn"})

    def _spent_on(self, finding: Finding) -> Incident | None:
        """The incident that used up the budget: it warned recently, about the same failure or one that is still open.

        A finding upstream of everything open is no consequence of it, and too severe to wait.
        """
        above = {other.incident for other in self._standing() if may_follow(finding.id, other.id)}
        since = max(self._tick - BUDGET, self._free_from)
        for incident in reversed(self.incidents):
            recent = incident.warned is not None and incident.warned > since
            if recent and (incident.number in above or finding.id in incident.findings):
                return incident
        return None

    def _untreated(self, incident: Incident, view: RunView) -> bool:
        """Whether nothing was done about it, so that what is seen now is still its own effect."""
        members = [t.finding for t in self._tracks.values() if t.finding.incident == incident.number]
        return any(f.state == "open" and f.attempt == view.attempt for f in members)

    def _explain_all(self, view: RunView, changed: list[Finding]) -> None:
        numbers = sorted(self._unexplained)
        self._unexplained.clear()  # an incident that can't be explained must not affect later ticks
        for number in numbers:
            self._explain(self.incident(number), view, changed)

    def _explain(self, incident: Incident, view: RunView, changed: list[Finding]) -> None:
        """Explain an incident: all its open findings carry the newest causes and advice."""
        members = [track for track in self._tracks.values() if track.finding.incident == incident.number]
        if not members:
            return
        found = self._causes([track.finding for track in members], view)
        begun_again = all(track.opened > incident.opened for track in members)
        if not (begun_again and incident.causes and found[0].id == "undetermined"):
            incident.causes = found  # a known cause is kept when only part of the incident came back
        harm = worst(track.finding.severity for track in members)
        advised = self._outcomes([partial(self.advise, incident.causes, view, incident.onset_step, harm)])[0]
        incident.remedies = () if isinstance(advised, Exception) else advised
        for track in members:
            before = track.finding
            track.finding = replace(before, causes=incident.causes, remedies=incident.remedies)
            if before in changed:
                changed[changed.index(before)] = track.finding
            elif before.causes != incident.causes:  # the record must include the change, or a replay would differ
                changed.append(track.finding)

    def _causes(self, findings: Sequence[Finding], view: RunView) -> tuple[Cause, ...]:
        """The causes of an incident; undetermined, with the reason, where they can't be found."""
        found = self._outcomes([partial(self.explain, findings, view)])[0]
        if isinstance(found, Exception):
            return (Cause("undetermined", 0.0, f"the diagnosis failed: {type(found).__name__}: {found}"),)
        causes: tuple[Cause, ...] = found
        return causes

    # --- what is declared or broken ---------------------------------------------------------------------------------

    def _heed_events(self, view: RunView, changed: list[Finding]) -> None:
        """A declared change starts a new normal, so earlier warnings no longer hold back new ones."""
        start = view.baseline_start()
        if start != self._baseline:
            self._baseline, self._free_from = start, self._tick
        events = view.events(("intervention", "rollback"))
        if not events:
            return
        treated = {_incident_of(event) for event in events if event.step == view.step}
        for track in self._tracks.values():
            if track.finding.state == "open" and track.finding.incident in treated:
                track.finding = replace(track.finding, state="mitigating")
                changed.append(track.finding)

    def _report_broken(self, detector: Detector, error: Exception, view: RunView, changed: list[Finding]) -> None:
        lost = isinstance(error, TimeoutError)
        if lost:
            self._given_up.add(detector.id)
        if detector.id in self._broken:
            return
        self._broken.add(detector.id)
        number, cause = len(self.incidents) + 1, "the detector raised an exception; training is not affected"
        words = f"detector {detector.id} failed at step {view.step}: {type(error).__name__}: {error}"
        words += "; it is not asked again" if lost else ""
        finding = replace(
            DetectorError().finding(view, "info", view.step, words, detector=detector.id),
            causes=(Cause("detector-bug", 1.0, cause),), incident=number, state="resolved",
        )  # fmt: skip
        self.incidents.append(Incident(number, view.step, [finding.id], finding.causes, opened=self._tick))
        self._closed.append(_Closed(finding, self._tick))
        changed.append(finding)


def _direct(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make calls in the caller's thread, without a time limit."""
    results: list[Any] = []
    for call in calls:
        try:
            results.append(call())
        except Exception as error:
            results.append(error)
    return results


def _junk(result: Any) -> Exception | None:
    """What is wrong with a detector's answer, if anything is."""
    if result is None:
        return None
    if not isinstance(result, Finding):
        return TypeError(f"it returned {type(result).__name__}, not a finding")
    wrong = [
        name
        for name, kind in (("id", str), ("summary", str), ("onset_step", int), ("evidence", Mapping))
        if not isinstance(getattr(result, name), kind)
    ]
    wrong += [] if result.severity in SEVERITIES else ["severity"]
    return TypeError(f"its finding has no valid {wrong[0]}") if wrong else None


def _place(finding: Finding) -> tuple[int, int, str]:
    """The place of a finding among others."""
    return finding.incident, finding.onset_step, finding.id


def _apart(one: Finding, other: Finding) -> bool:
    """Whether one is measured and the other a harmless message of the log: neither explains the other."""
    if (one.id in MESSAGES) == (other.id in MESSAGES):
        return False
    message = one if one.id in MESSAGES else other
    return message.severity == "info"


def _blind(finding: Finding, view: RunView) -> bool:
    """Whether the finding's metric is not finite now: its detector is silent because it cannot see, not because all
    is well."""
    metric = finding.evidence.get("metric")
    latest = view.latest(metric) if isinstance(metric, str) else None
    return latest is not None and not math.isfinite(latest) and finding.state != "suspected"


def _incident_of(event: Event) -> int:
    incident = event.data.get("incident", 0)
    return incident if isinstance(incident, int) else 0
