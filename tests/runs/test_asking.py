"""Whether a run would heed a request: the rules behind `stabilizer fix` and the dashboard's buttons."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stabilizer.cli import main
from stabilizer.core.records import Action
from stabilizer.runs.asking import idle, leave, misplaced, over, waiting
from stabilizer.runs.writer import RunWriter

NOW = 1_790_000_000.0


def status(state: str, age: float = 1.0, **more: object) -> dict[str, object]:
    return {"state": state, "t": NOW - age, **more}


@pytest.mark.parametrize("state", ["running", "paused"])
def test_a_running_run_answers_requests(state: str) -> None:
    assert over(status(state), NOW) == ""


@pytest.mark.parametrize("state", ["finished", "failed", "stopped", "preempted", "created"])
def test_a_run_that_is_over_does_not_answer(state: str) -> None:
    assert over(status(state), NOW) == f"the run is {state}, so it can't be changed"


def test_a_run_in_a_long_step_answers_while_its_process_lives() -> None:
    here = {"host": socket.gethostname(), "pid": os.getpid()}
    assert over(status("running", 600, **here), NOW) == ""


def test_a_killed_process_does_not_answer_despite_a_recent_heartbeat() -> None:
    killed = {"host": socket.gethostname(), "pid": 2**22 + 1}  # beyond what Linux gives out
    assert "process is gone" in over(status("running", 20, **killed), NOW)
    assert over(status("running", 20, **{**killed, "host": "elsewhere"}), NOW) == "", "nobody can see that from here"
    assert over(status("running", 2, **killed), NOW) == "", "it may live in a container"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc, to know when a process began")
def test_a_later_process_with_the_number_of_the_runs_own_does_not_count(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    writer.status("running", 1, t=NOW - 20)
    wrote = json.loads((tmp_path / "run" / "status.json").read_text())
    assert over(wrote, NOW) == ""
    assert "process is gone" in over({**wrote, "began": wrote["began"] - 1}, NOW)
    writer.close()


def test_a_process_that_ended_and_is_not_collected_does_not_answer() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        zombie = {"host": socket.gethostname(), "pid": ended.pid}
        assert "process is gone" in over(status("running", 20, **zombie), NOW)


@pytest.mark.parametrize("odd", [{}, {"state": 7}, {"state": None, "t": "x"}, {"state": ["running"]}])
def test_an_odd_status_is_no_error(odd: dict[str, object]) -> None:
    assert isinstance(over(odd, NOW), str) and isinstance(idle(odd, "run"), str)


def test_a_run_that_only_suggests_says_how_to_let_it_act() -> None:
    assert "--resume run --remedy approve" in idle({"remedy": "suggest"}, "run")
    assert idle({"remedy": "approve"}, "run") == idle({}, "run") == ""


def test_an_answer_must_fit_the_newest_entry() -> None:
    latest = {"a1": Action("a1", "proposed", "lower-lr", 1), "a2": Action("a2", "verified", "lower-lr", 2)}
    assert misplaced("approve", "a1", latest) == misplaced("revert", "a2", latest) == ""
    assert "is proposed" in misplaced("revert", "a1", latest)
    assert "no action 'a3'" in misplaced("approve", "a3", latest)
    assert "needs an action" in misplaced("approve", "", latest)


def test_a_request_waits_until_it_is_taken(tmp_path: Path) -> None:
    left = [leave(tmp_path, "approve", "a1", "x"), leave(tmp_path, "pause", "", "y")]
    assert [(r.kind, r.action, r.by) for r in waiting(tmp_path)] == [("approve", "a1", "x"), ("pause", "", "y")]
    (tmp_path / "requests" / f"{left[0].id}.json").unlink()
    assert [r.kind for r in waiting(tmp_path)] == ["pause"]


def test_the_command_line_refuses_in_the_same_words(tmp_path: Path, capsys) -> None:
    writer = RunWriter.create(tmp_path / "run", config={}, task="t", argv=[])
    writer.action(Action("a1", "proposed", "lower-lr", 1))
    writer.status("running", 1, remedy="suggest", force=True)
    assert main(["fix", str(tmp_path / "run"), "approve", "a1"]) == 2
    assert "applies no remedies" in capsys.readouterr().err
    assert main(["fix", str(tmp_path / "run"), "revert", "a1"]) == 2
    assert "is proposed, so it can't be asked to revert" in capsys.readouterr().err
    writer.status("finished", 1, force=True)
    assert main(["fix", str(tmp_path / "run"), "pause"]) == 2
    assert "the run is finished, so it can't be changed" in capsys.readouterr().err
    assert waiting(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("trainer", "how"),
    [
        ("stabilizer", "train --resume RUN --remedy approve"),
        ("trl", 'attach(..., remedy="approve")'),
        ("own loop", "fix RUN set NAME=VALUE"),
    ],
)
def test_what_allows_remedies_is_said_in_the_words_of_the_trainer(trainer: str, how: str) -> None:
    assert how in idle({"remedy": "suggest"}, "RUN", trainer)
    assert ("train --resume" in idle({"remedy": "suggest"}, "RUN", trainer)) == (trainer == "stabilizer")
