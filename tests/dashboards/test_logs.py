"""Logs of other trainers, in place: found, read, judged, shown, and never written to."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from page_client import Client, page_now
from synthetic_run import healthy, logs

from dashboards.app import build
from dashboards.data import logs as module
from dashboards.data.incident_details import advice_for
from dashboards.data.logs import Later, Logs
from dashboards.data.run_list import ListSettings, run_list
from dashboards.data.run_page import page_of
from dashboards.data.run_registry import Runs
from stabilizer.analysis.importing import write_run
from stabilizer.commands.demo import CASES
from stabilizer.core.paths import sample_runs
from stabilizer.core.records import Finding, RemedyAdvice
from stabilizer.runs.reader import RunReader
from stabilizer.runs.story import Incident, incidents
from stabilizer.runs.writer import RunWriter
from stabilizer.trainers.places import MAX_LOGS, find
from stabilizer.trainers.reading import load
from tests.trainers.test_imports import collapsed

SAMPLES = Path(__file__).parent.parent / "trainers" / "samples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    logs(tmp_path / "logs")
    healthy(tmp_path / "logs" / "own", 5).close()
    return tmp_path / "logs"


def test_logs_are_found_each_in_its_place_and_own_runs_are_passed_over(folder: Path) -> None:
    found = {place.path.name: place.format for place in find(folder)}
    assert found["their-run"] == "trl_trainer_state" and found["theirs.csv"] == "csv"
    assert "own" not in found and not any("metrics" in name for name in found)


def test_every_sample_log_is_found_and_read() -> None:
    runs = Runs([SAMPLES])
    runs.logs.settle()
    lines = runs.lines()
    assert len(lines) >= 14
    assert all(line.source and line.state in ("quiet", "failed", "running", "finished") for line in lines)
    assert all(line.verdict not in ("", "waiting") and line.numbers for line in lines)


def test_the_demo_of_the_sample_runs_opens_on_the_cases() -> None:
    runs = Runs([sample_runs()])
    runs.logs.scan()
    rows = run_list(runs.lines(), ListSettings(find=CASES), runs.clock()).rows
    assert {row.run for row in rows} == {
        "case-easyr1", "case-trl-beta0", "case-search-r1", "length-vs-published", "case-open-r1/train.log",
    }  # fmt: skip
    assert not [line.id for line in runs.lines() if line.id.endswith(".json")], "measurements are no log"
    assert [line.path.parent.name for line in runs.lines() if line.source == "console"] == ["case-open-r1"]


def test_a_log_is_listed_before_it_is_read_and_opens_as_being_read(folder: Path) -> None:
    runs = Runs([folder])
    runs.logs.scan()
    line = next(line for line in runs.lines() if line.id == "their-run")
    assert (line.state, line.verdict) == ("being read", "waiting")
    page = page_of(runs.get("their-run").refresh(), runs.clock())
    assert page.state == "being read" and "Loading this log" in page.notes[0] and not page.over


def test_a_log_is_a_page_like_any_run(folder: Path) -> None:
    client = Client(build([folder]))
    client.app.runs.logs.settle()
    shown = client.show("?run=their-run")
    assert shown["body"]["hidden"] is False
    assert "Read in place" in json.dumps(shown["head"]) and "trl" in json.dumps(shown["head"])
    assert any(chart == "reward" for chart in shown["seen"]["data"]["charts"])
    lines = {line.id: line for line in client.app.runs.lines()}
    assert lines["their-run"].steps == 100 and lines["their-run"].numbers["reward"].trend
    assert lines["own"].source == ""


def test_what_only_looked_like_a_log_is_not_listed(folder: Path) -> None:
    runs = Runs([folder])
    runs.logs.settle()
    assert {line.id for line in runs.lines()} == {"own", "their-run", "theirs.csv"}


def test_a_log_that_grows_sends_its_new_points_alone(folder: Path) -> None:
    client = Client(build([folder]))
    client.app.runs.logs.settle()
    client.poll(client.show("?run=theirs.csv")["seen"]["data"])
    seen = client.show("?run=theirs.csv")["seen"]["data"]
    followed = client.app.runs.get("theirs.csv")
    rewrites = followed.rewrites
    with (folder / "theirs.csv").open("a") as file:
        file.write("61,0.9,0.5,0.1\n")
    followed.log._read_after = 0.0
    client.app.runs.logs.settle()
    answer = client.poll(seen)
    assert followed.rewrites == rewrites
    assert answer is not None and "61" in json.dumps(answer["head"])


def test_a_broken_log_says_so_and_comes_back(folder: Path) -> None:
    file = folder / "their-run" / "checkpoint-60" / "trainer_state.json"
    good = file.read_text()
    file.write_text('{"log_history": 5, "global_step": 1}')
    runs = Runs([folder])
    runs.logs.settle()
    line = next(line for line in runs.lines() if line.id == "their-run")
    assert line.state == "unreadable" and "log_history" in line.problem
    page = page_of(runs.get("their-run").refresh(), runs.clock())
    assert "can't be read" in page.notes[0]
    file.write_text(good)
    runs.logs.settle()
    assert next(line for line in runs.lines() if line.id == "their-run").step == 60


def test_a_log_too_large_is_listed_and_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    runs = Runs([folder])
    runs.logs.settle()
    line = next(line for line in runs.lines() if line.id == "their-run")
    assert line.state == "unreadable" and "stabilizer import" in line.problem


def test_a_log_whose_detectors_ran_out_of_time_is_not_checked_and_says_how_far_they_came(folder: Path) -> None:
    runs = Runs([folder])
    runs.logs.settle(budget=0.0)
    page = page_now(runs.get("their-run"))
    assert (page.verdict, page.run_verdict.ask) == ("unchecked", "Check the whole log")
    assert page.run_verdict.reach.startswith("checked up to step")
    lines = {line.id: line for line in runs.lines()}
    assert (lines["their-run"].verdict, lines["their-run"].note) == ("unchecked", page.run_verdict.note)


def test_judging_makes_way_for_a_log_that_somebody_opened(folder: Path) -> None:
    found = Logs([folder])
    found.scan()
    log = found.get(folder / "their-run")
    urgent = threading.Event()
    urgent.set()
    with pytest.raises(Later):
        log.read(urgent)
    assert log.held  # it was read; judging comes later
    log.read(threading.Event())
    assert log.line("x", 0.0).verdict != "waiting"


def test_numbers_are_let_go_and_read_again_when_wanted(folder: Path) -> None:
    found = Logs([folder])
    found.settle()
    log = found.get(folder / "their-run")
    verdict = log.line("x", 0.0).verdict
    log.let_go()
    assert not log.held and log.line("x", 0.0).verdict == verdict and log.line("x", 0.0).numbers
    log.wanted(0.0)
    found.settle()
    reader, _ = log.wanted(0.0)
    assert log.held and reader.verdict == verdict and reader.history.step == 60


def test_a_crashed_log_that_is_read_again_is_still_called_failed() -> None:
    found = Logs([sample_runs() / "case-open-r1"])
    found.settle()
    log = found.get(sample_runs() / "case-open-r1" / "train.log")
    log.let_go()
    log.wanted(0.0)
    found.settle()
    assert log.held and log.line("x", 0.0).state == "failed"


def test_only_so_many_logs_are_listed(tmp_path: Path) -> None:
    for number in range(MAX_LOGS + 5):
        (tmp_path / f"{number}.csv").write_text("step,reward\n1,0.5\n2,0.6\n")
    assert len(find(tmp_path)) == MAX_LOGS


@pytest.mark.parametrize("name", ["fifo", "loop", "secret"])
def test_what_can_not_be_read_is_passed_over(tmp_path: Path, name: str) -> None:
    if name == "fifo":
        os.mkfifo(tmp_path / "x.log")
    elif name == "loop":
        (tmp_path / "loop").symlink_to(tmp_path)
    else:
        (tmp_path / "x.log").write_text("step 1")
        (tmp_path / "x.log").chmod(0)
    assert find(tmp_path) == []
    assert find(tmp_path / "nothing") == []


def test_a_file_can_be_named_itself(folder: Path) -> None:
    runs = Runs([folder / "theirs.csv"])
    runs.logs.settle()
    assert [line.id for line in runs.lines()] == ["theirs.csv"]


def test_nothing_beside_a_log_is_opened_for_writing(folder: Path) -> None:
    before = sorted(path for path in folder.rglob("*"))
    written: list[str] = []
    watching = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "open" and str(folder) in str(args[0]):
            flags = args[2] if isinstance(args[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(str(args[1] or "r")) & set("wax+"):
                written.append(str(args[0]))

    sys.addaudithook(hook)
    client = Client(build([folder]))
    client.app.runs.logs.settle()
    client.show("?run=their-run")
    watching.clear()
    assert written == [] and sorted(path for path in folder.rglob("*")) == before


def test_the_thread_reads_what_is_there_and_ends_when_told(folder: Path) -> None:
    runs = Runs([folder])
    done = threading.Event()
    take = module.Log._judge

    def judged(log: Any, *args: Any) -> None:
        take(log, *args)
        done.set()

    module.Log._judge = judged
    try:
        runs.logs.start()
        assert done.wait(30)
    finally:
        runs.logs.stop()
        module.Log._judge = take


def incidents_shown(client: Client, run: str) -> list[tuple[Incident, tuple[RemedyAdvice, ...]]]:
    """The incidents of a run and the advice on each, as its pages show them."""
    reader = client.app.runs.get(run).refresh()
    return [(incident, advice_for(incident, reader)) for incident in incidents(reader.findings)]


def test_the_page_of_an_import_says_what_the_page_of_its_log_says(tmp_path: Path) -> None:
    log = collapsed(tmp_path / "log")
    write_run(load(log), tmp_path / "runs" / "copy")
    client = Client(build([log, tmp_path / "runs"]))
    client.app.runs.logs.settle()
    shown = incidents_shown(client, "copy")
    assert shown == incidents_shown(client, "log") and any(advice for _, advice in shown)
    place, copy = (page_of(client.app.runs.get(run).refresh(), client.app.runs.clock()) for run in ("log", "copy"))
    assert (copy.verdict, copy.numbers, copy.trainer) == (place.verdict, place.numbers, place.trainer)
    assert copy.notes == ("Imported from a log (trl_trainer_state).", *place.notes[1:])
    lines = {line.id: line for line in client.app.runs.lines()}
    assert lines["copy"].created == pytest.approx(lines["log"].created)


def test_the_page_of_a_run_that_is_over_advises_nothing_hard(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "own", config={}, argv=[])
    hard = RemedyAdvice("roll-back", "hard", {"control/lr_scale": (1.0, 0.5)}, "damaged", "return during the run")
    soft = RemedyAdvice("lower-lr", "soft", {"control/lr_scale": (1.0, 0.5)}, "too large", "set during the run")
    for step in range(1, 40):
        writer.metrics(step, {"reward/mean": 0.5})
    for number, (severity, state) in enumerate((("critical", "resolved"), ("info", "open"), ("critical", "open")), 1):
        writer.finding(
            Finding(
                "policy/kl-runaway",
                severity,
                "it ran away",
                10,
                12,
                30,
                state=state,
                incident=number,
                remedies=(hard, soft),
            )
        )
    for state, kept in (("running", ["hard", "soft"]), ("finished", ["advice", "soft"])):
        writer.status(state, 39, force=True)
        reader = RunReader(tmp_path / "own")
        advice = {incident.number: advice_for(incident, reader) for incident in incidents(reader.findings)}
        assert [[remedy.safety for remedy in advice[n]] for n in (1, 2, 3)] == [["soft"], ["soft"], kept]
    assert not any("during the run" in remedy.how for of_one in advice.values() for remedy in of_one)
    writer.close()
