"""An incident keeps its title and its numbers while it lives, and is told alike wherever it is told."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console

from stabilizer.analysis.analyse import analyse
from stabilizer.analysis.importing import write_run
from stabilizer.analysis.watching import new_watch
from stabilizer.commands.printing import LivePrinter
from stabilizer.core.records import Finding
from stabilizer.output.terminal import show
from stabilizer.runs.directory import RunWriter
from stabilizer.runs.story import incidents
from stabilizer.trainers.reading import load

sys.path.insert(0, str(Path(__file__).parents[1] / "dashboards"))

from synthetic_run import values  # noqa: E402

from dashboards.data.state import Runs  # noqa: E402

FIRST = Finding("reward/no-signal", "info", "78% of groups fail", 6, 10, 10, state="open", incident=1)
JOINED = Finding("policy/kl-runaway", "critical", "KL is 1.1", 5, 23, 23, state="open", incident=1)
SPIKES = Finding("optim/grad-spike", "warn", "2 spikes, up to 70.9, from 263", 263, 300, 300, state="open", incident=2)


def test_a_title_stays_whatever_joins_the_incident() -> None:
    before = incidents([FIRST])[0]
    for later in (
        [JOINED],
        [JOINED, replace(FIRST, state="resolved")],
        [JOINED, replace(JOINED, state="resolved"), replace(JOINED, severity="warn", detected_step=40, onset_step=9)],
    ):
        (after,) = incidents([FIRST, *later])
        assert (after.lead.id, after.told) == (before.lead.id, before.told)
        assert after.onset == 5, "when the first of it began"


def test_of_findings_that_open_an_incident_together_the_gravest_gives_the_title() -> None:
    (found,) = incidents([FIRST, replace(JOINED, detected_step=10)])
    assert found.lead.id == "policy/kl-runaway"


def test_the_numbers_of_a_headline_do_not_shrink_as_the_trouble_leaves_the_window() -> None:
    shrunk = replace(SPIKES, summary="one spike, up to 9.78, from 267", last_step=320)
    (found,) = incidents([SPIKES, shrunk])
    assert (found.told, found.latest) == ("2 spikes, up to 70.9, from 263", "one spike, up to 9.78, from 267")
    (found,) = incidents([SPIKES, shrunk, replace(shrunk, state="resolved")])
    assert found.told == "2 spikes, up to 70.9, from 263"


def test_a_headline_is_told_anew_when_it_gets_worse_or_comes_back() -> None:
    worse = replace(SPIKES, severity="critical", summary="5 spikes")
    assert incidents([SPIKES, worse])[0].told == "5 spikes"
    back = replace(SPIKES, summary="another spike")
    assert incidents([SPIKES, replace(SPIKES, state="resolved"), back])[0].told == "another spike"


def failing(folder: Path) -> tuple[Path, str]:
    """A run that ruins itself, as a live watch writes it down, and what the console said meanwhile."""
    writer = RunWriter.create(folder / "run", config={}, task="sorting", steps=140, argv=[])
    out = io.StringIO()
    printer = LivePrinter(Console(file=out, width=400, highlight=False))
    for step in range(1, 141):
        writer.metrics(step, values(step, trouble=max(0.0, min(1.0, (step - 60) / 30))))
    run, watch = load(folder / "run"), new_watch()
    for view in run.views():
        changed = watch.tick(view)
        writer.finding(*changed)
        row = {"reward/mean": view.latest("reward/mean")}
        printer.tick(
            SimpleNamespace(
                step=view.step, steps=140, known=row, metrics=row, findings=changed, actions=(), open_incidents=0,
                troubles=(),
            )
        )  # fmt: skip
    writer.finding(*watch.active())
    writer.summary(verdict=watch.verdict(run.history.view())[0], worst="critical", force=True)
    writer.status("finished", 140, force=True)
    writer.close()
    return folder / "run", out.getvalue()


def test_console_page_and_diagnose_give_the_same_title_and_numbers(tmp_path: Path) -> None:
    path, console = failing(tmp_path)
    cards = Runs([tmp_path]).get("run").page().cards
    analysis = analyse(load(path))
    assert cards and any(card.latest for card in cards), "its numbers have moved on"
    found = {incident.incident: incident for incident in analysis.incidents}
    assert found.keys() == {card.number for card in cards}
    for card in cards:
        incident = found[card.number]
        assert (card.id, card.summary, card.onset) == (incident.title, incident.summary, incident.onset_step)
        assert f"incident {card.number} · " in console and card.id in console and card.summary in console
    out = io.StringIO()
    show(analysis, Console(file=out, width=400, highlight=False))
    assert all(card.id in out.getvalue() and card.summary in out.getvalue() for card in cards)


def test_an_imported_run_has_the_numbers_that_diagnose_gives_of_its_log(tmp_path: Path) -> None:
    path, _ = failing(tmp_path)
    log = load(path)
    write_run(replace(log, recorded=[]), tmp_path / "imported")
    last = {(f.incident, f.id): f for f in load(tmp_path / "imported").recorded}
    for finding in analyse(replace(log, recorded=[])).findings:
        written = last[finding.incident, finding.id]
        assert (written.summary, written.last_step) == (finding.summary, finding.last_step)


def test_the_console_says_that_an_incident_got_worse_while_a_fix_is_tried() -> None:
    out = io.StringIO()
    printer = LivePrinter(Console(file=out, width=200, highlight=False))
    worse = replace(SPIKES, severity="critical", state="mitigating", summary="5 spikes")
    printer.end([SPIKES, replace(SPIKES, state="mitigating"), worse])
    assert "5 spikes" in out.getvalue() and out.getvalue().count("2 spikes") == 1
