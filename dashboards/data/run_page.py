"""The page of a run as plain data, without the charts: a header, incidents and trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dashboards.data.followed_run import FollowedRun, Reader
from dashboards.data.logs import LogReader
from dashboards.data.run_verdict import RunVerdict, verdict_of_reader
from dashboards.data.trials import trials_of
from stabilizer.analysis.changes import Change, changes
from stabilizer.analysis.health import Healthy, healthy
from stabilizer.core.records import SEVERITIES
from stabilizer.core.text import short
from stabilizer.detectors.evidence.forecast import forecast
from stabilizer.figures.words import definition
from stabilizer.runs.history import RunView
from stabilizer.runs.listing import heartbeat_of, state_of, whole_number, word, writer_lives
from stabilizer.runs.loaded import imported
from stabilizer.runs.story import Incident, TrialStory, incidents, newest_findings

KEY_METRICS = (
    {"reward/mean": "Reward"},
    {"accuracy/val": "Accuracy, held out"},
    {"accuracy/train": "Accuracy, training"},
    {"optim/grad_norm": "Gradient norm"},
    {"policy/kl_ref": "KL to reference", "policy/kl_old": "KL to old policy"},
    {"policy/entropy": "Entropy"},
)
"""Metrics of the header with their labels; of one row the first that the run logs."""
MAX_KEYS = 5
MOST_CHANGES = 4
"""Changes that the page of a run lists; the page Setup has them all."""
FORECAST = ("healthy", *SEVERITIES)
"""Verdicts of runs that are long enough for an outlook and for a list of what is healthy."""
MOST_NOTES = 5
"""Notes of the reader of a foreign log that its page shows."""


@dataclass(frozen=True)
class KeyNumber:
    """A number of the header: what it is, how much, of what, and when."""

    label: str
    value: str
    unit: str
    step: int
    finite: bool


class Changed(NamedTuple):
    """The largest changes up to a step, and what is healthy."""

    step: int
    changes: tuple[Change, ...]
    healthy: tuple[Healthy, ...] = ()


@dataclass(frozen=True)
class Page:
    """Everything the page of a run shows, without the charts."""

    name: str
    task: str
    trainer: str
    state: str
    heartbeat: float | None
    step: int
    steps: int | None
    attempt: int
    run_verdict: RunVerdict
    lives: bool | None = None
    """Whether the process that writes the run exists; None where that can't be seen."""
    numbers: tuple[KeyNumber, ...] = ()
    incidents: tuple[Incident, ...] = ()
    """The open ones first, then the newest."""
    trials: tuple[TrialStory, ...] = ()
    """The newest first."""
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The verdict on the run, in a word."""
        return self.run_verdict.verdict

    @property
    def progress(self) -> float | None:
        """Percent of the planned steps, None when no plan is known."""
        return min(100.0, 100.0 * max(self.step, 0) / self.steps) if self.steps else None

    @property
    def open(self) -> tuple[Incident, ...]:
        """Incidents that are open, the most severe first."""
        return tuple(sorted((i for i in self.incidents if i.open), key=lambda i: -SEVERITIES.index(i.severity)))

    @property
    def waiting(self) -> tuple[TrialStory, ...]:
        """Proposals that nobody has answered; advice asks for no answer."""
        return () if self.over else tuple(trial for trial in self.trials if trial.waiting)

    @property
    def news(self) -> tuple[TrialStory, ...]:
        """The newest trial that was applied; while the run goes on also a newer one that was not, such as a proposal
        that was approved and is refused."""
        answered = [trial for trial in self.trials if trial.newest.entry != "proposed"]
        applied = [trial for trial in answered if trial.made][:1]
        return tuple(applied if self.over or answered[:1] == applied else answered[:1] + applied)

    @property
    def over(self) -> bool:
        """Whether the run is not expected to continue."""
        return self.state in ("finished", "failed", "stopped", "preempted", "quiet", "unreadable")


def changed_now(followed: FollowedRun) -> Changed | None:
    """The largest moves of a run's metrics up to now; None where it can't be read."""
    try:
        with followed.lock:
            reader, verdict = followed.refresh(), followed.verdict().verdict
            view = reader.history.view()
            return Changed(
                view.step,
                tuple(changes(view)[:MOST_CHANGES]),
                tuple(healthy(view, newest_findings(reader.findings))) if verdict in FORECAST else (),
            )
    except Exception:  # the page itself says why it can't be read
        return None


def outlook_now(followed: FollowedRun) -> tuple[str, ...]:
    """Where the run is heading, in sentences. It takes a second for a very long run, so it holds up no poll."""
    try:
        with followed.lock:
            view, verdict = followed.refresh().history.view(), followed.verdict().verdict
        ahead = forecast(view) if verdict in FORECAST else None
        return tuple(ahead.lines) if ahead else ()
    except Exception:  # the page itself says why it can't be read
        return ()


def page_of(reader: Reader, now: float, verdict: RunVerdict | None = None) -> Page:
    """The page of a run as its reader has it now."""
    view = reader.history.view()
    return Page(
        **_about(reader.path, reader.about, reader.status, now),
        step=view.step,
        attempt=view.attempt,
        run_verdict=(verdict := verdict or verdict_of_reader(reader)),
        numbers=key_numbers(view),
        incidents=ranked(incidents(reader.findings)) if verdict.verdict != "not-rl" else (),
        trials=trials_of(reader.actions),
        notes=(
            *(reader.notes if isinstance(reader, LogReader) else import_notes(reader.about)),
            *_skipped(reader.about, reader.skipped),
        ),
    )


def _about(path: Path, about: Mapping[str, Any], status: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Fields of a page that come from `run.json` and `status.json` alone."""
    return {
        "name": path.name,
        "task": word(about.get("task")),
        "trainer": word(about.get("trainer")),
        "steps": whole_number(about.get("steps")),
        "state": state_of(status, now),
        "lives": writer_lives(dict(status)),
        "heartbeat": heartbeat_of(status),
    }


def import_notes(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Where an imported run came from, and the notes of its import; empty of any other run."""
    source = imported(about)
    return (f"Imported from a log ({source.format}).", *source.notes[:MOST_NOTES]) if source else ()


def _skipped(about: Mapping[str, Any], skipped: int) -> tuple[str, ...]:
    source = imported(about)
    skipped += source.skipped_lines if source else 0
    lines = "line" if skipped == 1 else "lines"
    return (f"{skipped:,} unreadable {lines} skipped",) if skipped else ()


def ranked(found: Iterable[Incident]) -> tuple[Incident, ...]:
    """Incidents in the order in which pages list them: the open ones first, then the newest."""
    return tuple(sorted(found, key=lambda incident: (incident.open, incident.onset), reverse=True))


def latest_words(incident: Incident) -> str:
    """The newest summary of an incident, where it differs from the one it is known by; else empty."""
    return f"{'now' if incident.open else 'last'}: {incident.latest}" if incident.latest else ""


def cause_words(incident: Incident) -> str:
    """The most likely cause and its confidence, which "undetermined" has none of."""
    if not incident.causes:
        return ""
    cause = incident.causes[0]
    return cause.id if cause.id == "undetermined" else f"{cause.id}, {cause.confidence:.0%} sure"


def key_numbers(view: RunView) -> tuple[KeyNumber, ...]:
    """The few numbers one looks at first, with the step each was measured at."""
    out = []
    for labels in KEY_METRICS:
        name = next((name for name in labels if name in view), None)
        if name is None:
            continue
        series = view.series(name)
        value, unit = float(series.values[-1]), definition(view, name).unit
        text = f"{value:.3f}" if math.isfinite(value) and 0.01 <= abs(value) < 10 else short(value)
        label = labels[name]
        unit = "" if unit in ("1", label.casefold()) else unit
        out.append(KeyNumber(label, text, unit, int(series.steps[-1]), math.isfinite(value)))
    return tuple(out[:MAX_KEYS])
