"""A watchdog in a real loop: what it writes while the loop hangs, and what it leaves alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stabilizer
from stabilizer.analysis.analyse import analyse
from stabilizer.live import watchdog as module
from stabilizer.live.heart import Heart
from stabilizer.live.watchdog import SETTING, Watchdog
from stabilizer.runs.heartbeats import read_beats
from stabilizer.runs.reader import RunReader
from stabilizer.trainers.reading import load

LOOP = """
import sys, time, stabilizer

def slow_judge():
    time.sleep(600)

run = stabilizer.init("mine", runs=sys.argv[1])
for step in range(1, 6):
    with run.phase("rollout"):
        time.sleep(0.01)
    with run.phase("reward", "judge"):
        if step == int(sys.argv[2]):
            slow_judge()
    run.log({"reward": 0.3}, step)
run.finish()
"""


def waited(condition, seconds: float = 60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    return condition()


@pytest.fixture
def hung(tmp_path: Path, request):
    """A loop whose reward sleeps in step `request.param`: its run and its process."""
    script = tmp_path / "train_mine.py"
    script.write_text(LOOP)
    process = subprocess.Popen(
        [sys.executable, script, str(tmp_path / "runs"), str(request.param)], env={**os.environ, SETTING: "1.5"}
    )
    about = waited(lambda: next(iter((tmp_path / "runs").glob("*/run.json")), None))
    try:
        yield about.parent, process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("hung", [4, 1], indirect=True)
def test_a_slow_reward_is_located_while_it_lasts_and_after_its_end(hung):
    run, process = hung
    assert waited(lambda: RunReader(run).findings)
    beat = read_beats(run)[0]
    assert (beat.phase, beat.pending, beat.stall["kind"]) == ("reward", "judge", "slow-reward")
    assert beat.stall["frame"].endswith("train_mine.py:5 slow_judge")
    assert "slow_judge" in (run / beat.stall["stacks"]).read_text()
    finding = RunReader(run).findings[-1]
    assert finding.id == "system/stalled" and "train_mine.py:5 slow_judge" in finding.summary
    assert finding.causes[0].id == "slow-reward"
    process.kill()
    process.wait()
    analysis = analyse(load(run))
    assert analysis.verdict == "warn" and "is gone" in analysis.findings[0].summary


@pytest.mark.parametrize("hung", [4], indirect=True)
def test_a_stopped_process_is_recognised_from_outside(hung):
    run, process = hung
    waited(lambda: read_beats(run) and read_beats(run)[0].step == 3)
    process.send_signal(signal.SIGSTOP)
    try:
        found = waited(lambda: [f for f in analyse(load(run)).findings if f.causes[0].id == "stopped-process"])
        assert "kill -CONT" in found[0].remedies[0].how
    finally:
        process.send_signal(signal.SIGCONT)


def test_the_finding_closes_when_the_phase_ends(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, "1")
    run = stabilizer.init("mine", runs=tmp_path)
    for step in range(1, 4):
        run.log({"reward": 0.1}, step)
    with run.phase("update"):
        assert waited(lambda: RunReader(run.path).findings)
    for step in range(4, 40):
        run.log({"reward": 0.1}, step)
    assert waited(lambda: "went on after" in (run.path / "events.jsonl").read_text())
    run.finish()
    states = [finding.state for finding in RunReader(run.path).findings if finding.id == "system/stalled"]
    assert states[0] == "open" and states[-1] == "resolved"
    assert [f.state for f in analyse(load(run.path)).findings if f.id == "system/stalled"] == ["resolved"]
    assert read_beats(run.path)[0].over and not read_beats(run.path)[0].stall


def test_one_setting_switches_it_off(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, "off")
    run = stabilizer.init("mine", runs=tmp_path)
    with run.phase("update"):
        time.sleep(0.6)
    run.finish()
    assert not (run.path / "heartbeats").exists()


def test_a_bad_setting_is_named_and_ignored(monkeypatch, capsys):
    monkeypatch.setenv(SETTING, "soon")
    assert module.wanted() == (True, None)
    assert "soon" in capsys.readouterr().err


class Sleeper:
    """A clock that jumps when it is asked to."""

    def __init__(self):
        self.jumped = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.jumped


def test_time_in_which_the_machine_slept_does_not_count(tmp_path):
    clock = Sleeper()
    heart = Heart(clock)
    reports: list[str] = []
    dog = Watchdog(tmp_path, heart, lambda text, evidence: reports.append(text) is None)
    for _ in range(5):
        with heart.phase("update"):
            pass
    heart.enter("update")
    dog.start()
    time.sleep(1)
    clock.jumped = 8 * 3600.0
    time.sleep(2.5)
    assert read_beats(tmp_path)[0].for_s < 10 and not reports
    dog.close()


def test_it_survives_its_own_errors_and_a_disk_that_refuses(tmp_path, monkeypatch):
    complaints: list[str] = []
    heart = Heart(fixed_s=0.5)
    reports: list[str] = []
    dog = Watchdog(
        tmp_path, heart, lambda text, evidence: reports.append(text) is None,
        complain=lambda what, error: complaints.append(str(error)),
    )  # fmt: skip
    good, calls = module.write_beat, []

    def refused(*args):
        calls.append(args)
        if len(calls) < 4:
            raise OSError("no space left")
        good(*args)

    monkeypatch.setattr(module, "write_beat", refused)
    heart.enter("update")
    dog.start()
    assert waited(lambda: reports and read_beats(tmp_path))
    assert any("no space left" in text for text in complaints)
    dog.close()


def test_a_heartbeat_with_odd_content_is_no_heartbeat(tmp_path):
    (tmp_path / "heartbeats").mkdir()
    (tmp_path / "heartbeats" / "r0.json").write_text(json.dumps({"pid": "x", "t": None, "phase": 3}))
    (tmp_path / "heartbeats" / "r1.json").write_text("{")
    (tmp_path / "heartbeats" / "r2.json").write_text(json.dumps({"pid": 1, "t": 5.0, "stall": [], "phase": 3}))
    assert [beat.phase for beat in read_beats(tmp_path)] == ["other"]


@pytest.mark.parametrize("hung", [4], indirect=True)
def test_watch_shows_a_hang_while_it_lasts(hung):
    run, _ = hung
    command = [sys.executable, "-m", "stabilizer", "watch", str(run), "--fail-on", "warn"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "system/stalled" in done.stdout and "slow_judge" in done.stdout


ASKING = """
import time
from torch.distributed import TCPStore
from stabilizer.live import rank_watch
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
rank_watch.ASKED_S = 0.0
rank_watch.RankWatch(1, 2, lambda: "" if store.check(["run"]) else "")
time.sleep(0.3)
"""


def test_a_rank_that_asks_for_the_run_when_its_process_ends_does_not_abort_it():
    done = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
