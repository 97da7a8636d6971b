"""Incidents and trials as people read them: one shape each for the terminal, the report and the pages.

An incident is made of the records of its findings, a trial of the entries of the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from stabilizer.core.records import (
    SEVERITIES,
    Action,
    Cause,
    Finding,
    JournalEntry,
    Origin,
    RemedyAdvice,
    Severity,
    worst,
)
from stabilizer.runs.journal import origin_of

ENDS = ("system/crashed", "system/config-error")
"""Findings about what ended a run."""
LINES = "system/known-trouble"
"""The finding about lines of a log that are known and ended nothing."""


@dataclass(frozen=True)
class Incident:
    """Findings that belong together, newest record of each, the gravest and earliest first.

    Its title, and the numbers in its headline, are those from when it opened or last got worse. They stay while it is
    open, whatever joins it later.
    """

    number: int
    findings: tuple[Finding, ...]
    lead: Finding
    """The finding it is named after: the gravest of those with which it became more than a remark."""
    summary: str
    """The summary of that finding from when it last opened or got worse."""
    spoke: int
    """The step of that summary."""
    onset: int
    """When the first of it began."""
    detected: int
    """When the first of it was noticed."""

    @property
    def id(self) -> str:
        """The id of the finding it is named after."""
        return self.lead.id

    @property
    def key(self) -> str:
        """Its name in an address: its number, or the id of its finding where it never got one."""
        return str(self.number) if self.number else self.lead.id

    @property
    def state(self) -> str:
        """The state of the most severe finding."""
        return self.findings[0].state

    @property
    def others(self) -> tuple[Finding, ...]:
        """Its findings beside the one it is named after."""
        return tuple(finding for finding in self.findings if finding.id != self.lead.id)

    @property
    def harm(self) -> Severity | None:
        """The worst severity of what is unresolved; None where nothing is."""
        return worst(finding.severity for finding in self.findings if finding.state != "resolved")

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Possible causes, the most likely first, by the finding that explains the incident."""
        return tuple(sorted(self.explained.causes, key=lambda cause: -cause.confidence))

    @property
    def remedies(self) -> tuple[RemedyAdvice, ...]:
        """Advice on record, before it is fitted to the state of the run."""
        return tuple(next((found.remedies for found in (self.explained, *self.findings) if found.remedies), ()))

    @property
    def latest(self) -> str:
        """The present summary of the lead, where it differs."""
        return "" if self.lead.summary == self.summary else self.lead.summary

    @property
    def severity(self) -> str:
        """The gravest severity among the findings."""
        return worst(finding.severity for finding in self.findings) or "info"

    @property
    def open(self) -> bool:
        """Whether any of its findings is unresolved."""
        return any(finding.state != "resolved" for finding in self.findings)

    @property
    def last(self) -> int:
        """When the last of it was seen."""
        return max(finding.last_step for finding in self.findings)

    @property
    def when(self) -> str:
        """Since when it lasts, or between which steps it was seen."""
        return f"since step {self.onset:,}" if self.open else f"from step {self.onset:,} to {self.last:,}"

    @property
    def told(self) -> str:
        """Its summary; with the step it speaks of where the incident is over."""
        return self.summary if self.open else dated(self.summary, self.spoke)

    @property
    def headline(self) -> str:
        """What was reported when it opened or got worse, where none of its findings says the same by now."""
        return "" if self.summary in {finding.summary for finding in self.findings} else self.summary

    @property
    def explained(self) -> Finding:
        """The finding with the newest explanation, the gravest of several.

        A resolved finding keeps its explanation: what is left of the incident may no longer show its cause. Other lines
        of a log, however sure their meaning is, explain no end of the run, and harmless ones nothing at all.
        """
        ended = any(finding.id in ENDS for finding in self.findings)
        lines = [f for f in self.findings if f.id == LINES and (ended or f.severity == "info")]
        able = [finding for finding in self.findings if finding not in lines] or lines
        known = [f for f in able if f.causes and f.causes[0].id != "undetermined"]
        return max(
            known or able,
            key=lambda f: (bool(f.causes), f.last_step, f.detected_step, SEVERITIES.index(f.severity)),
        )

    @property
    def cause(self) -> str:
        """The likeliest cause, `undetermined` when no rule explains what was seen."""
        causes = self.explained.causes
        return causes[0].id if causes else "undetermined"


def newest_findings(records: Iterable[Finding]) -> list[Finding]:
    """findings.jsonl holds one record per change: the newest record of each finding, in order of first appearance."""
    newest: dict[tuple[int, str], Finding] = {}
    for finding in records:
        newest[finding.incident, finding.id] = finding
    return list(newest.values())


def incidents(records: Iterable[Finding]) -> list[Incident]:
    """Findings grouped by incident, oldest onset first. One of no incident (number 0) is a group of its own."""
    groups: dict[Any, dict[str, list[Finding]]] = {}
    for finding in records:
        groups.setdefault(finding.incident or finding.id, {}).setdefault(finding.id, []).append(finding)
    return sorted((_incident_of(list(lives.values())) for lives in groups.values()), key=lambda found: found.onset)


def _incident_of(lives: Sequence[Sequence[Finding]]) -> Incident:
    """One incident from the records of each of its findings, in the order in which they first appeared."""
    newest = [life[-1] for life in lives]
    ranked = sorted(newest, key=lambda f: (f.state == "resolved", -SEVERITIES.index(f.severity), f.onset_step))
    lead = min(lives, key=_named_first)
    every = [record for life in lives for record in life]
    opened = _as_opened(lead)
    return Incident(
        lead[0].incident, tuple(ranked), lead[-1], opened.summary, opened.last_step,
        onset=min(record.onset_step for record in every), detected=min(record.detected_step for record in every),
    )  # fmt: skip


def _named_first(life: Sequence[Finding]) -> tuple[bool, int, int, int]:
    """The order in which findings name an incident: remarks last, then the earliest, then the gravest."""
    grave = next((record for record in life if record.severity != "info"), life[0])
    since = grave.detected_step if grave is life[0] else grave.last_step
    return grave.severity == "info", grave.attempt, since, -SEVERITIES.index(grave.severity)


def _as_opened(life: Sequence[Finding]) -> Finding:
    """A finding when it last opened or got worse, from its records."""
    opened = life[0]
    for before, record in pairwise(life):
        worse = SEVERITIES.index(record.severity) > SEVERITIES.index(before.severity)
        if worse or (before.state == "resolved" and record.state != "resolved"):
            opened = record
    return opened


def dated(summary: str, step: int) -> str:
    """The words about a moment that is over, with the step at which they were true."""
    return f"At step {step:,}: {summary}"


# --- trials -----------------------------------------------------------------------------------------------------------

Outcome = Literal["proposed", "rejected", "expired", "failed", "on trial", "kept", "undone"]

_OUTCOMES: Mapping[JournalEntry, Outcome] = {
    "proposed": "proposed",
    "rejected": "rejected",
    "expired": "expired",
    "failed": "failed",
    "approved": "on trial",
    "applied": "on trial",
    "verified": "kept",
    "reverted": "undone",
}


@dataclass(frozen=True)
class Hypothesis:
    """What was written down before anything was changed."""

    why: str
    expects: str
    guard: str
    """The metric that must not get worse; empty where the journal names none."""
    horizon: int | None
    """Steps until it is judged."""
    undo: Mapping[str, Any]
    """Knob -> the value it goes back to."""
    cost: str


@dataclass(frozen=True)
class TrialStory:
    """One action of the journal, from its first entry to its newest: what a remedy tried, or what a person changed."""

    action: str
    remedy: str
    incident: int
    safety: str
    origin: Origin
    by: str
    """The person who began it; empty for a remedy's."""
    entries: tuple[Action, ...]
    """Oldest first."""
    outcome: Outcome
    made: bool
    """Whether anything was changed."""
    step: int
    """The step after which it was made; the step of its first entry where it never was."""
    ended: int | None
    """The step at which it was decided, kept or undone; None while it is not."""
    change: Mapping[str, tuple[float | None, float | None]]
    order: str
    """What was done that turns no knob (`reset-optimizer`, a return to a checkpoint); empty when nothing was."""
    why: str
    result: str
    """The outcome in the journal's words; empty while there is none."""
    hypothesis: Hypothesis | None
    twin: Mapping[str, Any]
    """What a paired fork measured with and without the change; empty when none was run."""

    @property
    def newest(self) -> Action:
        """Its newest entry."""
        return self.entries[-1]

    @property
    def waiting(self) -> bool:
        """Whether it waits for a person's answer; advice waits for none."""
        return self.outcome == "proposed" and self.safety != "advice"

    @property
    def expects(self) -> str:
        """What was expected of it."""
        return self.hypothesis.expects if self.hypothesis else ""


def trials(actions: Iterable[Action]) -> list[TrialStory]:
    """Every action of a journal, in the order in which they began."""
    lives: dict[str, list[Action]] = {}
    for action in actions:
        lives.setdefault(action.action, []).append(action)
    return [_trial_of(life) for life in lives.values()]


def interventions(actions: Iterable[Action]) -> list[TrialStory]:
    """Every change that was made to a run while it trained, in the order in which they were made."""
    made = [one for one in trials(actions) if one.made]
    return sorted(made, key=lambda one: next(entry.n for entry in one.entries if entry.entry == "applied"))


def _trial_of(life: Sequence[Action]) -> TrialStory:
    first, last = life[0], life[-1]
    applied = next((entry for entry in life if entry.entry == "applied"), None)
    proposed = next((entry for entry in life if entry.entry == "proposed"), applied or first)
    person = origin_of(first) == "person"
    outcome = _outcome(last, made=applied is not None, person=person)
    decided = last.entry not in ("proposed", "approved", "applied")
    changed = applied or next((entry for entry in reversed(life) if entry.change), first)
    return TrialStory(
        action=first.action,
        remedy=(applied or first).remedy,
        incident=first.incident,
        safety=first.safety,
        origin=origin_of(first),
        by=str((applied or first).data.get("by", "")) if person else "",
        entries=tuple(life),
        outcome=outcome,
        made=applied is not None,
        step=(applied or first).step,
        ended=last.step if decided else None,
        change=dict(changed.change),
        order=_order(applied),
        why=proposed.text,
        result=last.text if decided else "",
        hypothesis=_hypothesis(proposed, applied),
        twin=next((e.data["twin"] for e in reversed(life) if isinstance(e.data.get("twin"), dict)), {}),
    )


def _outcome(last: Action, *, made: bool, person: bool) -> Outcome:
    """What a person did is kept until it is undone; a change that failed after it was made was undone."""
    if person and last.entry == "applied":
        return "kept"
    return "undone" if made and last.entry == "failed" else _OUTCOMES[last.entry]


def _order(applied: Action | None) -> str:
    if applied is None:
        return ""
    return str(applied.data.get("order", "") or (applied.text if not applied.change else ""))


def _hypothesis(proposed: Action, applied: Action | None) -> Hypothesis | None:
    """What was promised; the level to keep is that of just before the change, which may be long after the proposal."""
    card = proposed.data.get("hypothesis")
    if not isinstance(card, Mapping):
        return None
    guard = applied.data if applied and "guard" in applied.data else card
    undo = card.get("undo")
    return Hypothesis(
        why=_text(card.get("why")) or proposed.text,
        expects=_text(card.get("expects")),
        guard=_text(guard.get("guard")),
        horizon=_whole(card.get("horizon_steps")),
        undo=undo if isinstance(undo, Mapping) else {},
        cost=_text(card.get("cost")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def summary(actions: Iterable[Action]) -> dict[str, Any]:
    """How much a run was changed while it trained: a count, and a sentence for people."""
    made = interventions(actions)
    people = sum(one.origin == "person" for one in made)
    undone = sum(one.outcome == "undone" for one in made)
    if not made:
        return {"count": 0, "by_hand": 0, "kept": 0, "undone": 0, "text": "nothing was changed while this run trained"}
    times = "once" if len(made) == 1 else f"{len(made)} times"
    parts = [f"{people} by hand"] if people else []
    parts += [f"{undone} undone"] if undone else []
    more = f" ({', '.join(parts)})" if parts else ""
    text = f"changed {times} while it trained{more}: not a plain run"
    kept = sum(one.outcome == "kept" for one in made)
    return {"count": len(made), "by_hand": people, "kept": kept, "undone": undone, "text": text}


NO_TWIN = "no twin was run, so what would have happened without it is not known"


def twin_words(made: TrialStory) -> str:
    """What the paired fork says would have happened, or that there was none.

    The journal holds either two numbers (`with`, `without`, `metric`) or the curves of both copies, the one that was
    left alone first. Of curves the mean over the fork counts, because single steps are noise.
    """
    twin = made.twin
    steps = twin.get("steps")
    span = f"over {steps} steps" if isinstance(steps, int) else "over its steps"
    said = []
    if pair := _pair(twin) or _means(twin, made.remedy):
        metric, with_it, without = pair
        said = [f"{span} {metric} was {with_it:.4g} with it and {without:.4g} in the twin without it"]
    elif (alone := _left_alone(twin)) is not None:
        said = [f"{span} the twin left alone had a reward/mean of {alone:.4g}"]
    said += [twin["said"]] if isinstance(twin.get("said"), str) else []
    return "; ".join(said) or NO_TWIN


def _pair(twin: Mapping[str, Any]) -> tuple[str, float, float] | None:
    """Metric, its level with the change, its level without, where the journal holds the two numbers."""
    with_it, without = twin.get("with"), twin.get("without")
    if not isinstance(with_it, (int, float)) or not isinstance(without, (int, float)):
        return None
    return str(twin.get("metric", "the metric")), float(with_it), float(without)


def _means(twin: Mapping[str, Any], remedy: str) -> tuple[str, float, float] | None:
    """The same of the curves of both copies."""
    curves = twin.get("curves")
    if not isinstance(curves, dict) or remedy not in curves or len(curves) < 2:
        return None
    alone = next(name for name in curves if name != remedy)
    for metric in ("reward/mean", "accuracy/train"):
        with_it, without = _mean(curves[remedy], metric), _mean(curves[alone], metric)
        if with_it is not None and without is not None:
            return metric, with_it, without
    return None


def _left_alone(twin: Mapping[str, Any]) -> float | None:
    """The mean reward of the copy that was left alone, all there is where the run returned to a checkpoint."""
    curves = twin.get("curves")
    levels = [_mean(curve, "reward/mean") for curve in curves.values()] if isinstance(curves, dict) else []
    return next((level for level in levels if level is not None), None)


def _mean(curve: Any, metric: str) -> float | None:
    values = curve.get(metric) if isinstance(curve, dict) else None
    numbers = [value for value in values or () if isinstance(value, (int, float)) and value == value]
    return sum(numbers) / len(numbers) if numbers else None
