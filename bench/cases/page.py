"""One page a case in `docs/case-studies`, made from the folder of the case: story, figures, run and configuration."""

from __future__ import annotations

import contextlib
import io
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.cases.logged import SYMPTOMS
from bench.cases.shared import SAMPLES
from stabilizer.analysis.analyse import Analysis, analyse
from stabilizer.cli import main
from stabilizer.compare import read_side
from stabilizer.configs.bounds import load_toml
from stabilizer.figures import WORDS
from stabilizer.figures.svg import line_chart
from stabilizer.output.preflight_terminal import VERDICTS, changes
from stabilizer.output.report.as_markdown import table
from stabilizer.output.report.case_study import HEADS, STORY, Case, read, rows, seen_heads, seen_rows
from stabilizer.output.report.formatting import md
from stabilizer.preflight.check import Options, Preflight
from stabilizer.preflight.fix import corrected
from stabilizer.trainers.reading import load

DOCS = Path(__file__).parents[2] / "docs" / "case-studies"


class Page(NamedTuple):
    """What a page is made of besides its folder."""

    stem: str
    metrics: tuple[str, ...]
    """Metrics of the recorded run that its figure shows; none without a run of ours."""
    commands: tuple[str, ...]
    """Commands whose answer the page shows."""
    beside: tuple[str, ...] = ()
    """Other runs or curves of `sample_runs` whose first metric the figure shows too."""


PAGES = {
    "case-easyr1": Page("easyr1", ("reward/mean", "accuracy/val"), ()),
    "case-trl-beta0": Page("trl-beta0", ("optim/grad_norm", "policy/clip_frac", "reward/mean"), ()),
    "case-search-r1": Page("search-r1", ("reward/mean", "accuracy/val", "optim/lr"), ()),
    "case-open-r1": Page(
        "open-r1", (),
        (
            "stabilizer diagnose sample_runs/case-open-r1/train.log",
            "stabilizer plan --trainer open-r1 --version 0.15.2 --gpus 8 --vllm server --num-generations 8"
            " --model-size 1.5B --limit 3",
        ),
    ),
    "length-vs-published": Page(
        "tldr", ("reward/mean",),
        (
            "stabilizer compare sample_runs/length-vs-published sample_runs/length-vs-published/reference.json",
            "stabilizer compare sample_runs/length-in-trl sample_runs/length-vs-published/reference.json",
        ),
        beside=("length-in-trl", "length-vs-published/reference.json"),
    ),
}  # fmt: skip
"""Case -> its page."""


def write_pages(names: Iterable[str]) -> list[Path]:
    """Write the pages and figures of these cases; returns the files."""
    written = []
    for name in names:
        for path, text in files(name).items():
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def files(name: str) -> dict[Path, str]:
    """The page of a case and its figure, as they should be."""
    page, case = PAGES[name], read(SAMPLES / name)
    if case.problems:
        raise ValueError(f"{SAMPLES / name}: {'; '.join(case.problems)}")
    analysis = analyse(load(SAMPLES / name)) if page.metrics else None
    made = {DOCS / f"{page.stem}.md": "\n".join(_lines(name, page, case, analysis)) + "\n"}
    if analysis:
        made[DOCS / f"{page.stem}.svg"] = _figure(page, analysis)
    return made


def _figure(page: Page, analysis: Analysis) -> str:
    view = analysis.run.history.view()
    series = [(metric, view.series(metric).finite()) for metric in page.metrics]
    spans = [(finding.onset_step, finding.last_step) for finding in analysis.findings if finding.severity != "info"]
    lines = [(metric, rows.steps, rows.values) for metric, rows in series if len(rows) > 1]
    for name in page.beside:
        rows = read_side(str(SAMPLES / name)).members[0].series[page.metrics[0]].finite()
        lines.append((f"{page.metrics[0]}, {name}", rows.steps, rows.values))
    return line_chart(lines, spans=spans)


def _lines(name: str, page: Page, case: Case, analysis: Analysis | None) -> Iterator[str]:
    yield f"<!-- Made by `python -m bench cases {name} --pages` from sample_runs/{name}. -->"
    yield from ("", f"# {case.title}")
    yield from _told("What the user saw", case.saw)
    if analysis:
        yield from ("", f"![The run made small: {', '.join(page.metrics)}]({page.stem}.svg)")
        yield from ("", "The run made small. Spans of warnings are shaded.")
    if case.checked:
        yield from ("", "## What preflight says of the original configuration", "")
        yield from _preflight(case.checked)
        yield from _corrected(name, case.checked)
    yield from ("", "## When it could have been known", "")
    yield from _known(case, analysis)
    for command in page.commands:
        yield from ("", "```sh", command, "```", "", "```text", _answer(command), "```")
    if analysis and (causes := _causes(name, analysis)):
        yield from ("", "## The cause", "", *causes)
    yield from _told("The experiment", case.changed)
    yield from _measured(case)
    yield from _told("What happened", case.happened)
    yield from ("", "## The fix", "", "One at a time, in this order, in the keys of that trainer:", "")
    yield from (f"{place}. {step}" for place, step in enumerate(case.do, 1))
    yield from _told("Where common advice is wrong", case.advice)
    yield from _told("What this does not show", case.limits)
    yield from ("", "## Run it again", "", "```sh", f"python -m bench cases {name}", "```")


def _told(heading: str, paragraphs: Sequence[str]) -> Iterator[str]:
    if paragraphs:
        yield from ("", f"## {heading}")
    for paragraph in paragraphs:
        yield from ("", paragraph)


def _preflight(checked: Preflight) -> list[str]:
    heads = ("", "rule", "setting", "what it says", "change to")
    return table(
        heads,
        [(WORDS[f.severity], f.id, f"{f.key} = {f.value}", f.summary, changes(f)) for f in checked.findings],
    )


def _corrected(name: str, checked: Preflight) -> Iterator[str]:
    """What `--fix` changes, and the verdict on the copy."""
    said = load_toml((SAMPLES / name / STORY).read_text(encoding="utf-8")).get("said", {})
    fixed = corrected(checked, Options(**said))
    if fixed.applied:
        yield from ("", "`stabilizer preflight CONFIG --fix` writes a copy with these changes:", "")
        yield from (f"- {md(changes(finding))} ({md(finding.id)})" for finding in fixed.applied)
        yield from ("", f"The verdict on the copy: {VERDICTS[fixed.after.verdict]}.")


def _known(case: Case, analysis: Analysis | None) -> list[str]:
    """When what was found was found: before the first step, and in the recorded run."""
    lines = []
    if case.checked:
        loud = [f for f in case.checked.findings if f.severity != "info"]
        lines.append(("before the first step", "preflight", ", ".join(f.id for f in loud) or "nothing", ""))
    if analysis:
        found = [finding for incident in analysis.incidents for finding in incident.findings]
        lines += [
            (f"step {f.detected_step:,}", WORDS[f.severity], f.id, f.summary)
            for f in sorted(found, key=lambda f: f.detected_step)
        ]
    return table(("when", "severity", "finding", "summary"), lines)


def _causes(name: str, analysis: Analysis) -> list[str]:
    """The first cause of each incident that has the finding of the symptom."""
    wanted = SYMPTOMS[name][0] if name in SYMPTOMS else ""
    return [
        f"- Incident {incident.number}, from step {incident.onset:,}: **{cause.id}** ({cause.confidence:.0%})."
        f" {cause.why}"
        for incident in analysis.incidents if wanted in {finding.id for finding in incident.findings}
        for cause in incident.explained.causes[:1]
    ]  # fmt: skip


def _measured(case: Case) -> Iterator[str]:
    for symptom in case.symptoms:
        yield from ("", f"### {symptom.title}", "", f"Counted: {symptom.what}. {symptom.note}", "")
        yield from table(seen_heads(symptom), seen_rows(symptom))
    for trial in case.trials:
        yield from ("", f"### {trial.title}", "", trial.note, "")
        yield from table(HEADS, rows(trial))
    if case.measured:
        yield from ("", *(f"- {key}: {value}" for key, value in case.measured))


def _answer(command: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(shlex.split(command)[1:])
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())
