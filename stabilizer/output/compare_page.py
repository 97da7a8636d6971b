"""A comparison as one self-contained page: the report's frame around the same words as the terminal's, with charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stabilizer.compare import VERDICTS, Comparison
from stabilizer.compare.differences import label
from stabilizer.compare.gaps import Compared
from stabilizer.compare.words import LEVELS, STATES, gap_labels, how, rows, seeds, sentence, support_rows
from stabilizer.core.metrics import metric
from stabilizer.core.text import short
from stabilizer.figures.compared import REFERENCE, RUN, Line, compared_figure
from stabilizer.output.html import charts_json, document, figure_html, safe, table_html, tone
from stabilizer.output.report import refuse, write_text
from stabilizer.runs.reader import RunError

_AXES = {"step": "step", "tokens": "tokens", "samples": "completions", "time": "seconds of training"}


def write(comparisons: Sequence[Comparison], target: Path) -> None:
    """Write the page, whole or not at all."""
    if target.suffix.lower() not in (".html", ".htm"):
        raise RunError(f"{target}: a comparison's page ends in .html; --json prints the same as JSON")
    refuse(target, [m.path for c in comparisons for side in (c.run, c.reference) for m in side.members])
    write_text(target, html(comparisons))


def html(comparisons: Sequence[Comparison]) -> str:
    """The whole page; several comparisons follow one another."""
    figures: dict[str, list[dict[str, Any]]] = {}
    body = "".join(_one(c, f"c{place}", figures) for place, c in enumerate(comparisons))
    first = comparisons[0]
    return document(f"{safe(first.run.name)} beside {safe(first.reference.name)}", body, charts_json(figures))


def _one(c: Comparison, prefix: str, figures: dict[str, list[dict[str, Any]]]) -> str:
    parts = [_head(c)]
    if c.verdict != "identical":
        parts += [_next(c), _charts(c, prefix, figures), _measures(c), _explanations(c), _differences(c)]
    else:
        parts += [_charts(c, prefix, figures)]
    return "".join([*parts, _cautions(c)])


def _head(c: Comparison) -> str:
    mine, theirs = seeds(c)
    facts = [("Run", f"{c.run.name} ({mine})"), ("Reference", f"{c.reference.name} ({theirs})")]
    facts += [("Judged by", c.main.run_metric), ("Aligned by", _AXES[c.clock.name])]
    cells = "".join(f"<div><dt>{safe(key)}</dt><dd>{safe(value)}</dd></div>" for key, value in facts)
    return (
        f"<header><p class=eyebrow>Comparison</p><h1>{safe(c.run.name)} beside {safe(c.reference.name)}</h1>"
        f"<p class='verdict {tone(LEVELS[c.verdict])}'>{safe(VERDICTS[c.verdict])}</p>"
        f"<p>{safe(sentence(c.headline), 1000)}</p>"
        f"<dl class=facts>{cells}</dl>"
        f"<p class=muted>Aligned by {safe(_AXES[c.clock.name])}: {safe(c.clock.why)}.</p></header>"
    )


def _next(c: Comparison) -> str:
    first = f"<li><b>{safe(c.next.what)}</b><br>{safe(sentence(c.next.why))}.</li>"
    then = "".join(
        f"<li>{safe(change.what)}<br><span class=muted>{safe(change.why)}.</span></li>" for change in c.then[:3]
    )
    return f"<section><h2>What to do next, one variable at a time</h2><ol>{first}{then}</ol></section>"


def _charts(c: Comparison, prefix: str, figures: dict[str, list[dict[str, Any]]]) -> str:
    shown = [_figure(c, c.main, f"{prefix}-main", figures, "as logged")]
    if c.verdict not in ("identical", "same"):
        shown.append(_figure(c, c.main, f"{prefix}-shape", figures, "start 0, best 1", relative=True))
    for place, item in enumerate(c.others):
        shown.append(_figure(c, item, f"{prefix}-{place}", figures, metric(item.run_metric).unit))
    key = (
        f"<p class=muted><span class=key><i style='background:var(--line{RUN})'></i>{safe(c.run.name)}</span>"
        f"<span class=key><i style='background:var(--line{REFERENCE})'></i>{safe(c.reference.name)}, dashed</span> "
        "Faint: the points; strong: their smooth.</p>"
    )
    return f"<section><h2>Charts</h2>{key}<div class=plots>{''.join(shown)}</div></section>"


def _figure(
    c: Comparison,
    item: Compared,
    name: str,
    figures: dict[str, list[dict[str, Any]]],
    unit: str,
    relative: bool = False,
) -> str:
    sides = [
        [Line(member.name, s.x, s.y, s.line) for member, s in zip(side.members, shapes, strict=True)]
        for side, shapes in zip((c.run, c.reference), item.shapes, strict=True)
    ]
    figures[name] = [
        compared_figure(*sides, x_title=_AXES[c.clock.name], relative=relative, theme=theme).to_plotly_json()
        for theme in ("light", "dark")
    ]
    title = item.run_metric + (", shapes" if relative else "")
    said = f" <span class=muted>{safe(unit)}</span>" if unit not in ("", "1") else ""
    return figure_html(name, title, said)


def _measures(c: Comparison) -> str:
    support = table_html(("", "run", "reference"), support_rows(c.main))
    remarks = "".join(f"<p>{safe(sentence(text))}.</p>" for text in c.main.remarks)
    parts = [f"<section><h2>What {safe(c.main.run_metric)} can be</h2>{support}{remarks}</section>"]
    heads = ("measure", "run", "reference", "difference", "", "how")
    for item in (c.main, *c.others):
        table = [
            (row.what, row.run, row.reference, row.difference, STATES.get(row.state, ""), how(row))
            for row in rows(item, c)
        ]
        parts.append(
            f"<section><details{' open' if item is c.main else ''}><summary><h2>{safe(item.run_metric)}</h2></summary>"
            f"<p class=muted>95 % intervals; differences (run − reference, or × times it) with 99 % ones.</p>"
            f"{table_html(heads, table)}</details></section>"
        )
    return "".join(parts)


def _explanations(c: Comparison) -> str:
    if not c.explanations:
        return ""
    labels = gap_labels(c)
    table = [
        (labels.get(e.gap, e.gap), ("" if e.explains else "NOT ") + label(e.cause), e.sure, e.why)
        for e in sorted(c.explanations, key=lambda e: not e.explains)
    ]
    unknown = f"<p class=muted>Not stated by the reference: {safe(', '.join(c.unknown))}.</p>" if c.unknown else ""
    body = table_html(("gap", "cause", "how sure", "why"), table)
    return f"<section><h2>Which difference explains what</h2>{body}{unknown}</section>"


def _differences(c: Comparison) -> str:
    differs = [(d.label, d.key if d.key != d.label else "", short(d.run), short(d.reference)) for d in c.differences]
    alone = [(key, "" if a is None else short(a), "" if b is None else short(b)) for key, a, b in c.one_sided]
    both, single = "<p>No setting that both sides state.</p>", ""
    if differs:
        both = table_html(("what", "key", "run", "reference"), differs)
    if alone:
        table = table_html(("what", "run", "reference"), alone)
        single = f"<details><summary>Stated by one side alone</summary>{table}</details>"
    return f"<section><h2>What was set differently</h2>{both}{single}</section>"


def _cautions(c: Comparison) -> str:
    notes = [note for side in (c.run, c.reference) for m in side.members for note in m.notes]
    said = "".join(f"<li>{safe(sentence(text))}</li>" for text in dict.fromkeys([*c.cautions, *notes]))
    return f"<section><h2>To keep in mind</h2><ul>{said}</ul></section>" if said else ""
