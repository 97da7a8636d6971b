"""The report: complete in itself, harmless whatever a log says, and never written where a run lives."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from plotly.offline import get_plotlyjs

from stabilizer.analysis.analyse import analyse
from stabilizer.cli import main
from stabilizer.core.records import Action, Cause, RemedyAdvice
from stabilizer.output.report import MAX_BYTES, default_name, html, markdown
from stabilizer.output.report import write as write_report
from stabilizer.trainers.reading import load
from tests.analysis.test_diagnose import FINDING, HOSTILE, analysis_with, broken_state, own_run
from tests.trainers.trl_logs import record, state, write


class Page(HTMLParser):
    """Tags, their attributes, and the text of each script."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.shown = ""
        self._script: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs)

    def handle_data(self, data):
        if self._script is not None:
            self.scripts.append((self._script, data))
        else:
            self.shown += data

    def handle_endtag(self, tag):
        self._script = None if tag == "script" else self._script


def hostile_page(tmp_path) -> str:
    rows = [record("0.20", step, **{HOSTILE: 1.0, f"rewards/{HOSTILE}/mean": 0.5}) for step in range(1, 60)]
    config = write(tmp_path, {HOSTILE: HOSTILE, "nested": {"</script>": ["<img src=x onerror=alert(1)>"]}}, "c.json")
    run = load(write(tmp_path / "<b>run", state("0.20", log_history=rows)), config=config)
    evil = replace(
        FINDING, summary=HOSTILE, id=HOSTILE, evidence={"metric": f"trl/{HOSTILE}", HOSTILE: HOSTILE},
        causes=(Cause(HOSTILE, 0.5, HOSTILE),),
        remedies=(RemedyAdvice(HOSTILE, "soft", {HOSTILE: (1.0, 2.0)}, HOSTILE, HOSTILE),),
    )  # fmt: skip
    run.actions.append(Action(HOSTILE, "applied", HOSTILE, 5, text=HOSTILE))
    claimed = analysis_with(tmp_path, evil)
    return html(replace(claimed, run=run))


def test_hostile_text_stays_text(tmp_path):
    text = hostile_page(tmp_path)
    parsed = Page(text)
    assert len(parsed.scripts) == 3 and "alert(1)" not in parsed.scripts[1][1] + parsed.scripts[2][1]
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert [tag for tag, _ in parsed.tags if tag in ("img", "iframe", "object", "link", "base", "form")] == []
    assert "alert(1)" in parsed.shown and not set(parsed.shown) & set("\x1b\u202e\u2066\x00")
    figures = json.loads(parsed.scripts[0][1])
    assert figures["figures"] and "<" not in parsed.scripts[0][1]


def test_only_the_two_scripts_of_the_page_may_run_and_nothing_is_loaded(tmp_path):
    text = html(analyse(load(write(tmp_path / "a", state("0.20")))))
    parsed = Page(text)
    policy = next(a["content"] for tag, a in parsed.tags if tag == "meta" and "Content-Security-Policy" in a.values())
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    own = [script for attributes, script in parsed.scripts if "type" not in attributes]
    packed = [script for attributes, script in parsed.scripts if attributes.get("id") == "plotly"]
    runs = [*own, *(gzip.decompress(base64.b64decode(script)).decode() for script in packed)]
    assert {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in runs} == allowed and len(runs) == 2
    assert runs[1] == get_plotlyjs()
    assert "default-src 'none'" in policy and "http" not in policy
    assert [a for tag, a in parsed.tags if {"src", "href"} & set(a) and not a.get("href", "#").startswith("#")] == []
    assert text.count("Plotly.react") >= 1


def test_a_short_page_is_half_of_what_is_allowed(tmp_path):
    assert len(html(analyse(load(write(tmp_path / "a", state("0.20"))))).encode()) < MAX_BYTES / 2


@pytest.mark.parametrize("metrics,incidents", [(9, 0), (120, 0), (40, 150)])
def test_a_long_run_of_many_metrics_and_incidents_still_fits(tmp_path, metrics, incidents):
    rows = [
        record("0.20", step, **{f"rewards/f{n}/mean": (step * 7919 % (997 + n)) / 997 for n in range(metrics)})
        for step in range(1, 4001)
    ]
    run = load(write(tmp_path / "a", state("0.20", log_history=rows)))
    findings = [replace(FINDING, incident=n, onset_step=20 * n, last_step=20 * n + 15) for n in range(incidents)]
    text = html(replace(analysis_with(tmp_path, *findings), run=run))
    assert len(text.encode()) <= MAX_BYTES and text.count("<section id='incident-") == incidents


def test_the_page_tells_the_story(tmp_path):
    parsed = Page(html(analyse(load(write(tmp_path / "tale", broken_state())))))
    for part in ("tale", "Incident 1", "optim/grad-explosion", "Healthy", "nats/token", "global L2 norm",
                 "(logged as grad_norm)", "What to do", "Charts", "optimizer step"):  # fmt: skip
        assert part in parsed.shown, part
    charts = {a["data-figure"] for tag, a in parsed.tags if "data-figure" in a}
    figures = json.loads(parsed.scripts[0][1])["figures"]
    assert {"reward", "grad-norm", "entropy"} <= charts <= set(figures)
    first = figures["reward"]
    assert len(first["dark"]["data"]) == len(first["data"])
    assert "x" not in first["dark"]["data"][0], "the dark figure repeats no numbers"


def test_journal_and_state_of_an_own_run(tmp_path):
    writer = own_run(tmp_path / "run")
    writer.event(30, "intervention", "lr halved")
    writer.action(Action("t1", "applied", "lower-lr", 30, text="halved", change={"control/lr_scale": (1.0, 0.5)}))
    writer.status("running", 60, force=True)
    writer.close()
    shown = Page(html(analyse(load(tmp_path / "run")))).shown
    for part in ("running, as of step 60", "Journal", "lr_scale 1 → 0.5", "Declared events", "policy.beta", "addition"):
        assert part in shown, part


@pytest.mark.parametrize("suffix", [".html", ".htm", ".md", ".json"])
def test_the_suffix_says_which_form(tmp_path, capsys, suffix):
    path = write(tmp_path / "a", state("0.20"))
    target = tmp_path / f"r{suffix}"
    assert main(["report", str(path), "-o", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(target), "run": "a", "verdict": "healthy"}
    text = target.read_text(encoding="utf-8")
    if suffix == ".json":
        assert {"findings", "numbers", "actions", "run_facts", "notes"} <= set(json.loads(text))
    else:
        assert text.startswith("# a" if suffix == ".md" else "<!doctype html>")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_markdown_shows_hostile_text_as_text(tmp_path):
    evil = replace(FINDING, summary=HOSTILE)
    text = markdown(analysis_with(tmp_path, evil))
    assert "\\<script\\>" in text and "\\[bold\\]" in text and "\x1b" not in text


def test_nothing_is_written_into_a_run_directory_or_over_a_log(tmp_path, capsys, monkeypatch):
    own_run(tmp_path / "run").close()
    log = write(tmp_path / "a", state("0.20"), "log.json")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    content = log.read_bytes()
    monkeypatch.chdir(tmp_path / "run/metrics")
    for words, said in (
        ([tmp_path / "run"], "inside the run directory"), ([tmp_path / "run", "-o", tmp_path / "run/r.html"], "inside"),
        ([log, "-o", log], "log itself"), ([log, "-o", tmp_path / "r.pdf"], ".html, .md or .json"),
        ([log, "-o", tmp_path / "none/r.html"], "does not exist"),
    ):  # fmt: skip
        assert main(["report", *map(str, words)]) == 2
        assert said in capsys.readouterr().err
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before and log.read_bytes() == content


def test_the_default_report_lies_where_one_stands(tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "logs/my run!", state("0.20"))
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(path)]) == 0
    assert (tmp_path / "my-run-report.html").is_file()
    assert capsys.readouterr().out.startswith("my-run-report.html")


@pytest.mark.parametrize("name", ["../../etc/x", "", "...", "\x1b[0m", "a" * 500, "奖励"])
def test_a_run_name_is_no_path(tmp_path, name):
    analysis = analysis_with(tmp_path)
    analysis.run.name = name
    made = default_name(analysis)
    assert "/" not in made and made.endswith("-report.html") and not made.startswith((".", "-")) and len(made) < 120


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    analysis = analysis_with(tmp_path)
    target = tmp_path / "r.md"
    target.write_text("old")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_report(analysis, target)
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir() if p.suffix == ".tmp"] == []


def test_a_run_with_interventions_is_marked_as_such(tmp_path):
    writer = own_run(tmp_path / "run")
    writer.action(Action("a1", "proposed", "lower-lr", 30))
    assert "Nothing was changed" in Page(html(analyse(load(tmp_path / "run")))).shown
    writer.action(Action("a1", "applied", "lower-lr", 30, change={"control/lr_scale": (1.0, 0.5)}))
    assert "not comparable with those of a plain run" in Page(html(analyse(load(tmp_path / "run")))).shown


def test_knobs_that_never_changed_are_a_line_and_those_that_did_are_rows(tmp_path):
    rows = [{"n": i, "step": i, "t": float(i), "m": {"reward/mean": 0.01 * i, "control/beta": 0.02,
             "control/lr_scale": 1.0 if i < 20 else 0.5}} for i in range(1, 41)]  # fmt: skip
    from stabilizer.runs.writer import RunWriter

    writer = RunWriter.create(tmp_path / "run", config={}, task="addition", steps=40)
    for row in rows:
        writer.metrics(row["step"], row["m"])
    writer.close()
    analysis = analyse(load(tmp_path / "run"))
    for page, row in ((html(analysis), "<td>control/"), (markdown(analysis), "| control/")):
        assert "Knobs that never changed: beta 0.02." in page
        assert f"{row}lr" in page and f"{row}beta" not in page
