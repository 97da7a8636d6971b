"""Analyse a run: replay it, group the findings, and list the healthy aspects and the checks that could not be made.

`diagnose` and `report` show the result of `analyse`; `as_json` is the contract for scripts (`diagnose --json`).
`health` decides which aspects are healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stabilizer.analysis.changes import REWARD, Change
from stabilizer.analysis.changes import changes as largest_changes
from stabilizer.analysis.health import Healthy, healthy, unproven_fall
from stabilizer.analysis.normal import Normal, normal
from stabilizer.analysis.signs import Sign, signs
from stabilizer.analysis.watching import new_watch
from stabilizer.core import records
from stabilizer.core.failures import NO_ENTRY
from stabilizer.core.metrics import is_known, is_rl, metric
from stabilizer.core.records import SCHEMA, SEVERITIES, Cause, Finding, RemedyAdvice, Severity, worst
from stabilizer.detectors import DETECTORS, ENDINGS
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.forecast import Forecast, forecast
from stabilizer.remedies import BY_ID, LIKELY, LIVE, fitted, for_cause
from stabilizer.remedies.going_back import learned_until
from stabilizer.runs.history import RunView
from stabilizer.runs.loaded import LoadedRun, Source
from stabilizer.runs.story import Incident, incidents, summary
from stabilizer.trainers.knobs import configured_rate, has_setting, how

ENDED_GAPS, ENDED_SHARE = 3, 0.1
"""A reward has ended when it is missing for more than so many times its longest earlier gap, and this share of all."""
NAMED = 0.6
"""Confidence from which the cause of a message is named; below it is shown as a possibility."""


class NotChecked(NamedTuple):
    """A detector without its metrics, and the metrics it needs (alternatives joined by `|`).

    `why` is set if the metrics exist but prove nothing: too few values, from too few problems, or none at the end.
    """

    id: str
    needs: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True)
class Analysis:
    """The analysis of one run. `state` is the state of a run directory (`running`, ...), "" for other trainers'
    logs."""

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
    normal: tuple[Normal, ...] = ()
    """Patterns that look wrong and are not."""
    signs: tuple[Sign, ...] = ()
    """What stands out in a log of few rows."""
    changes: tuple[Change, ...] = ()
    """The largest changes of the metrics."""
    records: tuple[Finding, ...] = ()
    """Every change of a finding, as a live watch records it, and then the final state of each."""

    @property
    def live(self) -> bool:
        """Whether the run continues: the analysis is as of `last_step`."""
        return self.state in LIVE

    @property
    def blind_spots(self) -> tuple[NotChecked, ...]:
        """The entries that a page lists as not checked. If no such metric is logged at all, a list of every detector
        would be less useful than one line."""
        return self.not_checked if self.run.source.steps and self.verdict != "not-rl" else ()


def analyse(
    run: LoadedRun,
    detectors: tuple[Detector, ...] = DETECTORS,
    told: Callable[[int, int], None] = lambda row, rows: None,
) -> Analysis:
    """Replay the run and judge it; `told` is called for every row with its number and the number of rows."""
    watch = new_watch(detectors)
    changes: list[Finding] = []
    for row, shown in enumerate(run.views(), 1):
        told(row, len(run.ticks))
        changes += watch.tick(shown)
    view = run.history.view()
    if not run.ticks:
        changes += watch.ask("system/stalled", run.history.view(0))
    changes += watch.end(view)
    replayed = watch.findings()
    extra = _recorded_only(run, replayed)
    findings = _fitted(run, (*replayed, *extra))
    verdict, gravest = _verdict(watch.verdict(view), findings, extra)
    if verdict in ("healthy", "too-short", "info") and not is_rl(view.names()):
        verdict = "too-short" if findings and not view.names() else "not-rl"
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
        first_step=min((step for _, step in run.ticks), default=0),
        last_step=max(view.step, 0),
        normal=tuple(normal(view)),
        signs=tuple(signs(view, {cause.id for finding in findings for cause in finding.causes})),
        changes=tuple(largest_changes(view)),
        records=(*changes, *_newest(findings)),
    )


def _fitted(run: LoadedRun, found: Sequence[Finding]) -> list[Finding]:
    """Findings in order, with remedies that fit the state of the run and the onset and harm of their incident."""
    onsets: dict[int, int] = {}
    for finding in found:
        onsets[finding.incident] = min(finding.onset_step, onsets.get(finding.incident, finding.onset_step))
    unresolved = [finding for finding in found if finding.state != "resolved"]
    harm = {number: worst(f.severity for f in unresolved if f.incident == number) for number in onsets}
    return sorted(
        (_spelled_out(f, run, onsets[f.incident], harm=harm[f.incident]) for f in found),
        key=_order,
    )


def _verdict(
    watched: tuple[str, str | None], findings: Sequence[Finding], extra: Sequence[Finding]
) -> tuple[str, str | None]:
    """The verdict and the worst severity, where the live watch saw more (`extra`) than the replay."""
    verdict, gravest = watched
    if not extra:
        return watched
    open_now = worst(f.severity for f in findings if f.state != "resolved")
    if any(map(_is_crash, extra)):
        verdict = "crashed"
    elif verdict in SEVERITIES or (verdict == "healthy" and open_now):
        verdict = open_now or verdict
    return verdict, worst(f.severity for f in findings)


def _is_crash(finding: Finding) -> bool:
    return finding.id in ENDINGS and finding.severity == "critical" and finding.state != "resolved"


def _newest(findings: Iterable[Finding]) -> Iterable[Finding]:
    """The final state of each finding; one that resolved and came back to its incident is listed once."""
    ordered = sorted(findings, key=lambda f: (f.state != "resolved", f.attempt, f.last_step))
    return {(finding.incident, finding.id): finding for finding in ordered}.values()


def as_json(analysis: Analysis) -> dict[str, Any]:
    """The object that `stabilizer diagnose --json` prints; its form is a contract."""
    answer: dict[str, Any] = records.as_json(
        {
            "schema": SCHEMA,
            "run": analysis.run.name,
            "source": _source_json(analysis.run.source),
            "verdict": analysis.verdict,
            "worst": analysis.worst,
            "incidents": [
                {
                    "incident": incident.number,
                    "onset_step": incident.onset,
                    "cause": incident.cause,
                    "findings": list(dict.fromkeys(finding.id for finding in incident.findings)),
                    "summary": incident.summary,
                }
                for incident in analysis.incidents
            ],
            "findings": [_finding_json(finding) for finding in analysis.findings],
            "healthy": [item._asdict() for item in analysis.healthy],
            "normal": [item._asdict() for item in analysis.normal],
            "signs": [item._asdict() for item in analysis.signs],
            "what_changed": [change._asdict() for change in analysis.changes],
            "not_checked": [
                {"id": item.id, "needs": item.needs, **({"why": item.why} if item.why else {})}
                for item in analysis.not_checked
            ],
            "forecast": analysis.forecast,
            "interventions": summary(analysis.run.actions),
        }
    )
    return answer


def _not_checked(view: RunView, findings: Iterable[Finding], detectors: tuple[Detector, ...]) -> tuple[NotChecked, ...]:
    doubt = unproven_fall(view, findings)
    doubted = (NotChecked("reward/hacking", ("accuracy/val",), doubt),) if doubt else ()
    stopped = (NotChecked("reward/collapse", (REWARD,), ended),) if (ended := _reward_ended(view)) else ()
    return (*stopped, *doubted) + tuple(
        NotChecked(detector.id, tuple(missing)) for detector in detectors if (missing := detector.missing(view))
    )


def _reward_ended(view: RunView) -> str:
    """That the log goes on without its reward; empty if it does not."""
    steps = view.series(REWARD).steps
    if len(steps) < 2:
        return ""
    left, usual = view.step - int(steps[-1]), int(np.diff(steps).max())
    if left <= ENDED_GAPS * usual or left < ENDED_SHARE * (view.step - int(steps[0])):
        return ""
    return f"the reward was last logged at step {steps[-1]:,} of {view.step:,}, so nothing after that was judged by it"


# --- findings ------------------------------------------------------------------------------------------------------


def _order(finding: Finding) -> tuple[int, int, int, int]:
    """The most severe first, then the earliest onset, then the first seen: an explanation before the findings it
    explains."""
    return finding.incident, -SEVERITIES.index(finding.severity), finding.onset_step, finding.detected_step


def _recorded_only(run: LoadedRun, replayed: Iterable[Finding]) -> list[Finding]:
    """Findings that only the live watch can make (a crash, a stall, a failed detector), each as last recorded."""
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
    ]  # a crash ended its attempt and not the run, if a new attempt began afterwards


def _spelled_out(finding: Finding, run: LoadedRun, onset: int, *, harm: Severity | None) -> Finding:
    """The finding with remedies that fit the state of the run, each with `how` in the words of its trainer.

    `onset` is the onset of its incident, because a rollback goes back to before all of it, or to the best reward if the
    run still learned after it. `harm` is the worst severity of what is unresolved in it. Remedies for which the
    trainer has no setting come last, and so do changes of settings where the cause is unlikely.
    """
    if "next" in finding.evidence:
        return _explained_by_the_log(finding)
    trainer = run.source.trainer
    ours = trainer == "stabilizer"
    state = str(run.history.about.get("state", ""))
    cause = finding.causes[0].id if finding.causes else ""
    advice = fitted(finding.remedies, harm=harm, state=state, ours=ours, cause=cause, view=run.history.view())
    if finding.causes and finding.causes[0].confidence < LIKELY:  # a guess is looked into before a setting is changed
        advice = tuple(sorted(advice, key=lambda one: bool(one.change)))
    if ours:
        return replace(finding, remedies=tuple(r if r.how else replace(r, how="manually") for r in advice))
    config = run.history.about.get("config") or {}
    rates = run.history.view().series("optim/lr").finite().values.tolist()
    onset = learned_until(run.history.view(), onset)

    def lacking(one: RemedyAdvice) -> bool:
        remedy = BY_ID.get(one.id)
        return remedy is not None and remedy.of_settings and not has_setting(trainer, one)

    def spelled(one: RemedyAdvice) -> RemedyAdvice:
        remedy = BY_ID.get(one.id)
        text = how(
            trainer,
            one,
            config,
            onset=onset,
            highest=max(rates, default=None),
            rate=configured_rate(rates),
            of_settings=remedy is None or remedy.of_settings,
            restart=remedy.restart if remedy else "",
        )
        return replace(one, how=text)

    return replace(finding, remedies=tuple(spelled(one) for one in sorted(advice, key=lacking)))


def _explained_by_the_log(finding: Finding) -> Finding:
    """The finding for an end of the run that the log explains, with the cause and the next action from the log."""
    evidence = finding.evidence
    advice = [RemedyAdvice(r.id, r.safety, {}, "", str(evidence["next"])) for r in for_cause(evidence["cause"])]
    remedies = fitted(advice[:1], harm="critical", state="", ours=False)
    confidence = evidence.get("confidence", 0.95)
    if confidence < NAMED:
        guess = "" if NO_ENTRY in evidence["what"] else "possibly "
        cause = Cause("undetermined", confidence, f"{guess}{evidence['what']}")
    else:
        cause = Cause(evidence.get("trouble", evidence["cause"]), confidence, evidence["what"])
    return replace(finding, causes=(cause,), remedies=remedies)


def _incidents(findings: Sequence[Finding], changes: Iterable[Finding] = ()) -> tuple[Incident, ...]:
    """Findings by incident; an incident is named after its findings, first to last."""
    named = {incident.number: incident for incident in incidents([*changes, *findings])}
    groups: dict[int, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.incident, []).append(finding)
    return tuple(
        replace(named[number], findings=tuple(members), onset=min(member.onset_step for member in members))
        for number, members in groups.items()
    )


def _source_json(source: Source) -> dict[str, Any]:
    read = {
        "format": source.format,
        "trainer": source.trainer,
        "files": list(source.files),
        "steps": source.steps,
        "skipped_lines": source.skipped_lines,
    }
    return read | ({"notes": list(source.notes)} if source.notes else {})


def _finding_json(finding: Finding) -> dict[str, Any]:
    fields = ("id", "incident", "severity", "state", "onset_step", "detected_step", "last_step", "summary", "evidence")
    return {name: getattr(finding, name) for name in (*fields, "causes", "remedies")}


# --- the numbers of a run, for the report --------------------------------------------------------------------------


class Number(NamedTuple):
    """Summary of one metric, with the context that its numbers need."""

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
    """(metrics that changed or measure something, knobs that never changed): the latter need a line, not a table."""
    still = [row for row in table if row.name.startswith("control/") and row.low == row.high and not row.not_finite]
    return [row for row in table if row not in still], still


def numbers(run: LoadedRun) -> list[Number]:
    """All metrics of the current lineage, those of the project's vocabulary first."""
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
                name,
                float(series.values[-1]),
                int(series.steps[-1]),
                low,
                high,
                len(series),
                len(series) - len(finite),
                str(definition.get("unit", known.unit)),
                str(definition.get("estimator", known.estimator)),
                str(definition.get("aggregation", known.aggregation)),
                str(definition.get("source", name)),
            )
        )
    return sorted(table, key=lambda row: (not is_known(row.name), row.name))
