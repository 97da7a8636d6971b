"""A report as Markdown, for an issue or a wiki; charts stay behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stabilizer.analysis.analyse import Analysis, numbers, settled
from stabilizer.core.records import Cause, RemedyAdvice
from stabilizer.core.version import __version__
from stabilizer.figures import WORDS
from stabilizer.output.report.case_study import HEADS, Case, case_of, rows, seen_heads, seen_rows
from stabilizer.output.report.formatting import (
    MAX_ROWS,
    STORY,
    comparability,
    definition_text,
    intervention_text,
    listed,
    md,
    number,
    outlook,
    unchanged,
)
from stabilizer.output.terminal import VERDICTS, change_text
from stabilizer.runs import story
from stabilizer.runs.secrets import redacted
from stabilizer.runs.story import Incident
from stabilizer.trainers.logged_as import asked_for


def markdown(analysis: Analysis) -> str:
    """The report as text, for an issue or a wiki; charts stay behind."""
    case = case_of(analysis.run)
    lines = [
        *_head(analysis),
        *(_case_text(case) if case else []),
        *(line for incident in analysis.incidents for line in _incident(incident, analysis.run.source.trainer)),
        *_health(analysis),
        *_interventions(analysis),
        *_numbers(analysis),
        *_configuration(analysis),
    ]
    return "\n".join([*lines, "", f"Written by stabilizer {__version__}.", ""])


def _head(analysis: Analysis) -> list[str]:
    source = analysis.run.source
    state = f"; {md(analysis.state)} as of then" if analysis.live else ""
    rows = f"{source.steps:,} rows, steps {analysis.first_step:,} to {analysis.last_step:,}"
    rows = rows if source.steps else "no steps"
    return [
        f"# {md(analysis.run.name)}: {md(VERDICTS.get(analysis.verdict, analysis.verdict))}",
        "",
        f"{md(source.trainer)}, {rows}{state}",
        *(part for line in outlook(analysis) for part in ("", f"Outlook: {md(line)}.")),
    ]


def _incident(incident: Incident, trainer: str) -> list[str]:
    state = "open" if incident.open else "resolved"
    lines = [
        "",
        f"## Incident {incident.number}: {md(incident.lead.id)} ({WORDS[incident.severity]}, {state}, {incident.when})",
        "",
        *([md(incident.headline), ""] if incident.headline else []),
    ]
    for finding in incident.findings:
        facts = f"{WORDS[finding.severity]}, {finding.state}, onset {finding.onset_step:,}"
        lines.append(f"- **{md(finding.id)}** ({facts}): {md(finding.summary)}")
    leading = incident.explained
    if leading.causes:
        lines += ["", "Why:", "", *(_cause(cause, incident.lead.summary) for cause in leading.causes)]
    if leading.remedies:
        lines += ["", f"{'What to do' if incident.open else 'Next time'}, one at a time:", ""]
        lines += [f"{place}. {_remedy(remedy, trainer)}" for place, remedy in enumerate(leading.remedies, 1)]
    return lines


def _cause(cause: Cause, said: str) -> str:
    sure = "" if cause.id == "undetermined" else f" ({cause.confidence:.0%})"
    rest = cause.beyond(said)
    return f"- **{md(cause.id)}**{sure}{': ' if rest else ''}{md(rest)}"


def _remedy(remedy: RemedyAdvice, trainer: str) -> str:
    change = change_text(remedy.change, trainer)
    text = f"**{md(remedy.id)}** ({remedy.safety}){f' {md(change)}' if change else ''}: {md(remedy.how)}."
    return f"{text} {md(remedy.why)}" if remedy.why else text


def _health(analysis: Analysis) -> list[str]:
    """What is as it should be, what could not be checked, and what is to be known about the log."""
    source = analysis.run.source
    sections = {
        "Healthy": [f"- **{md(item.what)}**: {md(item.why)}" for item in analysis.healthy],
        "Not checked because a metric is missing": [
            f"- {md(item.id)}: {md(item.why or 'log ' + asked_for(item.needs, source.trainer))}"
            for item in analysis.blind_spots
        ],
        "About this log": [f"- {md(note)}" for note in source.notes],
    }
    return [line for title, lines in sections.items() if lines for line in ("", f"## {title}", "", *lines)]


def _interventions(analysis: Analysis) -> list[str]:
    """What was changed while it trained, and the journal."""
    actions, lines = analysis.run.actions, []
    if made := story.interventions(actions):
        lines += ["", "## What was changed while it trained", ""]
        lines += [f"{place}. {md(' '.join(intervention_text(one)))}" for place, one in enumerate(made[-MAX_ROWS:], 1)]
    if actions:
        lines += ["", "## Journal", "", comparability(actions), ""]
        lines += ["| step | entry | remedy | change | why |", "|---|---|---|---|---|"]
        lines += [
            f"| {a.step} | {a.entry} | {md(a.remedy)} | {md(change_text(a.change))} | {md(a.text)} |"
            for a in actions[-MAX_ROWS:]
        ]
    return lines


def _numbers(analysis: Analysis) -> list[str]:
    table, still = settled(numbers(analysis.run))
    if not table:
        return []
    lines = [
        "",
        "## Numbers",
        "",
        "| metric | last | at step | min | max | unit | estimator |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {md(r.name)} | {number(r.last)} | {r.step} | {number(r.low)} | {number(r.high)} | {md(r.unit)} "
            f"| {md(definition_text(r))} |"
            for r in table[:MAX_ROWS]
        ),
    ]
    return lines + (["", f"Knobs that never changed: {md(unchanged(still), STORY)}."] if still else [])


def _configuration(analysis: Analysis) -> list[str]:
    config = redacted(analysis.run.history.about.get("config") or {})
    return (
        ["", "## Configuration", "", *(f"- {md(key)}: {md(value)}" for key, value in listed(config))] if config else []
    )


def _case_text(case: Case) -> list[str]:
    """The same as Markdown; the charts stay behind."""
    lines = ["", f"## Case: {md(case.title)}"]
    story = {"What was seen": case.saw, "What was changed": case.changed, "What happened": case.happened}
    for heading, texts in story.items():
        lines += ["", f"**{heading}.** {md(' '.join(texts), STORY)}"] if texts else []
    for symptom in case.symptoms:
        lines += ["", f"{md(symptom.title)}. Counted: {md(symptom.what)}. {md(symptom.note)}", ""]
        lines += table(seen_heads(symptom), seen_rows(symptom))
    for trial in case.trials:
        lines += ["", f"{md(trial.title)}: {md(trial.metric)}. {md(trial.note)}", "", *table(HEADS, rows(trial))]
    lines += ["", *(f"- {md(key)}: {md(value)}" for key, value in case.measured)] if case.measured else []
    lines += ["", f"**Where common advice is wrong.** {md(' '.join(case.advice), STORY)}"] if case.advice else []
    lines += ["", f"**What this does not show.** {md(' '.join(case.limits), STORY)}"] if case.limits else []
    return [*lines, "", *(f"{place}. {md(step)}" for place, step in enumerate(case.do, 1))]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [f"| {' | '.join(md(head) for head in heads)} |", "|---" * len(heads) + "|"]
    return [*lines, *(f"| {' | '.join(md(cell) for cell in row)} |" for row in rows)]
