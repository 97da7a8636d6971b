"""One self-contained page about a run, to send, to archive, or to open years later without a network.

The page is made of strings, and every piece of text in it goes through `_t` (HTML) or `_md` (Markdown) on its way: run
names, summaries and configurations come from other people's files. What holds the page together is in `page`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import orjson

from stabilizer import __version__, records
from stabilizer.analysis import Analysis, Incident, Number, as_json, numbers
from stabilizer.case import HEADS, Case, case_of, rows
from stabilizer.figures import ICONS, PALETTES, WORDS, Chart, abandoned, charts, metric_figure
from stabilizer.figures.arms import arms_figure
from stabilizer.page import charts_json, document
from stabilizer.preflight.page import changes as preflight_changes
from stabilizer.records import Finding, RemedyAdvice
from stabilizer.runs import journal
from stabilizer.runs.directory import redacted
from stabilizer.runs.reader import RunError
from stabilizer.terminal import LONGEST, VERDICTS, changed, plain
from stabilizer.vocabulary import metric

FORMATS = (".html", ".htm", ".md", ".json")
MAX_BYTES = 5_000_000
"""Size of a page; charts are thinned until it fits. Plotly's own script is 4.8 MB of it."""
POINTS = (1000, 600, 300, 120, 60)
"""Points per line that are tried in turn."""
STORY = 4000
"""Characters of a case's paragraph that are shown."""
MAX_ROWS = 400
"""Journal entries, events and metrics that are listed; the rest is counted."""


def write(analysis: Analysis, target: Path) -> Path:
    """Write the report in the form its suffix names, whole or not at all; returns the path."""
    suffix = target.suffix.lower()
    if suffix not in FORMATS:
        raise RunError(f"{target}: a report ends in .html, .md or .json, not {suffix or 'nothing'}")
    refuse(target, analysis.run.source.files)
    if suffix == ".json":
        text = orjson.dumps(data(analysis), option=orjson.OPT_INDENT_2).decode() + "\n"
    else:
        text = markdown(analysis) if suffix == ".md" else html(analysis)
    write_text(target, text)
    return target


def write_text(target: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = target.with_name(f".{target.name[:80]}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def default_name(analysis: Analysis) -> str:
    """A file name for the report of this run."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", analysis.run.name).strip("-.")[:80]
    return f"{stem or 'run'}-report.html"


def refuse(target: Path, logs: Iterable[str]) -> None:
    """RunError when a page must not be written there: no such folder, inside a run directory, or over a log."""
    place = target.resolve()
    if not place.parent.is_dir():
        raise RunError(f"{target}: the folder {place.parent} does not exist; make it first")
    if place.is_dir():
        raise RunError(f"{target}: is a folder; give a file name in it")
    inside = next((folder for folder in place.parents if (folder / "run.json").is_file()), None)
    if inside:
        raise RunError(
            f"{target}: lies inside the run directory {inside}, which only training writes to; use -o elsewhere"
        )
    if any(Path(file).resolve() == place for file in logs):
        raise RunError(f"{target}: is the log itself; give another name with -o")


def data(analysis: Analysis) -> dict[str, Any]:
    """The report as JSON: what `diagnose --json` says, and the facts around it."""
    about = analysis.run.history.about
    return {
        **as_json(analysis),
        "written_by": f"stabilizer {__version__}",
        "state": analysis.state,
        "notes": list(analysis.run.source.notes),
        "run_facts": records.as_json(_jsonable({key: about[key] for key in about if key != "metrics"})),
        "numbers": [records.as_json(row._asdict()) for row in numbers(analysis.run)],
        "events": [records.as_json(event) for event in analysis.run.history.events],
        "actions": [records.as_json(action) for action in analysis.run.actions],
    }


# --- HTML ----------------------------------------------------------------------------------------------------------


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
    title = f"{_t(analysis.run.name)}: {_t(VERDICTS.get(analysis.verdict, analysis.verdict))}"
    return document(title, "".join(sections), figures)


def _header(analysis: Analysis) -> str:
    source, about = analysis.run.source, analysis.run.history.about
    clock = "optimizer step" if about.get("clock") == "optimizer_step" else "step"
    facts = [
        ("Trainer", source.trainer),
        ("Rows logged", f"{source.steps:,}"),
        ("Range", f"{clock} {analysis.first_step:,} to {analysis.last_step:,}"),
    ]
    if isinstance(planned := about.get("steps"), int):
        facts.append(("Planned", f"{planned:,}"))
    if task := about.get("task"):
        facts.append(("Task", task))
    if (made := journal.summary(analysis.run.actions))["count"]:
        facts.append(("Interventions", made["text"]))
    if analysis.state:
        facts.append(
            ("State", f"{analysis.state}, as of step {analysis.last_step:,}" if analysis.live else analysis.state)
        )
    cells = "".join(f"<div><dt>{_t(key)}</dt><dd>{_t(value)}</dd></div>" for key, value in facts)
    tone = _tone(analysis.verdict)
    way = ""
    if analysis.verdict == "healthy" and analysis.worst in ("warn", "critical"):
        way = f" <span class=muted>There was a {_t(WORDS[analysis.worst])} incident on the way.</span>"
    lead = "".join(
        f"<li><a href='#incident-{i.incident}'><span class='{_tone(i.severity)}'>{ICONS[i.severity]}</span> "
        f"step {i.onset_step:,}</a> {_t(i.summary)}</li>"
        for i in analysis.incidents
    )
    words = {
        "too-short": "There are too few rows to say anything either way.",
        "not-rl": "No rewards, completions or KL are logged: this is another kind of training.",
    }.get(analysis.verdict, "" if analysis.findings else "Nothing was found by the detectors that could be asked.")
    doubts = "".join(f"<p>But {_t(item.why)}.</p>" for item in analysis.not_checked if item.why)
    return (
        f"<header><p class=eyebrow>Training report</p><h1>{_t(analysis.run.name)}</h1>"
        f"<p class='verdict {tone}'><span>{_icon(analysis.verdict)}</span> "
        f"{_t(VERDICTS.get(analysis.verdict, analysis.verdict))}{way}</p>"
        f"<p>{_t(words)}</p>{doubts}<dl class=facts>{cells}</dl>"
        + (f"<ol class=lead>{lead}</ol>" if lead else "")
        + "".join(f"<p class=muted>Outlook: {_t(line)}.</p>" for line in _outlook(analysis))
        + "</header>"
    )


def _outlook(analysis: Analysis) -> tuple[str, ...]:
    return analysis.forecast.lines if analysis.forecast else ()


def _incident(analysis: Analysis, incident: Incident) -> str:
    state = "open" if incident.open else "resolved"
    findings = "".join(_finding(finding) for finding in incident.findings)
    leading = incident.explained
    shown = _charts_of(analysis, incident)
    plots = "".join(_figure(chart) for chart in shown)
    causes = "".join(
        f"<li><b>{_t(cause.id)}</b>{_confidence(cause)}<br>{_t(cause.why)}</li>" for cause in leading.causes
    )
    remedies = "".join(_remedy(remedy) for remedy in leading.remedies)
    return (
        f"<section id='incident-{incident.incident}'><h2><span class='{_tone(incident.severity)}'>"
        f"{ICONS[incident.severity]}</span> Incident {incident.incident} "
        f"<small>{_t(WORDS[incident.severity])}, {state}, since step {incident.onset_step:,}</small></h2>"
        f"{findings}<div class='plots {'one' if len(shown) == 1 else ''}'>{plots}</div>"
        "<div class=columns>"
        f"<div><h3>Why</h3>{f'<ul>{causes}</ul>' if causes else '<p>No rule explains what was seen.</p>'}</div>"
        + (f"<div><h3>What to do, in this order, one at a time</h3><ol>{remedies}</ol></div>" if remedies else "")
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
        table = _table(("", "rule", "setting", "what", "set instead"), found)
        parts.append(f"<h3>What preflight says of its configuration, {_t(name)}</h3>{table}")
    found = "".join(f"<p><a href='#incident-{i.incident}'>{_t(i.summary)}</a></p>" for i in analysis.incidents)
    parts += [f"<h3>Diagnosis of the run made small</h3>{found}" if found else ""]
    parts += [_told("What was changed", case.changed), _told("What happened", case.happened)]
    for place, trial in enumerate(case.trials):
        parts.append(
            f"<h3>{_t(trial.title)}</h3>{_paragraphs((trial.note,))}<div class='plots one'>"
            f"{_figure(Chart(f'case-{place}', trial.metric, tuple(arm.name for arm in trial.arms)))}</div>"
            f"{_table(HEADS, rows(trial), (5, 6))}"
        )
    if case.measured:
        parts.append(f"<h3>Measured</h3>{_table((), case.measured)}")
    parts.append(_told("What this does not show", case.limits))
    if case.do:
        steps = "".join(f"<li>{_t(step)}</li>" for step in case.do)
        parts.append(f"<h3>What to do in the trainer it came from, one at a time</h3><ol>{steps}</ol>")
    parts += [f"<p class=muted>{_t(problem)}</p>" for problem in case.problems]
    return f"<section id=case><h2>Case: {_t(case.title)}</h2>{''.join(parts)}</section>"


def _case_text(case: Case) -> list[str]:
    """The same as Markdown; the charts stay behind."""
    lines = ["", f"## Case: {_md(case.title)}"]
    for heading, texts in (
        ("What was seen", case.saw), ("What was changed", case.changed), ("What happened", case.happened)
    ):  # fmt: skip
        lines += ["", f"**{heading}.** {_md(' '.join(texts), STORY)}"] if texts else []
    for trial in case.trials:
        lines += ["", f"{_md(trial.title)}: {_md(trial.metric)}. {_md(trial.note)}", ""]
        lines += [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
        lines += [f"| {' | '.join(_md(cell) for cell in row)} |" for row in rows(trial)]
    lines += ["", *(f"- {_md(key)}: {_md(value)}" for key, value in case.measured)] if case.measured else []
    lines += ["", f"**What this does not show.** {_md(' '.join(case.limits), STORY)}"] if case.limits else []
    return [*lines, "", *(f"{place}. {_md(step)}" for place, step in enumerate(case.do, 1))]


def _told(heading: str, paragraphs: Sequence[str]) -> str:
    return f"<h3>{_t(heading)}</h3>{_paragraphs(paragraphs)}" if paragraphs else ""


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(plain(text, STORY))}</p>" for text in texts if text)


def _finding(finding: Finding) -> str:
    evidence = "".join(f"<span><i>{_t(key)}</i> {_t(_number(value))}</span>" for key, value in finding.evidence.items())
    return (
        f"<div class=finding><p><code>{_t(finding.id)}</code> <span class='tag {_tone(finding.severity)}'>"
        f"{_t(WORDS[finding.severity])}</span> <span class=muted>{_t(finding.state)}; "
        f"onset step {finding.onset_step:,}, seen at step {finding.detected_step:,}, "
        f"last at step {finding.last_step:,}</span></p>"
        f"<p>{_t(finding.summary)}</p><p class=evidence>{evidence}</p></div>"
    )


def _remedy(remedy: RemedyAdvice) -> str:
    change = changed(remedy)
    return (
        f"<li><b>{_t(remedy.id)}</b> <span class=tag>{_t(remedy.safety)}</span>"
        + (f" <code>{_t(change)}</code>" if change else "")
        + f"<br>{_t(remedy.how)}<br><span class=muted>{_t(remedy.why)}</span></li>"
    )


def _confidence(cause: records.Cause) -> str:
    return "" if cause.id == "undetermined" else f" <span class=muted>{cause.confidence:.0%}</span>"


def _healthy(analysis: Analysis) -> str:
    good = "".join(
        f"<li><b>{_t(item.what)}</b><br><span class=muted>{_t(item.why)}</span></li>" for item in analysis.healthy
    )
    blind = "".join(
        f"<li><code>{_t(item.id)}</code> <span class=muted>{_t(item.why or 'log ' + _wants(item.needs))}</span></li>"
        for item in (analysis.not_checked if analysis.run.source.steps else ())
    )
    notes = "".join(f"<li>{_t(note)}</li>" for note in analysis.run.source.notes)
    parts = [
        f"<div><h2>Healthy</h2><ul class=good>{good}</ul></div>" if good else "",
        f"<div><h2>Not checked, for want of a metric</h2><ul>{blind}</ul></div>" if blind else "",
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
        f"<span class=key><i style='background:var(--line{place % colours})'></i>{_t(name)}</span>"
        for place, name in enumerate(chart.metrics)
    )
    meaning = f" <span class=muted>{_t(metric(chart.metrics[0]).meaning)}</span>" if explained else ""
    legend = f"<div class=muted>{keys}</div>" if len(chart.metrics) > 1 else ""
    return (
        f"<figure><figcaption><b>{_t(chart.title)}</b>{meaning}{legend}</figcaption>"
        f"<div class=plot data-figure='{_t(chart.id)}' role=img aria-label='{_t(chart.title)}'></div></figure>"
    )


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
    made = journal.interventions(analysis.run.actions)
    if not made:
        return ""
    items = "".join(f"<li>{''.join(f'<p>{_t(line)}</p>' for line in _changed(one))}</li>" for one in made[-MAX_ROWS:])
    return f"<section><h2>What was changed while it trained</h2><ol>{items}</ol>{_left_out(len(made))}</section>"


def _changed(one: journal.Intervention) -> tuple[str, ...]:
    """An intervention in four sentences: what, why, what came of it, what would have come without it."""
    who = f"by {one.by}" if one.remedy == journal.BY_HAND else f"by the remedy {one.remedy}"
    what = ", ".join(filter(None, [_changes(one.change), one.order])) or one.remedy
    came = {"kept": "It was kept", "undone": "It was undone", "on trial": "It was still on trial when the run ended"}
    outcome = came[one.outcome] + (f" at step {one.ended:,}" if one.ended is not None else "")
    lines = [f"After step {one.step:,}, {who} ({one.action}): {what}."]
    if one.remedy != journal.BY_HAND:
        lines += [f"Why: {one.why}.", f"{outcome}{f': {one.said}' if one.said else ''}."]
        lines += [f"Without it: {journal.twin_words(one)}."]
    elif one.outcome == "undone":
        lines += [f"{outcome}."]
    return tuple(lines)


def _journal(analysis: Analysis) -> str:
    actions = analysis.run.actions
    if not actions:
        return ""
    rows = [
        (f"{a.step:,}", a.entry, a.remedy, a.safety, _changes(a.change), a.text, a.action[:12])
        for a in actions[-MAX_ROWS:]
    ]
    return (
        f"<section><h2>Journal</h2><p>{_t(_comparable(actions))}</p>"
        + _table(("step", "entry", "remedy", "safety", "change", "why", "trial"), rows)
        + (_left_out(len(actions)) + "</section>")
    )


def _comparable(actions: Sequence[records.Action]) -> str:
    """Whether this run may stand beside others as a plain one."""
    made = journal.summary(actions)
    if not made["count"]:
        return "Nothing was changed while this run trained."
    return f"This run was {made['text']}; its results are not comparable with those of a plain run."


def _events(analysis: Analysis) -> str:
    events = analysis.run.history.events
    if not events:
        return ""
    rows = [(f"{event.step:,}", event.kind, event.text, event.attempt) for event in events[-MAX_ROWS:]]
    table = _table(("step", "kind", "what", "attempt"), rows)
    return f"<section><h2>Declared events</h2>{table}{_left_out(len(events))}</section>"


def _numbers(analysis: Analysis) -> str:
    table = numbers(analysis.run)
    rows = [
        (row.name, _number(row.last), f"{row.step:,}", _number(row.low), _number(row.high), f"{row.rows:,}",
         row.not_finite or "", row.unit if row.unit != "1" else "", _said(row))
        for row in table[:MAX_ROWS]
    ]  # fmt: skip
    heads = ("metric", "last", "at step", "min", "max", "rows", "NaN/Inf", "unit", "estimator")
    return (
        f"<section><details open><summary><h2>Numbers</h2></summary>{_table(heads, rows, (1, 2, 3, 4, 5, 6))}"
        f"{_left_out(len(table))}</details></section>"
    )


def _said(row: Number) -> str:
    source = f" (logged as {row.source})" if row.source and row.source != row.name else ""
    aggregation = f"; {row.aggregation}" if row.aggregation and row.aggregation != row.estimator else ""
    return f"{row.estimator}{aggregation}{source}"


def _facts(analysis: Analysis) -> str:
    about = _jsonable(dict(analysis.run.history.about))
    config = redacted(about.pop("config", {}) or {})
    about.pop("metrics", None)
    source = analysis.run.source
    facts = {"format": source.format, "files": list(source.files), "unreadable entries": source.skipped_lines, **about}
    rows = [(key, value if isinstance(value, str) else _json(value)) for key, value in facts.items()]
    settings = "".join(f"<tr><td>{_t(key)}</td><td><code>{_t(value)}</code></td></tr>" for key, value in _flat(config))
    empty = "<p class=muted>The log holds no configuration; --config FILE adds it.</p>"
    return (
        "<section class=columns>"
        f"<div><h2>Configuration</h2>{f'<table>{settings}</table>' if settings else empty}</div>"
        f"<div><h2>About the run</h2>{_table((), rows)}</div></section>"
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> str:
    top = "".join(f"<th{' class=r' if i in right else ''}>{_t(head)}</th>" for i, head in enumerate(heads))
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=r' if i in right else ''}>{_t(cell)}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    head = f"<thead><tr>{top}</tr></thead>" if heads else ""
    return f"<div class=scroll><table>{head}<tbody>{body}</tbody></table></div>"


def _left_out(count: int) -> str:
    return f"<p class=muted>{count - MAX_ROWS:,} more are left out here.</p>" if count > MAX_ROWS else ""


# --- charts --------------------------------------------------------------------------------------------------------


def _figures(analysis: Analysis, points: int) -> str:
    """Every chart of the run, light and dark."""
    run = analysis.run
    view = run.history.view()
    drawn = {
        chart.id: [
            metric_figure(
                view, chart.metrics, findings=analysis.findings, events=run.history.events, actions=run.actions,
                abandoned=abandoned(run.histories), theme=theme, max_points=points,
            ).to_plotly_json()
            for theme in ("light", "dark")
        ]
        for chart in charts(view)
    }  # fmt: skip
    for place, trial in enumerate(case.trials if (case := case_of(run)) else ()):
        lines = [(arm.name, arm.steps, arm.values) for arm in trial.arms]
        drawn[f"case-{place}"] = [
            arms_figure(lines, x_title="steps since the change", theme=theme).to_plotly_json()
            for theme in ("light", "dark")
        ]
    return charts_json(drawn)


# --- Markdown ------------------------------------------------------------------------------------------------------


def markdown(analysis: Analysis) -> str:
    """The report as text, for an issue or a wiki; charts stay behind."""
    source = analysis.run.source
    lines = [
        f"# {_md(analysis.run.name)}: {_md(VERDICTS.get(analysis.verdict, analysis.verdict))}",
        "",
        f"{_md(source.trainer)}, {source.steps:,} rows, steps {analysis.first_step:,} to {analysis.last_step:,}"
        + (f"; {_md(analysis.state)} as of then" if analysis.live else ""),
    ]
    lines += [part for line in _outlook(analysis) for part in ("", f"Outlook: {_md(line)}.")]
    lines += _case_text(case) if (case := case_of(analysis.run)) else []
    for incident in analysis.incidents:
        state = "open" if incident.open else "resolved"
        lines += [
            "",
            f"## Incident {incident.incident}: {WORDS[incident.severity]}, {state}, since step {incident.onset_step:,}",
            "",
        ]
        for finding in incident.findings:
            facts = f"{WORDS[finding.severity]}, {finding.state}, onset {finding.onset_step:,}"
            lines.append(f"- **{_md(finding.id)}** ({facts}): {_md(finding.summary)}")
        leading = incident.explained
        if leading.causes:
            lines += ["", "Why:", ""]
            lines += [f"- **{_md(c.id)}** ({c.confidence:.0%}): {_md(c.why)}" for c in leading.causes]
        if leading.remedies:
            lines += ["", "What to do, one at a time:", ""]
            for place, remedy in enumerate(leading.remedies, 1):
                change = changed(remedy)
                lines.append(
                    f"{place}. **{_md(remedy.id)}** ({remedy.safety}){f' {_md(change)}' if change else ''}: "
                    f"{_md(remedy.how)}. {_md(remedy.why)}"
                )
    if analysis.healthy:
        lines += ["", "## Healthy", "", *(f"- **{_md(i.what)}**: {_md(i.why)}" for i in analysis.healthy)]
    if analysis.not_checked and source.steps:
        wants = (f"- {_md(i.id)}: {_md(i.why or 'log ' + _wants(i.needs))}" for i in analysis.not_checked)
        lines += ["", "## Not checked, for want of a metric", "", *wants]
    if source.notes:
        lines += ["", "## About this log", "", *(f"- {_md(note)}" for note in source.notes)]
    if made := journal.interventions(analysis.run.actions):
        lines += ["", "## What was changed while it trained", ""]
        lines += [f"{place}. {_md(' '.join(_changed(one)))}" for place, one in enumerate(made[-MAX_ROWS:], 1)]
    if analysis.run.actions:
        lines += ["", "## Journal", "", _comparable(analysis.run.actions), ""]
        lines += ["| step | entry | remedy | change | why |", "|---|---|---|---|---|"]
        lines += [
            f"| {a.step} | {a.entry} | {_md(a.remedy)} | {_md(_changes(a.change))} | {_md(a.text)} |"
            for a in analysis.run.actions[-MAX_ROWS:]
        ]
    lines += [
        "",
        "## Numbers",
        "",
        "| metric | last | at step | min | max | unit | estimator |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {_md(r.name)} | {_number(r.last)} | {r.step} | {_number(r.low)} | {_number(r.high)} | {_md(r.unit)} "
        f"| {_md(_said(r))} |"
        for r in numbers(analysis.run)[:MAX_ROWS]
    ]
    config = redacted(analysis.run.history.about.get("config") or {})
    if config:
        lines += ["", "## Configuration", "", *(f"- {_md(key)}: {_md(value)}" for key, value in _flat(config))]
    return "\n".join([*lines, "", f"Written by stabilizer {__version__}.", ""])


# --- text ----------------------------------------------------------------------------------------------------------


def _t(text: object) -> str:
    """Any text as HTML shows it: without control characters, and unable to open a tag or end an attribute."""
    return escape(plain(text), quote=True)


def _md(text: object, longest: int = LONGEST) -> str:
    """Any text as Markdown shows it."""
    return re.sub(r"([\\`*_\[\]<>|#~!])", r"\\\1", plain(text, longest))


def _number(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_number(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_number(inner) for inner in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if value != value:
        return "NaN"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _wants(needs: Iterable[str]) -> str:
    return ", ".join(needs).replace("|", " or ")


def _tone(verdict: str) -> str:
    return {"healthy": "good-tone", "crashed": "critical"}.get(verdict, verdict if verdict in ICONS else "muted")


def _icon(verdict: str) -> str:
    return {"healthy": "✔", "crashed": "✖", **ICONS}.get(verdict, "–")


def _changes(change: Mapping[str, tuple[float | None, float | None]]) -> str:
    return changed(RemedyAdvice(id="", safety="advice", change=change, why="", how=""))


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """A configuration as dotted keys and values."""
    if isinstance(value, Mapping) and value:
        return [row for key, inner in value.items() for row in _flat(inner, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, value if isinstance(value, str) else _json(value))] if prefix else []


def _json(value: Any) -> str:
    return orjson.dumps(records.as_json(_jsonable(value))).decode()


def _jsonable(value: Any) -> Any:
    """What a configuration file may hold beyond JSON's types (YAML's dates) becomes its text."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_jsonable(inner) for inner in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
