"""A run whose folder is taken away, whose last status is refused, or whose clock is set back."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from bench.trust.parts import SMALL
from stabilizer.commands.live_run import follow
from stabilizer.live.session import Session
from stabilizer.runs import atomic, writer
from stabilizer.runs.listing import run_state
from stabilizer.runs.reader import RunReader, read_json
from stabilizer.runs.writer import RunWriter
from stabilizer.training.checkpoint import scan
from stabilizer.training.config import load_config


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_folder_taken_away_mid_run_is_reported_and_records_go_on(tmp_path, monkeypatch, how: str) -> None:
    monkeypatch.setattr(writer, "HEARTBEAT_S", 0.0)
    path, away = tmp_path / "run", tmp_path / "away"
    session = Session.start(load_config("addition", list(SMALL), steps=8), path)
    out, step = io.StringIO(), session._step

    def step_and_lose():
        if session.trainer.step == 3:
            path.rename(away)
            if how == "deleted":  # at one instant, because the writer's thread may be renaming a file in it
                shutil.rmtree(away, ignore_errors=True)
            if how == "replaced":
                path.mkdir(exist_ok=True)  # the writer may have made it again already
        return step()

    session._step = step_and_lose
    assert follow(session, Console(file=out, width=400), json=False) == 1
    assert "was moved or deleted while the run was training" in out.getvalue()
    kept = RunReader(path)
    assert kept.status["state"] == "finished" and kept.about["steps"] == 8
    steps = list(kept.history.view().series("reward/mean").steps)
    if how != "deleted":
        steps += list(RunReader(away).history.view().series("reward/mean").steps)
    assert set(range(5 if how == "deleted" else 1, 9)) <= set(steps)
    assert any("was moved or deleted" in event.text for event in kept.events)


def test_a_process_that_changes_its_working_directory_writes_on_where_it_began(tmp_path, monkeypatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    session = Session.start(load_config("addition", list(SMALL), steps=4), Path("run"))
    for tick in session.run():
        if tick.step == 1:
            monkeypatch.chdir("other")
    assert not list((tmp_path / "other").iterdir())
    assert RunReader(tmp_path / "run").status["state"] == "finished"
    assert {state.step for state in scan(tmp_path / "run" / "checkpoints")} == {0, 2, 4}


@pytest.mark.parametrize("to", ["a full disk", "a closed pipe", "nothing"])
def test_a_run_goes_on_without_the_program_that_shows_it(tmp_path, monkeypatch, to: str) -> None:
    if to == "nothing":
        monkeypatch.setattr(sys, "stdout", None)
    else:
        reads, writes = os.pipe()
        os.close(reads)
        out = open("/dev/full", "w") if to == "a full disk" else os.fdopen(writes, "w")
        monkeypatch.setattr(sys, "stdout", out)
    session = Session.start(load_config("addition", list(SMALL), steps=3), tmp_path / "run")
    follow(session, Console(width=100), json=False)
    status = RunReader(tmp_path / "run").status
    assert (status["state"], status["step"]) == ("finished", 3)


def test_a_last_status_that_is_refused_for_a_moment_is_written(tmp_path, monkeypatch) -> None:
    run = RunWriter.create(tmp_path / "run", config={}, task="t", steps=5, versions={})
    run.status("running", 3)
    replace, refusals = atomic.replace_json, iter(range(3))

    def refused(path, value, **how):
        if path.name == "status.json" and next(refusals, None) is not None:
            raise OSError(28, "No space left on device")
        return replace(path, value, **how)

    monkeypatch.setattr(atomic, "replace_json", refused)
    run.status("finished", 5)
    run.close()
    assert read_json(tmp_path / "run" / "status.json")["state"] == "finished" and not run.problems()


def test_a_clock_set_back_delays_no_heartbeat(tmp_path, monkeypatch) -> None:
    now = [1_800_000_000.0]
    monkeypatch.setattr(writer.time, "time", lambda: now[0])
    run = RunWriter.create(tmp_path / "run", config={}, task="t", steps=5, versions={})
    run.status("running", 1)
    now[0] -= 7200
    run.status("running", 2)
    run._syncer.close()
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["step"] == 2 and status["t"] == now[0]
    assert run_state({"state": "running", "t": now[0] + 7200}, now[0]) == "stalled"  # killed before the next heartbeat
    run.close()
