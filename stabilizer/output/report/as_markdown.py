"""A report as Markdown, for an issue or a wiki; charts stay behind."""

from __future__ import annotations

from stabilizer import __version__
from stabilizer.analysis.analyse import Analysis, numbers, settled
from stabilizer.figures import WORDS
from stabilizer.output.report.case_study import HEADS, Case, case_of, rows
from stabilizer.output.report.words import (
    MAX_ROWS,
    STORY,
    changes,
    comparable,
    flat,
    md,
    number,
    outlook,
    said,
    told,
    unchanged,
)
from stabilizer.output.terminal import VERDICTS, changed
from stabilizer.runs import story
from stabilizer.runs.directory import redacted
from stabilizer.trainers.logged_as import asked_for


def markdown(analysis: Analysis) -> str:
    """The report as text, for an issue or a wiki; charts stay behind."""
    source = analysis.run.source
    lines = [
        f"# {md(analysis.run.name)}: {md(VERDICTS.get(analysis.verdict, analysis.verdict))}",
        "",
        f"{md(source.trainer)}, {source.steps:,} rows, steps {analysis.first_step:,} to {analysis.last_step:,}"
        + (f"; {md(analysis.state)} as of then" if analysis.live else ""),
    ]
    lines += [part for line in outlook(analysis) for part in ("", f"Outlook: {md(line)}.")]
    lines += _case_text(case) if (case := case_of(analysis.run)) else []
    for incident in analysis.incidents:
        state = "open" if incident.open else "resolved"
        lines += [
            "",
            f"## Incident {incident.incident}: {md(incident.title)} ({WORDS[incident.severity]}, {state}, since step"
            f" {incident.onset_step:,})",
            "",
            *([md(incident.headline), ""] if incident.headline else []),
        ]
        for finding in incident.findings:
            facts = f"{WORDS[finding.severity]}, {finding.state}, onset {finding.onset_step:,}"
            lines.append(f"- **{md(finding.id)}** ({facts}): {md(finding.summary)}")
        leading = incident.explained
        if leading.causes:
            lines += ["", "Why:", ""]
            for cause in leading.causes:
                sure = "" if cause.id == "undetermined" else f" ({cause.confidence:.0%})"
                lines.append(f"- **{md(cause.id)}**{sure}: {md(cause.why)}")
        if leading.remedies:
            lines += ["", f"{'What to do' if incident.open else 'Next time'}, one at a time:", ""]
            for place, remedy in enumerate(leading.remedies, 1):
                change = changed(remedy, analysis.run.source.trainer)
                lines.append(
                    f"{place}. **{md(remedy.id)}** ({remedy.safety}){f' {md(change)}' if change else ''}: "
                    f"{md(remedy.how)}. {md(remedy.why)}"
                )
    if analysis.healthy:
        lines += ["", "## Healthy", "", *(f"- **{md(i.what)}**: {md(i.why)}" for i in analysis.healthy)]
    if analysis.blind_spots:
        blind = (
            f"- {md(i.id)}: {md(i.why or 'log ' + asked_for(i.needs, source.trainer))}" for i in analysis.blind_spots
        )
        lines += ["", "## Not checked, for want of a metric", "", *blind]
    if source.notes:
        lines += ["", "## About this log", "", *(f"- {md(note)}" for note in source.notes)]
    if made := story.interventions(analysis.run.actions):
        lines += ["", "## What was changed while it trained", ""]
        lines += [f"{place}. {md(' '.join(told(one)))}" for place, one in enumerate(made[-MAX_ROWS:], 1)]
    if analysis.run.actions:
        lines += ["", "## Journal", "", comparable(analysis.run.actions), ""]
        lines += ["| step | entry | remedy | change | why |", "|---|---|---|---|---|"]
        lines += [
            f"| {a.step} | {a.entry} | {md(a.remedy)} | {md(changes(a.change))} | {md(a.text)} |"
            for a in analysis.run.actions[-MAX_ROWS:]
        ]
    table, still = settled(numbers(analysis.run))
    lines += [
        "",
        "## Numbers",
        "",
        "| metric | last | at step | min | max | unit | estimator |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {md(r.name)} | {number(r.last)} | {r.step} | {number(r.low)} | {number(r.high)} | {md(r.unit)} "
        f"| {md(said(r))} |"
        for r in table[:MAX_ROWS]
    ]
    lines += ["", f"Knobs that never changed: {md(unchanged(still), STORY)}."] if still else []
    config = redacted(analysis.run.history.about.get("config") or {})
    if config:
        lines += ["", "## Configuration", "", *(f"- {md(key)}: {md(value)}" for key, value in flat(config))]
    return "\n".join([*lines, "", f"Written by stabilizer {__version__}.", ""])


def _case_text(case: Case) -> list[str]:
    """The same as Markdown; the charts stay behind."""
    lines = ["", f"## Case: {md(case.title)}"]
    for heading, texts in (
        ("What was seen", case.saw), ("What was changed", case.changed), ("What happened", case.happened)
    ):  # fmt: skip
        lines += ["", f"**{heading}.** {md(' '.join(texts), STORY)}"] if texts else []
    for trial in case.trials:
        lines += ["", f"{md(trial.title)}: {md(trial.metric)}. {md(trial.note)}", ""]
        lines += [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
        lines += [f"| {' | '.join(md(cell) for cell in row)} |" for row in rows(trial)]
    lines += ["", *(f"- {md(key)}: {md(value)}" for key, value in case.measured)] if case.measured else []
    lines += ["", f"**What this does not show.** {md(' '.join(case.limits), STORY)}"] if case.limits else []
    return [*lines, "", *(f"{place}. {md(step)}" for place, step in enumerate(case.do, 1))]
