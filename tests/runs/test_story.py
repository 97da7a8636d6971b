"""An incident keeps its title and its numbers while it lives, and is told alike wherever it is told."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from stabilizer.analysis.analyse import analyse
from stabilizer.analysis.importing import write_run
from stabilizer.analysis.watching import new_watch
from stabilizer.commands.printing import LivePrinter
from stabilizer.core.records import Action, Cause, Finding
from stabilizer.output.terminal import show
from stabilizer.runs.story import incidents, interventions, trials
from stabilizer.runs.writer import RunWriter
from stabilizer.trainers.reading import load

sys.path.insert(0, str(Path(__file__).parents[1] / "dashboards"))

from page_client import page_now  # noqa: E402
from synthetic_run import values  # noqa: E402

from dashboards.data.run_registry import Runs  # noqa: E402

FIRST = Finding("reward/no-signal", "warn", "78% of groups fail", 6, 10, 10, state="open", incident=1)
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
        assert (after.lead.id, after.summary) == (before.lead.id, before.summary)
        assert after.onset == 5, "when the first of it began"


def test_a_remark_names_an_incident_only_until_a_warning_joins() -> None:
    remark = replace(FIRST, severity="info")
    again = replace(remark, onset_step=90, detected_step=93, last_step=93, summary="80% of groups fail")
    (alone,), (after,) = incidents([remark]), incidents([remark, JOINED, replace(remark, state="resolved"), again])
    assert (alone.lead.id, after.lead.id, after.summary) == ("reward/no-signal", "policy/kl-runaway", "KL is 1.1")
    (grown,) = incidents([remark, JOINED, replace(remark, severity="critical", last_step=20)])
    assert grown.lead.id == "reward/no-signal", "it was a warning three steps earlier"


def test_the_causes_of_an_incident_are_those_of_the_finding_that_explains_it() -> None:
    guess, none = Cause("lr-too-high", 0.5, "the clip range limits 6 %"), Cause("undetermined", 0.7, "")
    known = replace(SPIKES, causes=(guess,), state="resolved")
    open_one = replace(JOINED, incident=2, causes=(none,), last_step=400)
    (found,) = incidents([known, open_one])
    assert found.causes == (guess,) and found.cause == "lr-too-high"


def test_of_findings_that_open_an_incident_together_the_gravest_gives_the_title() -> None:
    (found,) = incidents([FIRST, replace(JOINED, detected_step=10)])
    assert found.lead.id == "policy/kl-runaway"


def test_the_numbers_of_a_headline_do_not_shrink_as_the_trouble_leaves_the_window() -> None:
    shrunk = replace(SPIKES, summary="one spike, up to 9.78, from 267", last_step=320)
    (found,) = incidents([SPIKES, shrunk])
    assert (found.summary, found.latest) == ("2 spikes, up to 70.9, from 263", "one spike, up to 9.78, from 267")
    (found,) = incidents([SPIKES, shrunk, replace(shrunk, state="resolved")])
    assert found.summary == "2 spikes, up to 70.9, from 263"
    assert found.told == "At step 300: 2 spikes, up to 70.9, from 263", "it is over, so the words are dated"


def test_a_headline_is_told_anew_when_it_gets_worse_or_comes_back() -> None:
    worse = replace(SPIKES, severity="critical", summary="5 spikes")
    assert incidents([SPIKES, worse])[0].summary == "5 spikes"
    back = replace(SPIKES, summary="another spike")
    assert incidents([SPIKES, replace(SPIKES, state="resolved"), back])[0].summary == "another spike"


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
    shown = page_now(Runs([tmp_path]).get("run")).incidents
    analysis = analyse(load(path))
    assert shown and any(incident.latest for incident in shown), "its numbers have moved on"
    found = {incident.number: incident for incident in analysis.incidents}
    assert found.keys() == {incident.number for incident in shown}
    for incident in shown:
        same = found[incident.number]
        assert (incident.id, incident.summary, incident.onset) == (same.lead.id, same.summary, same.onset)
        assert f"incident {incident.number} · " in console and incident.id in console and incident.summary in console
    out = io.StringIO()
    show(analysis, Console(file=out, width=400, highlight=False), everything=True)
    assert all(incident.id in out.getvalue() and incident.summary in out.getvalue() for incident in shown)


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


LR = {"control/lr_scale": (1.0, 0.5)}
PROMISE = {"hypothesis": {"expects": "calm", "guard": "reward/mean", "guard_level": 0.5, "horizon_steps": 30,
                          "rollback_to": 20, "undo": {"control/lr_scale": 1.0}}}  # fmt: skip


def life(*entries: str, remedy: str = "lower-lr", **more) -> list[Action]:
    """One action's entries, a step apart."""
    return [
        Action("x1", entry, remedy, 10 + n, 1, change=LR, text=f"{entry} it", n=n, **more)
        for n, entry in enumerate(entries)
    ]


@pytest.mark.parametrize(
    ("entries", "outcome", "made", "ended"),
    [
        (["proposed"], "proposed", False, None),
        (["proposed", "rejected"], "rejected", False, 11),
        (["proposed", "expired"], "expired", False, 11),
        (["proposed", "failed"], "failed", False, 11),
        (["proposed", "approved"], "on trial", False, None),
        (["proposed", "approved", "applied"], "on trial", True, None),
        (["proposed", "approved", "applied", "verified"], "kept", True, 13),
        (["proposed", "approved", "applied", "verified", "reverted"], "undone", True, 14),
        (["proposed", "approved", "applied", "failed"], "undone", True, 13),
    ],
)
def test_a_trial_has_one_outcome_at_every_stage_of_its_life(entries, outcome, made, ended) -> None:
    (trial,) = trials(life(*entries))
    assert (trial.outcome, trial.made, trial.ended) == (outcome, made, ended)
    assert trial.waiting is (outcome == "proposed") and trial.newest.entry == entries[-1]
    assert trial.step == (12 if made else 10) and dict(trial.change) == LR
    assert trial.result == (f"{entries[-1]} it" if ended else "")


def test_what_a_person_changed_is_kept_until_it_is_undone_and_names_the_person() -> None:
    (kept,) = trials(life("approved", "applied", remedy="by-hand", origin="person", data={"by": "ada"}))
    assert (kept.origin, kept.by, kept.outcome, kept.ended) == ("person", "ada", "kept", None)
    (undone,) = trials(life("applied", "reverted", remedy="by-hand"))
    assert (undone.origin, undone.outcome) == ("person", "undone"), "as older journals have it"


def test_advice_waits_for_no_answer() -> None:
    assert not trials(life("proposed", safety="advice"))[0].waiting


def test_a_hypothesis_names_the_guard_from_just_before_the_change() -> None:
    (proposed,) = trials(life("proposed", data=PROMISE))
    assert proposed.hypothesis and proposed.expects == "calm" and proposed.hypothesis.why == "proposed it"
    promised = proposed.hypothesis
    assert promised.horizon == 30
    later = {"guard": "accuracy/val", "guard_level": 0.7}
    (made,) = trials([*life("proposed", data=PROMISE), Action("x1", "applied", "lower-lr", 40, data=later)])
    assert made.hypothesis and made.hypothesis.guard == "accuracy/val"


@pytest.mark.parametrize("data", [{}, {"hypothesis": 3}, {"hypothesis": {"undo": [], "guard": 1, "rollback_to": "x"}}])
def test_a_hypothesis_that_can_not_be_read_breaks_nothing(data: dict) -> None:
    (trial,) = trials(life("proposed", data=data))
    assert trial.expects == ""


def test_changes_come_in_the_order_in_which_they_were_made() -> None:
    late, early = (Action(name, "applied", "lower-lr", 5, n=n) for name, n in (("a1", 3), ("a2", 2)))
    proposed = Action("a1", "proposed", "lower-lr", 4, n=0)
    assert [one.action for one in interventions([proposed, early, late])] == ["a2", "a1"]
    assert [one.action for one in trials([proposed, early, late])] == ["a1", "a2"]
