"""A report as one HTML page that needs nothing else: no network, and no file beside it.

The page is made of strings, and what holds it together is in `stabilizer.output.html`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stabilizer.analysis.analyse import Analysis, numbers, settled
from stabilizer.core import records
from stabilizer.core.metrics import metric
from stabilizer.core.records import Finding, RemedyAdvice
from stabilizer.figures import ICONS, PALETTES, WORDS, Chart, abandoned, charts, metric_figure
from stabilizer.figures.arms import arms_figure
from stabilizer.figures.lineage import Lineage, on_lineage
from stabilizer.output.html import charts_json, document, figure_html, safe, table_html, tone
from stabilizer.output.preflight_terminal import changes as preflight_changes
from stabilizer.output.report.case_study import HEADS, Case, case_of, rows, seen_heads, seen_rows
from stabilizer.output.report.formatting import (
    MAX_ROWS,
    STORY,
    compact,
    comparability,
    definition_text,
    intervention_text,
    jsonable,
    listed,
    number,
    outlook,
    unchanged,
)
from stabilizer.output.terminal import VERDICTS, change_text
from stabilizer.runs import story
from stabilizer.runs.secrets import redacted
from stabilizer.runs.story import Incident
from stabilizer.trainers.logged_as import asked_for

MAX_BYTES = 5_000_000
"""Size of a page; charts are thinned until it fits. Plotly's own script, packed, is 1.9 MB of it."""
POINTS = (1000, 600, 300, 120, 60)
"""Points per line that are tried in turn."""


def html(analysis: Analysis) -> str:
    """The whole page."""
    frame = _page(analysis, "")
    for points in POINTS:
        figures = _figures(analysis, points)
        if len(frame.encode()) + len(figures.encode()) <= MAX_BYTES:
            break
    return _page(analysis, figures)


def _page(analysis: Analysis, figures: str) -> str:
    sections = [
        _header(analysis),
        _case(case_of(analysis.run), analysis),
        *(_incident(analysis, incident) for incident in analysis.incidents),
        _healthy(analysis),
        _charts(analysis),
        _interventions(analysis),
        _journal(analysis),
        _events(analysis),
        _numbers(analysis),
        _facts(analysis),
    ]
    title = f"{safe(analysis.run.name)}: {safe(VERDICTS.get(analysis.verdict, analysis.verdict))}"
    return document(title, "".join(sections), figures)


def _header(analysis: Analysis) -> str:
    cells = "".join(f"<div><dt>{safe(key)}</dt><dd>{safe(value)}</dd></div>" for key, value in _facts_of(analysis))
    way = ""
    if analysis.verdict == "healthy" and analysis.worst in ("warn", "critical"):
        way = f" <span class=muted>There was a {safe(WORDS[analysis.worst])} incident on the way.</span>"
    lead = "".join(
        f"<li><a href='#incident-{i.number}'><span class='{tone(i.severity)}'>{ICONS[i.severity]}</span> "
        f"step {i.onset:,}</a> {safe(i.summary)}</li>"
        for i in analysis.incidents
    )
    words = {
        "too-short": "There are too few rows to judge.",
        "not-rl": "No rewards, completions or KL are logged: this is another kind of training.",
    }.get(analysis.verdict, "" if analysis.findings else "The detectors that had their metrics found no problem.")
    doubts = "".join(f"<p>But {safe(item.why)}.</p>" for item in analysis.not_checked if item.why)
    return (
        f"<header><p class=eyebrow>Training report</p><h1>{safe(analysis.run.name)}</h1>"
        f"<p class='verdict {tone(analysis.verdict)}'><span>{_icon(analysis.verdict)}</span> "
        f"{safe(VERDICTS.get(analysis.verdict, analysis.verdict))}{way}</p>"
        f"<p>{safe(words)}</p>{doubts}<dl class=facts>{cells}</dl>"
        + (f"<ol class=lead>{lead}</ol>" if lead else "")
        + "".join(f"<p class=muted>Outlook: {safe(line)}.</p>" for line in outlook(analysis))
        + "</header>"
    )


def _facts_of(analysis: Analysis) -> Iterator[tuple[str, object]]:
    """The facts below the verdict, by their headings."""
    source, about = analysis.run.source, analysis.run.history.about
    clock = "optimizer step" if about.get("clock") == "optimizer_step" else "step"
    yield "Trainer", source.trainer
    yield "Rows logged", f"{source.steps:,}"
    yield "Range", f"{clock} {analysis.first_step:,} to {analysis.last_step:,}"
    if isinstance(planned := about.get("steps"), int):
        yield "Planned", f"{planned:,}"
    if task := about.get("task"):
        yield "Task", task
    if (made := story.summary(analysis.run.actions))["count"]:
        yield "Interventions", made["text"]
    if analysis.state:
        yield "State", f"{analysis.state}, as of step {analysis.last_step:,}" if analysis.live else analysis.state


def _incident(analysis: Analysis, incident: Incident) -> str:
    state = "open" if incident.open else "resolved"
    findings = "".join(_finding(finding) for finding in incident.findings)
    leading = incident.explained
    shown = _charts_of(analysis, incident)
    plots = "".join(_figure(chart) for chart in shown)
    causes = "".join(
        f"<li><b>{safe(cause.id)}</b>{_confidence(cause)}<br>{safe(cause.beyond(incident.lead.summary))}</li>"
        for cause in leading.causes
    )
    remedies = "".join(_remedy(remedy, analysis.run.source.trainer) for remedy in leading.remedies)
    head = "What to do" if incident.open else "Next time"
    return (
        f"<section id='incident-{incident.number}'><h2><span class='{tone(incident.severity)}'>"
        f"{ICONS[incident.severity]}</span> Incident {incident.number}: {safe(incident.lead.id)} "
        f"<small>{safe(WORDS[incident.severity])}, {state}, {incident.when}</small></h2>"
        + (f"<p>{safe(incident.headline)}</p>" if incident.headline else "")
        + f"{findings}<div class='plots {'one' if len(shown) == 1 else ''}'>{plots}</div>"
        "<div class=columns>"
        f"<div><h3>Why</h3>{f'<ul>{causes}</ul>' if causes else '<p>No rule explains these findings.</p>'}</div>"
        + (f"<div><h3>{head}, in this order, one at a time</h3><ol>{remedies}</ol></div>" if remedies else "")
        + "</div></section>"
    )


def _case(case: Case | None, analysis: Analysis) -> str:
    """The story of a case study: seen, checked, found, changed, and what to do elsewhere."""
    if case is None:
        return ""
    parts = [_told("What was seen", case.saw)]
    if case.checked is not None:
        found = [
            (WORDS[f.severity], f.id, f"{f.key} = {f.value}", f.summary, preflight_changes(f))
            for f in case.checked.findings
        ]
        name = case.checked.config.parsed.path.name
        table = table_html(("", "rule", "setting", "what", "set instead"), found)
        parts.append(f"<h3>What preflight says of its configuration, {safe(name)}</h3>{table}")
    linked = "".join(f"<p><a href='#incident-{i.number}'>{safe(i.summary)}</a></p>" for i in analysis.incidents)
    parts += [f"<h3>Diagnosis of the run made small</h3>{linked}" if linked else ""]
    parts += [_told("What was changed", case.changed), _told("What happened", case.happened)]
    for symptom in case.symptoms:
        told = (f"Counted: {symptom.what}.", symptom.note)
        table = table_html(seen_heads(symptom), seen_rows(symptom))
        parts.append(f"<h3>{safe(symptom.title)}</h3>{_paragraphs(told)}{table}")
    for place, trial in enumerate(case.trials):
        parts.append(
            f"<h3>{safe(trial.title)}</h3>{_paragraphs((trial.note,))}<div class='plots one'>"
            f"{_figure(Chart(f'case-{place}', trial.metric, tuple(arm.name for arm in trial.arms)))}</div>"
            f"{table_html(HEADS, rows(trial), (5, 6))}"
        )
    if case.measured:
        parts.append(f"<h3>Measured</h3>{table_html((), case.measured)}")
    parts.append(_told("Where common advice is wrong", case.advice))
    parts.append(_told("What this does not show", case.limits))
    if case.do:
        steps = "".join(f"<li>{safe(step)}</li>" for step in case.do)
        parts.append(f"<h3>What to do in the trainer it came from, one at a time</h3><ol>{steps}</ol>")
    parts += [f"<p class=muted>{safe(problem)}</p>" for problem in case.problems]
    return f"<section id=case><h2>Case: {safe(case.title)}</h2>{''.join(parts)}</section>"


def _told(heading: str, paragraphs: Sequence[str]) -> str:
    return f"<h3>{safe(heading)}</h3>{_paragraphs(paragraphs)}" if paragraphs else ""


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{safe(text, STORY)}</p>" for text in texts if text)


def _finding(finding: Finding) -> str:
    evidence = "".join(
        f"<span><i>{safe(key)}</i> {safe(number(value))}</span>" for key, value in finding.evidence.items()
    )
    return (
        f"<div class=finding><p><code>{safe(finding.id)}</code> <span class='tag {tone(finding.severity)}'>"
        f"{safe(WORDS[finding.severity])}</span> <span class=muted>{safe(finding.state)}; "
        f"onset step {finding.onset_step:,}, detected at step {finding.detected_step:,}, "
        f"last seen at step {finding.last_step:,}</span></p>"
        f"<p>{safe(finding.summary)}</p><p class=evidence>{evidence}</p></div>"
    )


def _remedy(remedy: RemedyAdvice, trainer: str) -> str:
    change = change_text(remedy.change, trainer)
    return (
        f"<li><b>{safe(remedy.id)}</b> <span class=tag>{safe(remedy.safety)}</span>"
        + (f" <code>{safe(change)}</code>" if change else "")
        + f"<br>{safe(remedy.how)}<br><span class=muted>{safe(remedy.why)}</span></li>"
    )


def _confidence(cause: records.Cause) -> str:
    return "" if cause.id == "undetermined" else f" <span class=muted>{cause.confidence:.0%}</span>"


def _healthy(analysis: Analysis) -> str:
    good = "".join(
        f"<li><b>{safe(item.what)}</b><br><span class=muted>{safe(item.why)}</span></li>" for item in analysis.healthy
    )
    trainer = analysis.run.source.trainer
    blind = "".join(
        f"<li><code>{safe(item.id)}</code> "
        f"<span class=muted>{safe(item.why or 'log ' + asked_for(item.needs, trainer))}</span></li>"
        for item in analysis.blind_spots
    )
    notes = "".join(f"<li>{safe(note)}</li>" for note in analysis.run.source.notes)
    parts = [
        f"<div><h2>Healthy</h2><ul class=good>{good}</ul></div>" if good else "",
        f"<div><h2>Not checked because a metric is missing</h2><ul>{blind}</ul></div>" if blind else "",
        f"<div><h2>About this log</h2><ul>{notes}</ul></div>" if notes else "",
    ]
    return f"<section class=columns>{''.join(parts)}</section>" if any(parts) else ""


def _charts(analysis: Analysis) -> str:
    shown = "".join(_figure(chart, explained=True) for chart in charts(analysis.run.history.view()))
    return f"<section><h2>Charts</h2><div class=plots>{shown}</div></section>" if shown else ""


def _figure(chart: Chart, *, explained: bool = False) -> str:
    """The place of a chart, with what its lines are; `explained` says in words what the first of them means."""
    colours = len(PALETTES["light"].lines)
    keys = "".join(
        f"<span class=key><i style='background:var(--line{place % colours})'></i>{safe(name)}</span>"
        for place, name in enumerate(chart.metrics)
    )
    meaning = f" <span class=muted>{safe(metric(chart.metrics[0]).meaning)}</span>" if explained else ""
    legend = f"<div class=muted>{keys}</div>" if len(chart.metrics) > 1 else ""
    return figure_html(chart.id, chart.title, meaning + legend)


def _charts_of(analysis: Analysis, incident: Incident) -> list[Chart]:
    """The charts that show an incident: those of its evidence, then the reward."""
    wanted = [str(finding.evidence.get("metric", "")) for finding in incident.findings] + [
        "reward/mean",
        "accuracy/train",
    ]
    drawn = charts(analysis.run.history.view())
    found: list[Chart] = []
    for name in wanted:
        chart = next((chart for chart in drawn if name in chart.metrics), None)
        if chart and chart not in found:
            found.append(chart)
    return found[:4]


def _interventions(analysis: Analysis) -> str:
    """What was changed, what happened, and what the twin says would have happened without it."""
    made = story.interventions(analysis.run.actions)
    if not made:
        return ""
    items = "".join(
        f"<li>{''.join(f'<p>{safe(line)}</p>' for line in intervention_text(one))}</li>" for one in made[-MAX_ROWS:]
    )
    return f"<section><h2>What was changed while it trained</h2><ol>{items}</ol>{_left_out(len(made))}</section>"


def _journal(analysis: Analysis) -> str:
    actions = analysis.run.actions
    if not actions:
        return ""
    rows = [
        (f"{a.step:,}", a.entry, a.remedy, a.safety, change_text(a.change), a.text, a.action[:12])
        for a in actions[-MAX_ROWS:]
    ]
    return (
        f"<section><h2>Journal</h2><p>{safe(comparability(actions))}</p>"
        + table_html(("step", "entry", "remedy", "safety", "change", "why", "trial"), rows)
        + (_left_out(len(actions)) + "</section>")
    )


def _events(analysis: Analysis) -> str:
    events = analysis.run.history.events
    if not events:
        return ""
    rows = [(f"{event.step:,}", event.kind, event.text, event.attempt) for event in events[-MAX_ROWS:]]
    table = table_html(("step", "kind", "what", "attempt"), rows)
    return f"<section><h2>Declared events</h2>{table}{_left_out(len(events))}</section>"


def _numbers(analysis: Analysis) -> str:
    table, still = settled(numbers(analysis.run))
    knobs = f"<p class=muted>Knobs that never changed: {safe(unchanged(still))}.</p>" if still else ""
    rows = [
        (
            row.name,
            number(row.last),
            f"{row.step:,}",
            number(row.low),
            number(row.high),
            f"{row.rows:,}",
            row.not_finite or "",
            row.unit if row.unit != "1" else "",
            definition_text(row),
        )
        for row in table[:MAX_ROWS]
    ]
    heads = ("metric", "last", "at step", "min", "max", "rows", "NaN/Inf", "unit", "estimator")
    return (
        f"<section><details open><summary><h2>Numbers</h2></summary>{table_html(heads, rows, (1, 2, 3, 4, 5, 6))}"
        f"{_left_out(len(table))}{knobs}</details></section>"
    )


def _facts(analysis: Analysis) -> str:
    about = jsonable(dict(analysis.run.history.about))
    config = redacted(about.pop("config", {}) or {})
    about.pop("metrics", None)
    source = analysis.run.source
    facts = {"format": source.format, "files": list(source.files), "unreadable entries": source.skipped_lines, **about}
    rows = [(key, value if isinstance(value, str) else compact(value)) for key, value in facts.items()]
    settings = "".join(
        f"<tr><td>{safe(key)}</td><td><code>{safe(value)}</code></td></tr>" for key, value in listed(config)
    )
    empty = "<p class=muted>The log holds no configuration; --config FILE adds it.</p>"
    return (
        "<section class=columns>"
        f"<div><h2>Configuration</h2>{f'<table>{settings}</table>' if settings else empty}</div>"
        f"<div><h2>About the run</h2>{table_html((), rows)}</div></section>"
    )


def _left_out(count: int) -> str:
    return f"<p class=muted>{count - MAX_ROWS:,} more are not shown.</p>" if count > MAX_ROWS else ""


def _figures(analysis: Analysis, points: int) -> str:
    """Every chart of the run, light and dark."""
    run = analysis.run
    view, about = run.history.view(), run.history.about
    present = on_lineage(analysis.findings, Lineage.of(view.attempt, about))
    left = abandoned(run.histories, analysis.findings)
    drawn = {
        chart.id: [
            metric_figure(
                view,
                chart.metrics,
                findings=present,
                events=run.history.events,
                actions=run.actions,
                abandoned=left,
                theme=theme,
                max_points=points,
            ).to_plotly_json()
            for theme in ("light", "dark")
        ]
        for chart in charts(view)
    }
    for place, trial in enumerate(case.trials if (case := case_of(run)) else ()):
        lines = [(arm.name, arm.steps, arm.values) for arm in trial.arms]
        drawn[f"case-{place}"] = [
            arms_figure(lines, x_title="steps since the change", theme=theme).to_plotly_json()
            for theme in ("light", "dark")
        ]
    return charts_json(drawn)


def _icon(verdict: str) -> str:
    return {"healthy": "✔", "crashed": "✖", **ICONS}.get(verdict, "–")
