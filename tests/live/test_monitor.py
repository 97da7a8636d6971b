"""Rows are written at their step, findings are on record once, and a failure to measure stops nothing."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

import stabilizer.training.loop
from stabilizer.analysis.watching import new_watch
from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.live.monitor import RESTATED
from stabilizer.live.session import Session
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import RunReader, read_json
from stabilizer.runs.requests import ask
from stabilizer.training.checkpoint import scan
from stabilizer.training.config import load_config

SMALL = [
    "rollout.prompts=2",
    "rollout.group_size=2",
    "validation.problems=4",
    "validation.every=0",
    "checkpoint.every=0",
    "samples.every=0",
]


class Stand(Detector):
    """Sees something from step 3 to step 5."""

    id = "policy/kl-runaway"
    needs = ()
    confirm = 1
    at_end = False

    def check(self, view: RunView) -> Finding | None:
        return Finding(self.id, "warn", "KL runs away", 3, view.step, view.step) if 3 <= view.step <= 5 else None


@pytest.fixture
def stand(monkeypatch) -> None:
    monkeypatch.setattr("stabilizer.live.monitor.new_watch", lambda **more: new_watch((Stand(),), **more))


def start(path: Path, steps: int, *more: str) -> Session:
    return Session.start(load_config("addition", [*SMALL, *more], steps=steps), path)


def written(path: Path) -> list[int]:
    """Steps of the rows on record."""
    return [step for _, step in RunReader(path).ticks]


def recorded(path: Path) -> list[tuple]:
    """The findings on record, without those about the speed of the machine."""
    return [
        (f.incident, f.id, f.severity, f.state, f.onset_step, f.detected_step, f.last_step, f.attempt)
        for f in RunReader(path).findings
        if not f.id.startswith("system/")
    ]


ALONE = (1, Stand.id, "warn", "open", 3, 3, 3, 0)


def test_a_row_is_on_record_when_its_tick_is_handed_out(tmp_path) -> None:
    for tick in start(tmp_path / "run", 3).run():
        assert written(tmp_path / "run")[-1] == tick.step
        latest = RunReader(tmp_path / "run").history.view()
        assert {name: latest.latest(name) for name in tick.metrics} == tick.metrics


def test_a_finding_is_in_the_tick_of_its_step(tmp_path, stand) -> None:
    found = {tick.step: [f.state for f in tick.findings] for tick in start(tmp_path / "run", 4).run()}
    assert found == {1: [], 2: [], 3: ["open"], 4: []}


def test_a_disk_that_does_not_answer_is_the_cause_of_its_finding(tmp_path) -> None:
    session = start(tmp_path / "run", 3)
    steps = session.run()
    next(steps)
    disk = session.monitor.writer.disk
    disk.behind, disk._began = True, time.monotonic() - 0.8
    assert session.monitor._disk_news(1) == [], "a crowded machine takes as long"
    disk._began = time.monotonic() - 3
    (found,) = session.monitor._disk_news(1)
    (cause,) = found.causes
    assert (found.id, cause.id, cause.why) == ("system/stalled", "slow-disk", "the disk does not answer")
    steps.close()


def test_a_step_interrupted_while_it_is_measured_is_left_to_be_made_again(tmp_path, monkeypatch) -> None:
    measure, interrupts = stabilizer.training.loop._measured, [False, False, True]

    def interrupted(*args):
        if interrupts and interrupts.pop(0):
            raise KeyboardInterrupt
        return measure(*args)

    monkeypatch.setattr(stabilizer.training.loop, "_measured", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(start(tmp_path / "run", 5).run())
    assert written(tmp_path / "run") == [0, 1, 2]
    assert max(state.step for state in scan(tmp_path / "run" / "checkpoints")) <= 2
    assert read_json(tmp_path / "run" / "status.json")["state"] == "stopped"


def test_a_step_that_cannot_be_measured_is_recorded_with_what_training_computed(tmp_path, monkeypatch) -> None:
    def broken(*args):
        raise ValueError("no texts")

    monkeypatch.setattr(stabilizer.training.loop, "_measured", broken)
    ticks = list(start(tmp_path / "run", 3).run())
    reader = RunReader(tmp_path / "run")
    notes = [(event.step, event.text) for event in reader.history.events]
    assert [note for note in notes if "monitor failed" in note[1]] == [(1, "monitor failed: ValueError: no texts")]
    view = reader.history.view()
    assert list(view.series("policy/loss").steps) == [1, 2, 3] and "reward/mean" not in view
    assert "policy/loss" in ticks[0].metrics


def test_requests_before_a_failure_are_applied_on_resuming_and_not_in_the_failed_state(tmp_path) -> None:
    session = start(tmp_path / "run", 8, "checkpoint.every=3")
    train = session.trainer.train_step

    def broken():
        if session.trainer.step == 5:
            ask(tmp_path / "run", "set", "prompts=3")
            raise RuntimeError("CUDA out of memory")
        return train()

    session.trainer.train_step = broken
    with pytest.raises(RuntimeError):
        list(session.run())
    reader = RunReader(tmp_path / "run")
    assert reader.actions == [] and max(state.step for state in scan(tmp_path / "run" / "checkpoints")) == 3
    resumed = Session.resume(tmp_path / "run")
    next(resumed.run())
    reader.refresh()
    assert [(entry.entry, entry.step) for entry in reader.actions] == [("approved", 4), ("applied", 4)]


def test_a_finding_of_the_last_row_before_a_kill_is_written_once_on_resuming(tmp_path, stand) -> None:
    session = start(tmp_path / "run", 20)
    look = session.monitor.watch.tick

    def killed_before_it_looks(view: RunView) -> list[Finding]:
        if view.step == 3:
            shutil.copytree(tmp_path / "run", tmp_path / "killed")
        return look(view)

    session.monitor.watch.tick = killed_before_it_looks
    ticks = session.run()
    for _ in range(3):
        next(ticks)
    ticks.close()
    assert written(tmp_path / "killed")[-1] == 3 and recorded(tmp_path / "killed") == []
    resumed = Session.resume(tmp_path / "killed")
    resumed.writer.close()
    assert recorded(tmp_path / "killed") == [ALONE]
    assert [f.id for f in resumed.monitor.watch.active()] == [Stand.id]
    Session.resume(tmp_path / "killed").writer.close()
    assert recorded(tmp_path / "killed") == [ALONE]


def test_resuming_repeats_no_finding_that_is_on_record(tmp_path, stand) -> None:
    session = start(tmp_path / "run", 20)
    for tick in session.run():
        if tick.step == 6:
            session.stop_reason = "SIGTERM"
    before = (tmp_path / "run" / "findings.jsonl").read_bytes()
    Session.resume(tmp_path / "run").writer.close()
    assert before and (tmp_path / "run" / "findings.jsonl").read_bytes() == before


def test_a_finding_before_the_first_step_is_recorded_and_in_the_first_tick(tmp_path, monkeypatch, stand) -> None:
    monkeypatch.setattr(Stand, "check", lambda self, view: Finding(self.id, "warn", "KL runs away", 0, 0, view.step))
    session = start(tmp_path / "run", 2)
    assert recorded(tmp_path / "run") == [(1, Stand.id, "warn", "open", 0, 0, 0, 0)]
    assert [[f.id for f in tick.findings] for tick in session.run()] == [[Stand.id], []]


def test_an_open_finding_is_restated_after_resuming_too(tmp_path, monkeypatch, stand) -> None:
    stays = Finding(Stand.id, "warn", "KL runs away", 1, 1, 1)
    monkeypatch.setattr(Stand, "check", lambda self, view: replace(stays, last_step=view.step))
    session = start(tmp_path / "run", 6 + RESTATED + 2)
    for tick in session.run():
        if tick.step == 6:
            session.stop_reason = "SIGTERM"
    assert recorded(tmp_path / "run")[-1][-2] == 6
    resumed = Session.resume(tmp_path / "run")
    for tick in resumed.run():
        if tick.step == 6 + RESTATED:
            assert recorded(tmp_path / "run")[-1][-2] == tick.step
