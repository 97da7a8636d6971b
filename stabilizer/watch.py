"""Opens, holds, merges and closes incidents: the only place with alert state.

A detector says at every tick what it sees at that tick. Here a finding must stand for some ticks before it opens
(`Detector.confirm`), stays open through short gaps, is called recovering after `RECOVERING` quiet ticks and resolved
after `RESOLVED`. Findings whose onsets lie close together, or that come up while an incident is active, belong to
that incident: one cause gives one incident, not fifty findings.

A tick is one logged row. The watch sees nothing but the views it is shown, in the order they are shown, so a live run,
its replay and a resumed run give the same incidents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stabilizer.detectors import DETECTORS, ENDINGS
from stabilizer.detectors.base import Detector
from stabilizer.diagnosis import causes
from stabilizer.records import SEVERITIES, Cause, Event, Finding, RemedyAdvice, worst
from stabilizer.remedies import advise
from stabilizer.runs.history import RunView
from stabilizer.runs.loaded import LoadedRun
from stabilizer.vocabulary import is_rl

RECOVERING = 5
"""Quiet ticks after which a finding is recovering."""
RESOLVED = 20
"""Quiet ticks after which it is resolved."""
MERGE_STEPS = 50
"""Onsets this close belong to one incident."""
FOLLOW_STEPS = 150
"""A finding that begins this soon after one with damage is taken for its consequence while that one stands."""
TOO_SHORT = 25
"""Rows under which a run without findings is too short to be called healthy."""


@dataclass
class Incident:
    """One thing that went wrong: its findings, when it began, and why."""

    number: int
    onset_step: int
    findings: list[str] = field(default_factory=list)
    causes: tuple[Cause, ...] = ()
    remedies: tuple[RemedyAdvice, ...] = ()


@dataclass
class _Track:
    """What is known of one detector's finding while it stands."""

    finding: Finding
    raised: int = 1
    quiet: int = 0


class Watch:
    """Alert state of one run. `tick` with every new view; `findings` is how things stand."""

    def __init__(self, detectors: Sequence[Detector] = DETECTORS):
        self.detectors = tuple(detectors)
        self.incidents: list[Incident] = []
        self._tracks: dict[str, _Track] = {}
        self._closed: list[Finding] = []
        self._broken: set[str] = set()

    def tick(self, view: RunView) -> list[Finding]:
        """Ask every detector about `view`; returns findings that opened, got worse, changed state or closed."""
        changed: list[Finding] = []
        self._heed_interventions(view, changed)
        for detector in self.detectors:
            if detector.at_end:
                continue
            try:
                result = detector.check(view)
            except Exception as error:  # a detector that fails must not take training down: it becomes a finding
                result = None
                self._report_broken(detector, error, view, changed)
            self._advance(detector, result, view, changed)
        return changed

    def end(self, view: RunView) -> list[Finding]:
        """Say that the run is over at `view`: now it can be told whether a failure was the last thing that happened."""
        changed: list[Finding] = []
        for detector in self.detectors:
            if not detector.at_end:
                continue
            try:
                result = detector.check(view)
            except Exception as error:  # what ended the run must not be hidden by what failed while looking for it
                self._report_broken(detector, error, view, changed)
            else:
                self._advance(detector, result, view, changed)
        return changed

    def findings(self) -> list[Finding]:
        """Every finding that ever opened, as it stands now, in order of incident and onset."""
        standing = [track.finding for track in self._tracks.values() if track.finding.state != "suspected"]
        return sorted([*self._closed, *standing], key=lambda f: (f.incident, f.onset_step, f.id))

    def active(self) -> list[Finding]:
        """Findings that are not resolved."""
        return [finding for finding in self.findings() if finding.state != "resolved"]

    def verdict(self, view: RunView) -> tuple[str, str | None]:
        """(how the run stands, the worst that was ever seen) as `diagnose` reports them."""
        ever = worst(finding.severity for finding in self.findings())
        now = worst(finding.severity for finding in self.active())
        if any(finding.severity == "critical" and finding.id in ENDINGS for finding in self.active()):
            return "crashed", ever
        if now:
            return now, ever
        rows = max((len(view.series(name)) for name in view.names()), default=0)
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
        track = self._tracks.get(detector.id)
        if result is not None:
            if track is None:
                track = self._tracks[detector.id] = _Track(result)
            else:
                track.raised, track.quiet = track.raised + 1, 0
            self._raise(detector, track, result, view, changed)
        elif track is not None and not _blind(track.finding, view):
            track.raised, track.quiet = 0, track.quiet + 1
            self._quieten(detector, track, changed)

    def _raise(self, detector: Detector, track: _Track, result: Finding, view: RunView, changed: list[Finding]) -> None:
        old = track.finding
        if old.state == "suspected":
            track.finding = replace(result, onset_step=min(old.onset_step, result.onset_step))
            if track.raised >= detector.confirm:
                self._open(track, view, changed)
            return
        severity = max(old.severity, result.severity, key=SEVERITIES.index)
        state = "open" if old.state == "recovering" else old.state
        track.finding = replace(
            old, severity=severity, state=state, last_step=view.step, attempt=view.attempt,
            summary=result.summary, evidence=result.evidence,
        )  # fmt: skip
        if severity != old.severity or state != old.state:
            changed.append(track.finding)
        if severity != old.severity:
            self._explain(track.finding.incident, view, changed)

    def _quieten(self, detector: Detector, track: _Track, changed: list[Finding]) -> None:
        state = track.finding.state
        if state == "suspected":
            del self._tracks[detector.id]
        elif track.quiet >= RESOLVED:
            track.finding = replace(track.finding, state="resolved")
            self._closed.append(track.finding)
            del self._tracks[detector.id]
            changed.append(track.finding)
        elif track.quiet >= RECOVERING and state != "recovering":
            track.finding = replace(track.finding, state="recovering")
            changed.append(track.finding)

    def _open(self, track: _Track, view: RunView, changed: list[Finding]) -> None:
        incident = self._incident_for(track.finding)
        incident.findings += [track.finding.id] if track.finding.id not in incident.findings else []
        incident.onset_step = min(incident.onset_step, track.finding.onset_step)
        track.finding = replace(
            track.finding, state="open", incident=incident.number, detected_step=view.step, last_step=view.step
        )
        changed.append(track.finding)
        self._explain(incident.number, view, changed)

    def _incident_for(self, finding: Finding) -> Incident:
        """The incident a finding belongs to: one with an onset nearby, or one whose consequence it may be."""
        standing = [track.finding for track in self._tracks.values() if track.finding.state != "suspected"]
        for other in sorted(standing, key=lambda f: f.onset_step, reverse=True):
            since = finding.onset_step - other.onset_step
            follows = other.state in ("open", "mitigating") and other.severity != "info" and 0 <= since <= FOLLOW_STEPS
            if abs(since) <= MERGE_STEPS or follows:
                return self.incident(other.incident)
        self.incidents.append(Incident(len(self.incidents) + 1, finding.onset_step))
        return self.incidents[-1]

    def _explain(self, number: int, view: RunView, changed: list[Finding]) -> None:
        """Causes and advice belong to the incident: all its standing findings carry the newest."""
        incident = self.incident(number)
        members = [track for track in self._tracks.values() if track.finding.incident == number]
        incident.causes = causes([track.finding for track in members], view)
        incident.remedies = advise(incident.causes, view)
        for track in members:
            told = track.finding
            track.finding = replace(told, causes=incident.causes, remedies=incident.remedies)
            if told in changed:
                changed[changed.index(told)] = track.finding
            elif told.causes != incident.causes:
                changed.append(track.finding)

    # --- what is declared or broken ---------------------------------------------------------------------------------

    def _heed_interventions(self, view: RunView, changed: list[Finding]) -> None:
        treated = {
            _incident_of(event) for event in view.events(("intervention", "rollback")) if event.step == view.step
        }
        for track in self._tracks.values():
            if track.finding.state == "open" and track.finding.incident in treated:
                track.finding = replace(track.finding, state="mitigating")
                changed.append(track.finding)

    def _report_broken(self, detector: Detector, error: Exception, view: RunView, changed: list[Finding]) -> None:
        if detector.id in self._broken:
            return
        self._broken.add(detector.id)
        finding = Finding(
            id="system/detector-error",
            severity="info",
            summary=f"detector {detector.id} failed at step {view.step}: {type(error).__name__}: {error}",
            onset_step=view.step,
            detected_step=view.step,
            last_step=view.step,
            evidence={"detector": detector.id},
            attempt=view.attempt,
            causes=(Cause("detector-bug", 1.0, "the detector raised an exception; training is not affected"),),
        )
        self.incidents.append(Incident(len(self.incidents) + 1, view.step, [finding.id], finding.causes))
        finding = replace(finding, incident=len(self.incidents), state="resolved")
        self._closed.append(finding)
        changed.append(finding)


def _blind(finding: Finding, view: RunView) -> bool:
    """The finding's metric is not a number now: its detector is silent because it can't see, not because all's well."""
    metric = finding.evidence.get("metric")
    latest = view.latest(metric) if isinstance(metric, str) else None
    return latest is not None and not math.isfinite(latest) and finding.state != "suspected"


def _incident_of(event: Event) -> int:
    incident = event.data.get("incident", 0)
    return incident if isinstance(incident, int) else 0


def watch_run(run: LoadedRun, detectors: Sequence[Detector] = DETECTORS) -> Watch:
    """Replay a run as it was written; the watch then holds what a live one would have held."""
    watch = Watch(detectors)
    for view in run.views():
        watch.tick(view)
    watch.end(run.history.view())
    return watch
