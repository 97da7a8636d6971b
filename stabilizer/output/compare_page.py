"""A comparison as one self-contained page: the report's frame around the same words as the terminal's, with charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from stabilizer.compare import VERDICTS, Comparison
from stabilizer.compare.differences import label
from stabilizer.compare.gaps import Compared
from stabilizer.compare.words import STATES, how, rows, seeds, sentence, support_rows
from stabilizer.core.metrics import metric
from stabilizer.core.text import plain, short
from stabilizer.figures.compared import REFERENCE, RUN, Line, compared_figure
from stabilizer.output.html import charts_json, document
from stabilizer.output.report import refuse, write_text
from stabilizer.runs.reader import RunError

TONES = {
    "identical": "good-tone",
    "same-run": "good-tone",
    "same": "good-tone",
    "different": "warn",
    "rescaled": "warn",
    "not-comparable": "critical",
    "undetermined": "info",
}
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
    return document(f"{_t(first.run.name)} beside {_t(first.reference.name)}", body, charts_json(figures))


def _one(c: Comparison, prefix: str, figures: dict[str, list[dict[str, Any]]]) -> str:
    parts = [_head(c)]
    if c.verdict not in ("identical", "same-run"):
        parts += [_next(c), _charts(c, prefix, figures), _measures(c), _explanations(c), _differences(c)]
    else:
        parts += [_charts(c, prefix, figures)]
    return "".join([*parts, _cautions(c)])


def _head(c: Comparison) -> str:
    mine, theirs = seeds(c)
    facts = [("Run", f"{c.run.name} ({mine})"), ("Reference", f"{c.reference.name} ({theirs})")]
    facts += [("Judged by", c.main.run_metric), ("Aligned by", _AXES[c.clock.name])]
    cells = "".join(f"<div><dt>{_t(key)}</dt><dd>{_t(value)}</dd></div>" for key, value in facts)
    return (
        f"<header><p class=eyebrow>Comparison</p><h1>{_t(c.run.name)} beside {_t(c.reference.name)}</h1>"
        f"<p class='verdict {TONES[c.verdict]}'>{_t(VERDICTS[c.verdict])}</p><p>{_t(sentence(c.headline), 1000)}</p>"
        f"<dl class=facts>{cells}</dl>"
        f"<p class=muted>Aligned by {_t(_AXES[c.clock.name])}: {_t(c.clock.why)}.</p></header>"
    )


def _next(c: Comparison) -> str:
    first = f"<li><b>{_t(c.next.what)}</b><br>{_t(sentence(c.next.why))}.</li>"
    then = "".join(f"<li>{_t(change.what)}<br><span class=muted>{_t(change.why)}.</span></li>" for change in c.then[:3])
    return f"<section><h2>What to do next, one variable at a time</h2><ol>{first}{then}</ol></section>"


def _charts(c: Comparison, prefix: str, figures: dict[str, list[dict[str, Any]]]) -> str:
    shown = [_figure(c, c.main, f"{prefix}-main", figures, "as logged")]
    if c.verdict not in ("identical", "same"):
        shown.append(_figure(c, c.main, f"{prefix}-shape", figures, "start 0, best 1", relative=True))
    for place, item in enumerate(c.others):
        shown.append(_figure(c, item, f"{prefix}-{place}", figures, metric(item.run_metric).unit))
    key = (
        f"<p class=muted><span class=key><i style='background:var(--line{RUN})'></i>{_t(c.run.name)}</span>"
        f"<span class=key><i style='background:var(--line{REFERENCE})'></i>{_t(c.reference.name)}, dashed</span> "
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
    said = f" <span class=muted>{_t(unit)}</span>" if unit not in ("", "1") else ""
    return (
        f"<figure><figcaption><b>{_t(title)}</b>{said}</figcaption>"
        f"<div class=plot data-figure='{_t(name)}' role=img aria-label='{_t(title)}'></div></figure>"
    )


def _measures(c: Comparison) -> str:
    support = _table(("", "run", "reference"), support_rows(c.main))
    remarks = "".join(f"<p>{_t(sentence(text))}.</p>" for text in c.main.remarks)
    parts = [f"<section><h2>What {_t(c.main.run_metric)} can be</h2>{support}{remarks}</section>"]
    heads = ("measure", "run", "reference", "difference", "", "how")
    for item in (c.main, *c.others):
        table = [
            (row.what, row.run, row.reference, row.difference, STATES.get(row.state, ""), how(row))
            for row in rows(item, c)
        ]
        parts.append(
            f"<section><details{' open' if item is c.main else ''}><summary><h2>{_t(item.run_metric)}</h2></summary>"
            f"<p class=muted>95 % intervals; differences (run − reference, or × times it) with 99 % ones.</p>"
            f"{_table(heads, table)}</details></section>"
        )
    return "".join(parts)


def _explanations(c: Comparison) -> str:
    if not c.explanations:
        return ""
    labels = {"support": "reward range"} | {gap.id: gap.label for gap in c.main.gaps}
    table = [
        (labels.get(e.gap, e.gap), ("" if e.explains else "NOT ") + label(e.cause), e.sure, e.why)
        for e in sorted(c.explanations, key=lambda e: not e.explains)
    ]
    unknown = f"<p class=muted>Not stated by the reference: {_t(', '.join(c.unknown))}.</p>" if c.unknown else ""
    body = _table(("gap", "cause", "how sure", "why"), table)
    return f"<section><h2>Which difference explains what</h2>{body}{unknown}</section>"


def _differences(c: Comparison) -> str:
    differs = [(d.label, d.key if d.key != d.label else "", short(d.run), short(d.reference)) for d in c.differences]
    alone = [(key, "" if a is None else short(a), "" if b is None else short(b)) for key, a, b in c.one_sided]
    both = (
        _table(("what", "key", "run", "reference"), differs) if differs else "<p>No setting that both sides state.</p>"
    )
    single = (
        f"<details><summary>Stated by one side alone</summary>{_table(('what', 'run', 'reference'), alone)}</details>"
        if alone
        else ""
    )
    return f"<section><h2>What was set differently</h2>{both}{single}</section>"


def _cautions(c: Comparison) -> str:
    notes = [note for side in (c.run, c.reference) for m in side.members for note in m.notes]
    said = "".join(f"<li>{_t(sentence(text))}</li>" for text in (*c.cautions, *notes))
    return f"<section><h2>To keep in mind</h2><ul>{said}</ul></section>" if said else ""


def _table(heads: Sequence[str], body: Iterable[Sequence[Any]]) -> str:
    top = "".join(f"<th>{_t(head)}</th>" for head in heads)
    lines = "".join("<tr>" + "".join(f"<td>{_t(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f"<div class=scroll><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"


def _t(text: object, longest: int = 600) -> str:
    """Any text as HTML shows it: unable to open a tag or end an attribute."""
    return escape(plain(text, longest), quote=True)
