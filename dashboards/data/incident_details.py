"""The data of an incident's page: its onset, the order of events, look-alikes and trials."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from dashboards.data.followed_run import Reader
from dashboards.data.run_page import ranked
from dashboards.data.trials import facts_of, trials_of
from stabilizer.core.metrics import VOCABULARY
from stabilizer.core.records import Event, Finding, RemedyAdvice
from stabilizer.core.text import rounded, short
from stabilizer.detectors.manual import all_detectors, sections
from stabilizer.figures import Theme
from stabilizer.figures.incident import around, order_figure
from stabilizer.figures.lineage import Lineage, on_lineage
from stabilizer.figures.words import concerns, definition
from stabilizer.incidents.diagnosis.case import BEFORE, Case
from stabilizer.incidents.diagnosis.order import Departed, Onset, departures, onset
from stabilizer.remedies import fitted
from stabilizer.runs.history import RunView
from stabilizer.runs.listing import state_of
from stabilizer.runs.story import Incident, TrialStory, incidents

MAX_CHARTS = 6
AFTER = 60
"""Rows after an incident's onset, at least, that its charts show."""
LONGEST = 1000
"""Rows after its onset that the charts of an open incident show at most; what comes later is on the run's page."""
MAX_SIGNALS = 20


@dataclass(frozen=True)
class Fact:
    """One detector or metric that a look-alike depends on, and what this run shows of it."""

    name: str
    says: str
    detector: bool = False


@dataclass(frozen=True)
class LookAlikes:
    """The look-alikes named by a detector's page, and what this run measured of them."""

    detector: str
    texts: tuple[str, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class IncidentDetails:
    """Everything the page of an incident shows, without the figures."""

    incident: Incident
    advice: tuple[RemedyAdvice, ...]
    """The advice that still applies in the state of the run."""
    evidence: tuple[tuple[str, str], ...]
    onset: Onset
    signals: tuple[Departed, ...]
    low: int
    high: int
    until: int
    """The step up to which the charts follow a live run; `high` where they show everything, or a branch left behind."""
    attempt: int
    left_behind: int | None
    """The step from which the shown branch was rolled back; None on the current lineage."""
    lookalikes: tuple[LookAlikes, ...]
    trials: tuple[TrialStory, ...]
    previous: str
    next: str
    place: int
    count: int


def _dated(lead: Finding) -> dict[str, Any]:
    """The evidence of a finding; of a resolved one the newest value has its step."""
    now = "now" if lead.state != "resolved" else f"at step {lead.last_step:,}"
    return {now if key == "now" else key: value for key, value in lead.evidence.items()}


def advice_for(incident: Incident, reader: Reader) -> tuple[RemedyAdvice, ...]:
    """The advice on record, as far as it fits the state of the run."""
    ours = reader.about.get("trainer", "stabilizer") == "stabilizer"
    state = state_of(reader.status, time.time())
    view = reader.history.view()
    return fitted(incident.remedies, harm=incident.harm, state=state, ours=ours, cause=incident.cause, view=view)


def incident_details(reader: Reader, key: str) -> IncidentDetails | None:
    """One incident, looked up among those there are; None when there is none of that name."""
    found = ranked(incidents(reader.findings))
    keys = [incident.key for incident in found]
    if key not in keys:
        return None
    place = keys.index(key)
    incident = found[place]
    view, left_behind = _lineage(reader, incident)
    # what came back on another branch has an onset of its own there
    ids = {finding.id for finding in incident.findings}
    here = [f for f in _found(reader, view) if f.incident == incident.number and f.id in ids] or incident.findings
    began = onset(here, view)
    rows = Case(here, view).spacing
    high = max(incident.last if left_behind is None else min(incident.last, view.step), began.step) + AFTER * rows
    if incident.open and left_behind is None:
        high = max(high, began.step + LONGEST * rows)
    shown = int(min(high, max(view.step, began.step + 1)))
    return IncidentDetails(
        incident=incident,
        advice=advice_for(incident, reader),
        evidence=facts_of(_dated(incident.lead)),
        onset=began,
        signals=departures(here, view)[:MAX_SIGNALS],
        low=int(max(0, began.step - BEFORE * rows)),
        high=shown,
        until=int(high) if view.attempt == reader.history.attempt else shown,
        attempt=view.attempt,
        left_behind=left_behind,
        lookalikes=tuple(_lookalikes(finding.id, incident, found, view) for finding in incident.findings),
        trials=tuple(trial for trial in trials_of(reader.actions) if incident.number == trial.incident != 0),
        previous=keys[place - 1] if place else "",
        next=keys[place + 1] if place + 1 < len(keys) else "",
        place=place + 1,
        count=len(keys),
    )


def timeline(page: IncidentDetails, theme: Theme) -> go.Figure | None:
    """The order in which signals left; None when none is known to have."""
    if not page.signals:
        return None
    incident = page.incident
    return order_figure(page.signals, page.onset, incident.findings, noticed=incident.detected, theme=theme)


def charts(
    reader: Reader, page: IncidentDetails, theme: Theme, notes: Sequence[Event] = ()
) -> list[tuple[str, go.Figure]]:
    """Charts of the metrics involved, around the onset: those the findings mention, then those that departed; with the
    notes of viewers."""
    incident = page.incident
    view, _ = _lineage(reader, incident)
    spoken = [name for finding in incident.findings for name in sorted(concerns(finding)) if name in view]
    names = dict.fromkeys([*spoken, *(signal.metric for signal in page.signals if signal.metric in view)])
    events = [*view.events(), *notes]
    return [(name, _around(reader, view, name, page, events, theme)) for name in list(names)[:MAX_CHARTS]]


def _around(
    reader: Reader, view: RunView, name: str, page: IncidentDetails, events: Sequence[Event], theme: Theme
) -> go.Figure:
    made = [action for action in reader.actions if action.attempt <= view.attempt]  # later attempts are another lineage
    shown: dict[str, Any] = {"findings": _found(reader, view), "events": events, "actions": made, "theme": theme}
    figure = around(view, name, page.low, page.high, **shown)
    # As wide as its points, so that it grows with them; a span that changed would undo what somebody zoomed to.
    return figure.update_layout(uirevision=escape(name)).update_xaxes(range=None)


def _found(reader: Reader, view: RunView) -> list[Finding]:
    """The findings on the lineage that is shown."""
    return on_lineage(reader.findings, Lineage.of(view.attempt, reader.about))


def _lineage(reader: Reader, incident: Incident) -> tuple[RunView, int | None]:
    """The run on the attempt in which the incident opened, and the step from which that attempt was rolled back.

    An incident that began before a resume and is still open belongs to the current lineage.
    """
    ids = {finding.id for finding in incident.findings}
    opened = [f.attempt for f in reader.findings if f.incident == incident.number and f.id in ids]
    current = reader.history
    history = reader.histories.get(min(opened, default=current.attempt), current)
    later = current.forks[len(history.forks) :]
    goes_on = incident.open and max(opened, default=-1) == current.attempt and incident.onset < min(later, default=0)
    if history is current or goes_on:
        return current.view(), None
    rows = reader.about.get("attempts")
    starts = [
        row["from_step"]
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and row.get("parent") == history.attempt and isinstance(row.get("from_step"), int)
    ]
    left = min(starts, default=None)
    return history.view(), left if left is not None and left <= incident.last else None


def _lookalikes(id: str, incident: Incident, found: Sequence[Incident], view: RunView) -> LookAlikes:
    detector = all_detectors().get(id)
    section = next((s for s in sections(detector) if s.title == "Look-alikes"), None) if detector else None
    texts = tuple(paragraph.text for paragraph in section.paragraphs) if section else ()
    facts = [_fact(name, incident, found, view) for name in _quoted(texts)]
    return LookAlikes(id, texts, tuple(fact for fact in facts if fact))


def _quoted(texts: Iterable[str]) -> list[str]:
    """Names in backticks, each once."""
    return list(dict.fromkeys(name for text in texts for name in re.findall(r"`([^`]+)`", text)))


def _fact(name: str, incident: Incident, found: Sequence[Incident], view: RunView) -> Fact | None:
    """What this run shows of a detector or metric that a page names; None for any other word."""
    if detector := all_detectors().get(name):
        if any(finding.id == name for finding in incident.findings):
            return Fact(name, "also found in this incident", True)
        if other := next((one for one in found if any(f.id == name for f in one.findings)), None):
            return Fact(name, f"found in another incident (onset at step {other.onset:,})", True)
        if missing := detector.missing(view):
            return Fact(name, f"not checked: this run does not log {missing[0].replace('|', ' or ')}", True)
        return Fact(name, "checked, not found in this run", True)
    if "/" not in name or (name not in view and name not in VOCABULARY):
        return None
    if name not in view:
        return Fact(name, "not logged by this run")
    unit = definition(view, name).unit
    unit = "" if unit in ("", "1") else f" {unit}"
    shift = Case(incident.findings, view).shift(name)
    if shift is None:
        latest = view.latest(name)
        return Fact(name, f"last {short(latest)}{unit} at step {int(view.series(name).steps[-1]):,}")
    before, after = map(rounded, shift)
    return Fact(name, f"{before} before, {after}{unit} since (medians of up to 100 and 30 rows)")
