"""Rows that are looked at some at a time: the same is found, what is urgent is told at once, and nothing is lost."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import stabilizer.live.session
import stabilizer.training.loop
from stabilizer.commands.train import follow
from stabilizer.core.records import Action, Finding
from stabilizer.detectors.base import Detector
from stabilizer.incidents.watch import Watch
from stabilizer.live.session import RESTATED, TOGETHER, Session
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import RunReader, read_json, read_records
from stabilizer.runs.requests import ask
from stabilizer.training.checkpoint import scan
from stabilizer.training.config import load_config

SMALL = [
    "rollout.prompts=2", "rollout.group_size=2", "validation.problems=4", "validation.every=0", "checkpoint.every=0",
    "samples.every=0",
]  # fmt: skip


class Stand(Detector):
    """Sees something from step 3 to step 5."""

    id = "policy/kl-runaway"
    needs = ()
    confirm = 1
    at_end = False

    def check(self, view: RunView) -> Finding | None:
        return Finding(self.id, "warn", "KL runs away", 3, view.step, view.step) if 3 <= view.step <= 5 else None


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """However slow this machine is, its steps count as quick."""
    monkeypatch.setattr(stabilizer.live.session, "LATE_S", math.inf)
    monkeypatch.setattr(stabilizer.live.session, "WRITTEN_S", math.inf)


@pytest.fixture
def stand(monkeypatch) -> None:
    monkeypatch.setattr(stabilizer.live.session, "Watch", lambda: Watch((Stand(),)))


def start(path: Path, steps: int, *more: str, mode: str = "suggest") -> Session:
    return Session.start(load_config("addition", [*SMALL, *more], steps=steps), path, mode)


def measured_as(session: Session, **at: dict[str, float]) -> None:
    """Let steps log other numbers: `step3={...}`, or `every={...}`."""
    train = session.trainer.train_step

    def step():
        result = train()
        other = at.get("every", {}) | at.get(f"step{result.step}", {})
        return replace(result, metrics=result.metrics | other)

    session.trainer.train_step = step


def looked_at(session: Session) -> list[list[int]]:
    """Run to the end, patiently; the steps that the watch was shown by each step."""
    seen: list[int] = []
    tick, by = session.watch.tick, []

    def noted(view: RunView) -> list[Finding]:
        seen.append(view.step)
        return tick(view)

    session.watch.tick = noted
    for _ in session.run(patient=True):
        by.append(list(seen))
    return by


def told(path: Path) -> list[tuple]:
    """What was written of findings, in order; how long steps took is another matter in every run."""
    return [
        (f.incident, f.id, f.severity, f.state, f.onset_step, f.detected_step, f.last_step, f.attempt)
        for f in RunReader(path).findings
        if not f.id.startswith("system/")
    ]


def test_rows_are_looked_at_together_in_order_and_none_waits_beyond_the_end(tmp_path) -> None:
    by = looked_at(start(tmp_path / "run", 2 * TOGETHER + 3))
    assert by[TOGETHER - 2] == [] and by[TOGETHER - 1] == list(range(1, TOGETHER + 1)) == by[TOGETHER + 1]
    assert by[-1] == list(range(1, 2 * TOGETHER + 4))


def written(path: Path) -> list[int]:
    """Steps of the rows on record."""
    return [step for _, step in RunReader(path).ticks]


@pytest.fixture
def measured(monkeypatch) -> list[str]:
    """Grows with every step whose completions were measured."""
    measure, seen = stabilizer.training.loop._measured, []
    monkeypatch.setattr(stabilizer.training.loop, "_measured", lambda *args: seen.append("once") or measure(*args))
    return seen


def test_rows_that_wait_are_measured_and_written_when_they_are_caught_up_with_and_once(tmp_path, measured) -> None:
    session = start(tmp_path / "run", 9)
    ticks = session.run(patient=True)
    kept = [next(ticks) for _ in range(4)]
    assert written(tmp_path / "run") == [0] and measured == []
    session.catch_up()
    assert written(tmp_path / "run") == [0, 1, 2, 3, 4] and len(measured) == 4
    on_record = RunReader(tmp_path / "run").history.view(2)
    assert {name: on_record.latest(name) for name in kept[1].metrics} == kept[1].metrics and len(measured) == 4
    ticks.close()


def test_a_row_that_may_not_wait_is_on_record_at_its_step(tmp_path) -> None:
    session = start(tmp_path / "run", 3)
    for tick in session.run():
        assert written(tmp_path / "run")[-1] == tick.step


def test_a_row_waits_longer_for_the_watch_than_to_be_written(tmp_path, monkeypatch) -> None:
    now = [100.0]
    session = start(tmp_path / "run", 9)
    measured_as(session, every={"time/step_s": 0.4})
    monkeypatch.setattr(stabilizer.live.session.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(stabilizer.live.session, "WRITTEN_S", 1.0)
    monkeypatch.setattr(stabilizer.live.session, "LATE_S", 3.0)
    on_record, looked_at, ticks = [], [], session.run(patient=True)
    for _ in range(8):
        next(ticks)
        now[0] += 0.4
        on_record.append(written(tmp_path / "run")[-1])
        looked_at.append(session.history.view().step)
    ticks.close()
    assert on_record == [0, 0, 3, 3, 3, 6, 6, 8]
    assert looked_at == [0, 0, 0, 0, 0, 0, 0, 8]


def test_a_run_whose_rows_wait_for_the_watch_gives_signs_of_life(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(stabilizer.live.session, "WRITTEN_S", 0.0)
    session = start(tmp_path / "run", 6)
    monkeypatch.setattr(session.desk.__class__, "waited_for", False)
    for tick in session.run(patient=True):
        if tick.step in (1, 4):
            session.writer._status_t = 0.0
        if tick.step == 5:
            session.writer._syncer.close()
            assert session.history.view().step == 0, "no row was looked at"
            assert read_json(tmp_path / "run" / "status.json")["step"] == 5


def test_who_asks_a_tick_whose_row_waits_for_all_its_numbers_is_told_what_is_on_record(tmp_path, measured) -> None:
    ticks = start(tmp_path / "run", 4).run(patient=True)
    tick = next(ticks)
    assert measured == [] and written(tmp_path / "run") == [0]
    assert tick.metrics and written(tmp_path / "run") == [0, 1]
    assert tick.known.items() <= tick.metrics.items() and {"reward/mean", "time/monitor_s"} <= tick.metrics.keys()
    assert tick.metrics is tick.metrics and len(measured) == 1
    ticks.close()
    assert len(measured) == 1, "what was asked for early is not measured again for the record"


def test_no_checkpoint_is_saved_before_the_rows_up_to_it_are_written(tmp_path) -> None:
    session = start(tmp_path / "run", 7, "checkpoint.every=3")
    save, seen = session.trainer.save_checkpoint, []
    session.trainer.save_checkpoint = lambda: seen.append(written(tmp_path / "run")[-1]) or save()
    for tick in session.run(patient=True):
        if tick.step == 5:
            session.save_checkpoint()
    assert seen == [3, 5, 6, 7]


def test_rows_that_wait_when_the_run_goes_back_belong_to_the_attempt_that_made_them(tmp_path) -> None:
    session = start(tmp_path / "run", 8)
    ticks = session.run(patient=True)
    for _ in range(4):
        next(ticks)
    session.roll_back(session.trainer.checkpoints()[0], "back")
    next(ticks)
    ticks.close()
    assert RunReader(tmp_path / "run").ticks == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 1)]


def test_rows_that_wait_are_written_when_the_run_pauses(tmp_path, monkeypatch) -> None:
    session = start(tmp_path / "run", 3)
    seen = []

    def go_on(seconds: float) -> None:
        seen.append(written(tmp_path / "run"))
        session.hold(False)

    monkeypatch.setattr(stabilizer.live.session.time, "sleep", go_on)
    for tick in session.run(patient=True):
        session.hold(tick.step == 2)
    assert seen == [[0, 1, 2]]


def test_an_interrupt_while_rows_are_measured_loses_none(tmp_path, monkeypatch) -> None:
    measure, left = stabilizer.training.loop._measured, [0, 0, KeyboardInterrupt]

    def interrupted(*args):
        if left and left.pop(0):
            raise KeyboardInterrupt
        return measure(*args)

    monkeypatch.setattr(stabilizer.training.loop, "_measured", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(start(tmp_path / "run", 5).run(patient=True))
    assert written(tmp_path / "run") == [0, 1, 2, 3, 4, 5]
    assert read_json(tmp_path / "run" / "status.json")["state"] == "stopped"


@pytest.mark.parametrize("patient", [False, True])
def test_a_step_that_cant_be_measured_is_on_record_with_what_is_known_and_training_goes_on(
    tmp_path, monkeypatch, patient: bool
) -> None:
    def broken(*args):
        raise ValueError("no texts")

    monkeypatch.setattr(stabilizer.training.loop, "_measured", broken)
    ticks = list(start(tmp_path / "run", 3).run(patient=patient))
    reader = RunReader(tmp_path / "run")
    notes = [(event.step, event.text) for event in reader.history.events]
    assert [note for note in notes if "monitor failed" in note[1]] == [
        (step, "monitor failed: ValueError: no texts") for step in (1, 2, 3)
    ]
    view = reader.history.view()
    assert list(view.series("policy/loss").steps) == [1, 2, 3] and "reward/mean" not in view
    assert "policy/loss" in ticks[0].metrics


def test_the_records_are_the_same_whether_rows_waited_or_not_but_for_times(tmp_path) -> None:
    rows = {}
    for name, patient in (("alone", False), ("together", True)):
        session = start(tmp_path / name, 7, "validation.every=3", "rollout.prompts=4", "policy.inner_epochs=2")
        list(session.run(patient=patient))
        lines = (tmp_path / name / "metrics" / "r0-a0.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        assert [record["n"] for record in records] == [*range(8)]
        assert all(early["t"] < late["t"] for early, late in itertools.pairwise(records)), "each has its step's time"
        rows[name] = [(r["step"], {k: v for k, v in r["m"].items() if not k.startswith("time/")}) for r in records]
        assert all("time/monitor_s" in record["m"] for record in records[1:])
    assert rows["together"] == rows["alone"]


def test_the_same_is_found_and_proposed_whether_rows_are_looked_at_together_or_one_by_one(tmp_path) -> None:
    bad = ("optim.lr=0.02", "optim.warmup_steps=0", "rollout.prompts=8", "rollout.group_size=4")
    proposed = {}
    for name, patient in (("alone", False), ("together", True)):
        session = start(tmp_path / name, 40, *bad)
        measured_as(session, every={"time/step_s": 0.01, "time/rollout_s": 0.01, "time/update_s": 0.01})
        list(session.run(patient=patient))
        entries = read_records(tmp_path / name / "actions.jsonl", Action).records
        proposed[name] = [(e.action, e.entry, e.remedy, e.step, e.incident, dict(e.change), e.text) for e in entries]
    assert told(tmp_path / "together") == told(tmp_path / "alone") != []
    assert proposed["together"] == proposed["alone"]


def test_training_waits_for_no_disk_on_account_of_what_is_found_and_proposed(tmp_path, monkeypatch) -> None:
    bad = ("optim.lr=0.02", "optim.warmup_steps=0", "rollout.prompts=8", "rollout.group_size=4")
    session, waited, sync = start(tmp_path / "run", 40, *bad), [], os.fsync

    def noted(handle: int) -> None:
        waited.append((Path(os.readlink(f"/proc/self/fd/{handle}")).name, threading.current_thread().name))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    for _ in session.run(patient=True):
        trained = list(waited)
    names = {"findings.jsonl", "actions.jsonl"}
    assert {who for name, who in trained if name in names} <= {"syncer"}
    assert {name for name, who in waited if who == "syncer"} == names and session.watch.findings()


def test_a_tick_tells_of_all_rows_that_were_looked_at_with_it(tmp_path, stand) -> None:
    ticks = list(start(tmp_path / "run", TOGETHER + 1, mode="off").run(patient=True))
    found = {tick.step: [f.state for f in tick.findings] for tick in ticks if tick.findings}
    assert found == {TOGETHER: ["open", "recovering", "resolved"]}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_with_what_is_no_number_is_told_at_once(tmp_path, bad: float) -> None:
    session = start(tmp_path / "run", 5)
    measured_as(session, step3={"policy/loss": bad})
    first = next(tick for tick in session.run(patient=True) if tick.findings)
    assert first.step == 3 and "numerics/non-finite" in {finding.id for finding in first.findings}


def test_slow_steps_are_looked_at_one_by_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(stabilizer.live.session, "LATE_S", 1000.0)
    session = start(tmp_path / "run", 3)
    measured_as(session, every={"time/step_s": 1000.0})
    assert looked_at(session) == [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize("mode", ["approve", "auto-safe", "auto-full"])
def test_where_a_fix_may_be_made_every_row_is_looked_at_at_its_step(tmp_path, mode: str) -> None:
    assert looked_at(start(tmp_path / "run", 3, mode=mode)) == [[1], [1, 2], [1, 2, 3]]


def test_who_asks_for_no_patience_hears_of_every_row_at_its_step(tmp_path, stand) -> None:
    found = {tick.step: [f.state for f in tick.findings] for tick in start(tmp_path / "run", 4).run()}
    assert found == {1: [], 2: [], 3: ["open"], 4: []}


def test_nothing_waits_when_a_checkpoint_is_due(tmp_path) -> None:
    by = looked_at(start(tmp_path / "run", 5, "checkpoint.every=2"))
    assert by == [[], [1, 2], [1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5]]


def test_people_are_heeded_where_the_run_is_and_what_they_turned_counts_from_there(tmp_path) -> None:
    session = start(tmp_path / "run", TOGETHER + 2, mode="off")
    for tick in session.run(patient=True):
        if tick.step == 2:
            ask(tmp_path / "run", "set", "prompts=3")
    reader = RunReader(tmp_path / "run")
    assert [(entry.entry, entry.step) for entry in reader.actions] == [("approved", TOGETHER), ("applied", TOGETHER)]
    assert list(reader.history.view().series("control/prompts").values) == [2] * TOGETHER + [3, 3]


@pytest.mark.parametrize("reads", [True, False], ids=["numbers are read at every step", "nobody reads"])
def test_who_asks_for_something_is_heard_though_rows_wait(tmp_path, monkeypatch, reads: bool) -> None:
    monkeypatch.setattr(stabilizer.live.session, "WRITTEN_S", 0.0)
    session = start(tmp_path / "run", 6, mode="off")
    seen = []
    for tick in session.run(patient=True):
        assert not reads or tick.metrics
        if tick.step == 2:
            ask(tmp_path / "run", "set", "prompts=3")
        seen.append(session.history.view().step)
    assert seen == [0, 0, 3, 3, 3, 6], "only the request was a reason to look at rows before the end"
    assert list(RunReader(tmp_path / "run").history.view().series("control/prompts").values) == [2, 2, 2, 3, 3, 3]


def test_an_answer_given_while_the_run_paused_waits_for_the_newest_row_too(tmp_path) -> None:
    session = start(tmp_path / "run", 6, mode="suggest")
    heard: list[tuple[int, int]] = []
    session.arbiter.tick = lambda view, requests=(): heard.extend((view.step, session.trainer.step) for _ in requests)
    for tick in session.run(patient=True):
        if tick.step == 2:
            session.desk.answers = iter([["yes"], *[[]] * 9]).__next__
    assert heard == [(6, 6)]


@pytest.mark.parametrize("how", ["asked to stop", "left", "failed"])
def test_rows_that_wait_when_the_run_ends_are_looked_at_and_told_of(tmp_path, stand, how: str) -> None:
    session = start(tmp_path / "run", 8)
    ticks, train = session.run(patient=True), session.trainer.train_step

    def broken():
        if session.trainer.step == 4:
            raise RuntimeError("CUDA out of memory")
        return train()

    if how == "failed":
        session.trainer.train_step = broken
    assert not any(next(ticks).findings for _ in range(4))
    if how == "asked to stop":
        session.stop_reason = "SIGTERM"
        assert list(ticks) == []
    elif how == "left":
        ticks.close()
    else:
        with pytest.raises(RuntimeError):
            next(ticks)
    assert [(f.id, f.detected_step, f.state) for f in session.parting] == [(Stand.id, 3, "open")]
    assert told(tmp_path / "run")[0][:6] == (1, Stand.id, "warn", "open", 3, 3)
    assert written(tmp_path / "run") == [0, 1, 2, 3, 4]
    state = {"asked to stop": "preempted", "left": "stopped", "failed": "failed"}[how]
    assert read_json(tmp_path / "run" / "status.json")["state"] == state


def test_what_was_proposed_for_rows_that_wait_when_the_run_fails_is_told_too(tmp_path, capsys) -> None:
    session = start(tmp_path / "run", 8)
    train, propose = session.trainer.train_step, Action("a1", "proposed", "lower-lr", 3)
    session.arbiter.tick = lambda view, answers: session.journal(propose) if view.step == 3 else None

    def broken():
        if session.trainer.step == 4:
            raise RuntimeError("CUDA out of memory")
        return train()

    session.trainer.train_step = broken
    with pytest.raises(RuntimeError):
        follow(session, Console(stderr=True), json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == ["step"] * 4 + ["action"] and rows[-1]["action"] == "a1"


def test_what_people_asked_for_before_a_run_failed_is_heeded_on_resuming_and_not_in_the_state_it_failed_in(
    tmp_path,
) -> None:
    session = start(tmp_path / "run", 8, "checkpoint.every=3")
    train = session.trainer.train_step

    def broken():
        if session.trainer.step == 5:
            ask(tmp_path / "run", "set", "prompts=3")
            raise RuntimeError("CUDA out of memory")
        return train()

    session.trainer.train_step = broken
    with pytest.raises(RuntimeError):
        list(session.run(patient=True))
    reader = RunReader(tmp_path / "run")
    assert reader.actions == [] and max(state.step for state in scan(tmp_path / "run" / "checkpoints")) == 3
    resumed = Session.resume(tmp_path / "run")
    next(resumed.run())
    reader.refresh()
    assert [(entry.entry, entry.step) for entry in reader.actions] == [("approved", 4), ("applied", 4)]


def test_a_run_that_was_killed_makes_the_rows_again_that_waited(tmp_path) -> None:
    session = start(tmp_path / "run", 6, "checkpoint.every=2")
    for tick in session.run(patient=True):
        if tick.step == 3:
            shutil.copytree(tmp_path / "run", tmp_path / "killed")  # as it would lie there, had it died now
    assert written(tmp_path / "killed") == [0, 1, 2]
    list(Session.resume(tmp_path / "killed").run(patient=True))
    assert written(tmp_path / "killed") == [0, 1, 2, 3, 4, 5, 6]


def test_what_was_found_in_rows_that_waited_when_it_was_killed_is_written_on_resuming_and_once(tmp_path, stand) -> None:
    session = start(tmp_path / "run", 20)
    ticks = session.run(patient=True)
    for _ in range(4):
        next(ticks)
    session._write_down()
    shutil.copytree(tmp_path / "run", tmp_path / "killed")  # as it would lie there, had it died before looking
    ticks.close()
    assert told(tmp_path / "killed") == []
    resumed = Session.resume(tmp_path / "killed")
    resumed.writer.close()
    alone = (1, Stand.id, "warn", "open", 3, 3, 3, 0)
    assert told(tmp_path / "killed") == [alone]
    assert [f.id for f in resumed.watch.active()] == [Stand.id]
    Session.resume(tmp_path / "killed").writer.close()
    assert told(tmp_path / "killed") == [alone]


def test_a_run_that_was_told_of_all_is_told_nothing_anew_on_resuming(tmp_path, stand) -> None:
    session = start(tmp_path / "run", 20)
    for tick in session.run():
        if tick.step == 6:
            session.stop_reason = "SIGTERM"
    before = (tmp_path / "run" / "findings.jsonl").read_bytes()
    Session.resume(tmp_path / "run").writer.close()
    assert before and (tmp_path / "run" / "findings.jsonl").read_bytes() == before


def test_what_is_found_before_the_first_step_is_told_by_the_first_tick_and_on_record(
    tmp_path, monkeypatch, stand
) -> None:
    monkeypatch.setattr(Stand, "check", lambda self, view: Finding(self.id, "warn", "KL runs away", 0, 0, view.step))
    session = start(tmp_path / "run", 2)
    assert told(tmp_path / "run") == [(1, Stand.id, "warn", "open", 0, 0, 0, 0)]
    assert [[f.id for f in tick.findings] for tick in session.run()] == [[Stand.id], []]


def test_what_still_stands_is_written_anew_after_resuming_too(tmp_path, monkeypatch, stand) -> None:
    stays = Finding(Stand.id, "warn", "KL runs away", 1, 1, 1)
    monkeypatch.setattr(Stand, "check", lambda self, view: replace(stays, last_step=view.step))
    session = start(tmp_path / "run", 6 + RESTATED + 2)
    for tick in session.run():
        if tick.step == 6:
            session.stop_reason = "SIGTERM"
    assert told(tmp_path / "run")[-1][-2] == 6
    resumed = Session.resume(tmp_path / "run")
    for tick in resumed.run():
        if tick.step == 6 + RESTATED:
            assert told(tmp_path / "run")[-1][-2] == tick.step


def test_a_heartbeat_waits_for_no_disk_and_a_new_state_does(tmp_path, monkeypatch) -> None:
    session = start(tmp_path / "run", 2)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    writer = session.writer
    writer.status("running", 1)
    after_first = len(synced)
    writer._status_t = 0.0
    writer.status("running", 2)
    writer._syncer.close()
    assert read_json(tmp_path / "run" / "status.json")["step"] == 2 and len(synced) == after_first == 1
    writer.status("paused", 2)
    assert len(synced) == 2
    writer.close()


def test_a_busy_disk_holds_up_no_step_for_a_heartbeat_and_the_newest_state_is_what_remains(
    tmp_path, monkeypatch
) -> None:
    session = start(tmp_path / "run", 2)
    writer, busy, inside, put = session.writer, threading.Event(), threading.Event(), os.replace

    def slow(here, there) -> None:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            busy.wait(60)
        put(here, there)

    writer.status("running", 1)
    monkeypatch.setattr(os, "replace", slow)
    for step in (2, 3, 4):
        writer._status_t = 0.0
        writer.status("running", step)
        assert inside.wait(60)
        assert read_json(tmp_path / "run" / "status.json")["step"] == 1, "it came back while the disk was busy"
    busy.set()
    writer.status("paused", 5)
    assert read_json(tmp_path / "run" / "status.json")["step"] == 5
    writer.close()
    assert read_json(tmp_path / "run" / "status.json")["step"] == 5, "what waited does not undo it"
