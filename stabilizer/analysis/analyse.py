"""From a run to an answer: replay it, group what was found, say what is healthy and what nobody checked.

`analyse` is what `diagnose` and `report` show; `as_json` is the form that scripts hold on to (`diagnose --json`).
What is healthy is decided in `health`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stabilizer.analysis.health import Healthy, healthy, unproven_fall
from stabilizer.analysis.watching import new_watch
from stabilizer.core import records
from stabilizer.core.metrics import is_rl, metric
from stabilizer.core.records import SCHEMA, SEVERITIES, Cause, Finding, RemedyAdvice, worst
from stabilizer.detectors import DETECTORS, ENDINGS
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.forecast import Forecast, forecast
from stabilizer.remedies import BY_ID, LIVE, fitted, for_cause
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import summary
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.story import incidents
from stabilizer.trainers.knobs import configured_rate, has_setting, how


class NotChecked(NamedTuple):
    """A detector that had nothing to look at, and the metrics it would need (alternatives joined by `|`).

    `why` is said where the metrics are there and prove nothing: too few values, of too few problems.
    """

    id: str
    needs: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings that belong together, the gravest first; `cause` is what the newest explanation holds likeliest."""

    incident: int
    onset_step: int
    summary: str
    """What was said when it opened or last got worse, as the console and the dashboard say it too."""
    findings: tuple[Finding, ...]
    title: str = ""
    """The finding it is named after, which stays the same while it lives."""

    @property
    def severity(self) -> str:
        """That of the gravest finding."""
        return self.findings[0].severity

    @property
    def headline(self) -> str:
        """Its summary, where none of its findings says the same by now."""
        return "" if self.summary in {finding.summary for finding in self.findings} else self.summary

    @property
    def explained(self) -> Finding:
        """The finding with the newest explanation, the gravest of several: a resolved one's is as old as itself.

        A cause that was told once is not forgotten because what is left of the incident no longer shows it.
        """
        told = [f for f in self.findings if f.causes and f.causes[0].id != "undetermined"]
        return max(
            told or self.findings,
            key=lambda f: (bool(f.causes), f.last_step, f.detected_step, SEVERITIES.index(f.severity)),
        )

    @property
    def cause(self) -> str:
        """The likeliest cause, `undetermined` when no rule explains what was seen."""
        causes = self.explained.causes
        return causes[0].id if causes else "undetermined"

    @property
    def open(self) -> bool:
        """Whether any of it still stands at the end."""
        return any(finding.state != "resolved" for finding in self.findings)


@dataclass(frozen=True)
class Analysis:
    """Everything that is said of one run. `state` is that of a run directory (`running`, ...), "" for foreign logs."""

    run: LoadedRun
    verdict: str
    worst: str | None
    incidents: tuple[Incident, ...]
    findings: tuple[Finding, ...]
    healthy: tuple[Healthy, ...]
    not_checked: tuple[NotChecked, ...]
    forecast: Forecast | None
    state: str
    first_step: int
    last_step: int
    records: tuple[Finding, ...] = ()
    """Everything that was found, change by change, as a live watch writes it down, and at last how it stands."""

    @property
    def live(self) -> bool:
        """Whether more is to come: the answer is as of `last_step`."""
        return self.state in LIVE

    @property
    def blind_spots(self) -> tuple[NotChecked, ...]:
        """What a page lists as not checked. Where nothing of such a training is logged, a list of every detector says
        less than that."""
        return self.not_checked if self.run.source.steps and self.verdict != "not-rl" else ()


def analyse(
    run: LoadedRun,
    detectors: tuple[Detector, ...] = DETECTORS,
    told: Callable[[int, int], None] = lambda row, rows: None,
) -> Analysis:
    """Replay the run and say what there is to say; `told` hears how far it has come (row, of rows)."""
    watch = new_watch(detectors)
    changes: list[Finding] = []
    for row, shown in enumerate(run.views(), 1):
        told(row, len(run.ticks))
        changes += watch.tick(shown)
    changes += watch.end(run.history.view())
    view = run.history.view()
    verdict, gravest = watch.verdict(view)
    replayed = watch.findings()
    extra = _recorded_only(run, replayed)
    onsets: dict[int, int] = {}
    harmful: set[int] = set()
    for finding in (*replayed, *extra):
        onsets[finding.incident] = min(finding.onset_step, onsets.get(finding.incident, finding.onset_step))
        if finding.state != "resolved" and finding.severity != "info":
            harmful.add(finding.incident)
    findings = sorted(
        (
            _spelled_out(finding, run, onsets[finding.incident], harm=finding.incident in harmful)
            for finding in (*replayed, *extra)
        ),
        key=_order,
    )
    if extra:
        standing = worst(f.severity for f in findings if f.state != "resolved")
        verdict = standing if verdict in SEVERITIES or verdict == "healthy" and standing else verdict
        gravest = worst(f.severity for f in findings)
        if any(f.id in ENDINGS and f.severity == "critical" and f.state != "resolved" for f in extra):
            verdict = "crashed"
    if verdict in ("healthy", "too-short", "info") and not is_rl(view.names()):
        verdict = "not-rl"
    steps = [step for _, step in run.ticks] or [0]
    return Analysis(
        run=run,
        verdict=verdict,
        worst=gravest,
        incidents=_incidents(findings, changes),
        findings=tuple(findings),
        healthy=tuple(healthy(view, findings)) if verdict not in ("not-rl", "too-short") else (),
        not_checked=_not_checked(view, findings, detectors),
        forecast=forecast(view) if verdict in ("healthy", *SEVERITIES) else None,
        state=str(view.about("state", "")),
        first_step=min(steps),
        last_step=max(view.step, 0),
        records=(*changes, *_newest(findings)),
    )


def _newest(findings: Iterable[Finding]) -> Iterable[Finding]:
    """How each finding stands at last: one that was over and came back to its incident is there twice."""
    ordered = sorted(findings, key=lambda f: (f.state != "resolved", f.attempt, f.last_step))
    return {(finding.incident, finding.id): finding for finding in ordered}.values()


def as_json(analysis: Analysis) -> dict[str, Any]:
    """The object `stabilizer diagnose --json` prints; its form is a contract."""
    source = analysis.run.source
    return records.as_json(
        {
            "schema": SCHEMA,
            "run": analysis.run.name,
            "source": {
                "format": source.format,
                "trainer": source.trainer,
                "files": list(source.files),
                "steps": source.steps,
                "skipped_lines": source.skipped_lines,
            },
            "verdict": analysis.verdict,
            "worst": analysis.worst,
            "incidents": [
                {
                    "incident": incident.incident,
                    "onset_step": incident.onset_step,
                    "cause": incident.cause,
                    "findings": list(dict.fromkeys(finding.id for finding in incident.findings)),
                    "summary": incident.summary,
                }
                for incident in analysis.incidents
            ],
            "findings": [_finding_json(finding) for finding in analysis.findings],
            "healthy": [item._asdict() for item in analysis.healthy],
            "not_checked": [
                {"id": item.id, "needs": item.needs, **({"why": item.why} if item.why else {})}
                for item in analysis.not_checked
            ],
            "forecast": analysis.forecast,
            "interventions": summary(analysis.run.actions),
        }
    )


def _not_checked(view: RunView, findings: Iterable[Finding], detectors: tuple[Detector, ...]) -> tuple[NotChecked, ...]:
    doubt = unproven_fall(view, findings)
    doubted = (NotChecked("reward/hacking", ("accuracy/val",), doubt),) if doubt else ()
    return doubted + tuple(
        NotChecked(detector.id, tuple(missing)) for detector in detectors if (missing := detector.missing(view))
    )


def exit_code(analysis: Analysis, fail_on: str) -> int:
    """1 when the verdict reaches the level (a crash reaches every level but `never`), else 0."""
    if fail_on == "never":
        return 0
    if analysis.verdict == "crashed":
        return 1
    if analysis.verdict not in SEVERITIES:
        return 0
    return int(SEVERITIES.index(analysis.verdict) >= SEVERITIES.index(fail_on))


# --- findings ------------------------------------------------------------------------------------------------------


def _order(finding: Finding) -> tuple[int, int, int, int]:
    """The gravest first, then what began first, then what was seen first: an explanation before what it explains."""
    return finding.incident, -SEVERITIES.index(finding.severity), finding.onset_step, finding.detected_step


def _recorded_only(run: LoadedRun, replayed: Iterable[Finding]) -> list[Finding]:
    """What only the live watch could see (a crash, a stall, a failed detector): its last word on each."""
    known = {finding.id for finding in replayed}
    latest = {
        (finding.incident, finding.id): finding
        for finding in run.recorded
        if finding.id.startswith("system/") and finding.id not in known
    }
    taken = max((finding.incident for finding in replayed), default=0)
    newest = max(run.histories)
    return [
        replace(
            finding,
            incident=taken + place,
            state="resolved" if finding.id in ENDINGS and finding.attempt < newest else finding.state,
        )
        for place, finding in enumerate(latest.values(), 1)
    ]  # a crash after which a new attempt began ended that attempt and not the run


def _spelled_out(finding: Finding, run: LoadedRun, onset: int, *, harm: bool) -> Finding:
    """The finding with its remedies as they fit the state of the run, each with `how` in the words of its trainer.

    `onset` is that of its incident, for what goes back goes back to before all of it; `harm` says whether the incident
    stands and is more than information. What the trainer has no setting for comes last.
    """
    if finding.id in ENDINGS and "next" in finding.evidence:
        return _said_by_the_log(finding)
    trainer = run.source.trainer
    ours = trainer == "stabilizer"
    state = str(run.history.about.get("state", ""))
    finding = replace(finding, remedies=fitted(finding.remedies, harm=harm, state=state, ours=ours))
    if ours:
        return replace(finding, remedies=tuple(r if r.how else replace(r, how="by hand") for r in finding.remedies))
    config = run.history.about.get("config") or {}
    rates = run.history.view().series("optim/lr").finite().values.tolist()
    told = {"onset": onset, "highest": max(rates, default=None), "rate": configured_rate(rates)}

    def lacking(advice: RemedyAdvice) -> bool:
        return (remedy := BY_ID.get(advice.id)) is not None and remedy.of_settings and not has_setting(trainer, advice)

    def spelled(advice: RemedyAdvice) -> RemedyAdvice:
        remedy = BY_ID.get(advice.id)
        of_it = {"of_settings": remedy.of_settings, "restart": remedy.restart} if remedy else {}
        return replace(advice, how=how(trainer, advice, config, **told, **of_it))

    return replace(finding, remedies=tuple(spelled(advice) for advice in sorted(finding.remedies, key=lacking)))


def _said_by_the_log(finding: Finding) -> Finding:
    """What ended a run is no matter of inference: the log says the cause, and the finding what to do about it."""
    said = finding.evidence
    todo = str(said["next"])
    todo += "" if "restart" in todo else "; needs a restart, because the run has ended"
    remedies = [RemedyAdvice(r.id, r.safety, {}, r.why, todo) for r in for_cause(said["cause"])]
    remedies = fitted(remedies, harm=True, state="", ours=False)
    return replace(finding, causes=(Cause(said["cause"], 0.95, said["what"]),), remedies=remedies)


def _incidents(findings: list[Finding], changes: Iterable[Finding] = ()) -> tuple[Incident, ...]:
    named = {incident.number: incident for incident in incidents([*changes, *findings])}
    groups: dict[int, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.incident, []).append(finding)
    found = []
    for number, members in groups.items():
        onset = min(member.onset_step for member in members)
        found.append(Incident(number, onset, named[number].told, tuple(members), named[number].lead.id))
    return tuple(found)


def _finding_json(finding: Finding) -> dict[str, Any]:
    fields = ("id", "incident", "severity", "state", "onset_step", "detected_step", "last_step", "summary", "evidence")
    return {name: getattr(finding, name) for name in (*fields, "causes", "remedies")}


# --- the numbers of a run, for the report --------------------------------------------------------------------------


class Number(NamedTuple):
    """One metric at a glance, with everything a number needs to mean something."""

    name: str
    last: float
    step: int
    low: float
    high: float
    rows: int
    not_finite: int
    unit: str
    estimator: str
    aggregation: str
    source: str


def settled(table: Sequence[Number]) -> tuple[list[Number], list[Number]]:
    """(what moved or measures something, the knobs that never changed): the latter are a line, not a table."""
    still = [row for row in table if row.name.startswith("control/") and row.low == row.high and not row.not_finite]
    return [row for row in table if row not in still], still


def numbers(run: LoadedRun) -> list[Number]:
    """All metrics of the current lineage, those of our vocabulary first."""
    view = run.history.view()
    said = run.history.about.get("metrics")
    table = []
    for name in view.names():
        series = view.series(name)
        finite = series.finite()
        definition = said.get(name) if isinstance(said, Mapping) else None
        definition = definition if isinstance(definition, Mapping) else {}
        known = metric(name)
        low, high = (float(finite.values.min()), float(finite.values.max())) if len(finite) else (np.nan, np.nan)
        table.append(
            Number(
                name, float(series.values[-1]), int(series.steps[-1]), low, high, len(series),
                len(series) - len(finite),
                str(definition.get("unit", known.unit)), str(definition.get("estimator", known.estimator)),
                str(definition.get("aggregation", known.aggregation)), str(definition.get("source", name)),
            )
        )  # fmt: skip
    return sorted(table, key=lambda row: (metric(row.name).meaning.startswith("Not in our"), row.name))
