"""How training and the demo end: what is said, and which exit code; real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SLOW_FROM = 50
"""Step from which the machine of `SLOW_MACHINE` is slow."""
SLOW_MACHINE = f"""
import time
calls = 0

def paid(completions, answers):
    global calls
    calls += 1
    time.sleep(0.05 if calls <= {SLOW_FROM} else 0.4)
    return [float(answer in completion) for completion, answer in zip(completions, answers)]
"""


def run(*words: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stabilizer", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL, **options)


@pytest.mark.slow
def test_a_slow_machine_is_a_note_and_never_the_verdict_on_the_training(tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text(SLOW_MACHINE)
    paid = ("--set", f"reward.functions=[{file}:paid]")
    trained = run("train", "addition", "--steps", "80", "--runs", str(tmp_path / "runs"), *paid)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert "verdict: healthy, with remarks" in trained.stdout
    assert re.search(r"system/slowdown \(info\) since step \d+: a step takes", trained.stdout.split("verdict:")[1])
    (path,) = (tmp_path / "runs").iterdir()
    diagnosed = run("diagnose", str(path), "--json")
    told = json.loads(diagnosed.stdout)
    assert (diagnosed.returncode, told["verdict"], told["worst"]) == (0, "info", "info")
    assert "system/slowdown" in [finding["id"] for finding in told["findings"]]
    (line,) = json.loads(run("runs", str(tmp_path / "runs"), "--json").stdout)
    assert line["verdict"] == "info"


def test_the_demo_ends_well_with_its_dashboard_and_says_how_to_open_it_again(tmp_path: Path) -> None:
    shown = run("demo", "--steps", "3", "--runs", str(tmp_path), "--port", "0", env=os.environ | {"COLUMNS": "300"})
    assert shown.returncode == 0, shown.stdout + shown.stderr
    (told,) = [line for line in shown.stdout.splitlines() if "the dashboard ends with the training" in line]
    assert told.endswith(f"dashboard {tmp_path}")
    assert "demo --variant unstable" in shown.stdout and "repair it" not in shown.stdout


@pytest.mark.slow
def test_the_unstable_demo_ends_well_and_says_what_broke_and_how_it_is_mended(tmp_path: Path) -> None:
    words = ("demo", "--variant", "unstable", "--steps", "60", "--runs", str(tmp_path), "--no-dashboard")
    shown = run(*words, env=os.environ | {"COLUMNS": "300"})
    assert shown.returncode == 0, shown.stdout + shown.stderr
    closing = shown.stdout.split("verdict:")[1]
    assert "critical" in closing.splitlines()[0] and re.search(r"■ \S+ \(critical\) since step \d+: ", closing)
    assert "this variant breaks on purpose" in closing
    assert "demo --variant unstable --steps 60 --remedy auto-full" in closing


def test_a_demo_that_was_stopped_did_not_end_well(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stabilizer", "demo", "--runs", str(tmp_path), "--no-dashboard"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    for line in demo.stdout:
        if "1/800" in line:
            demo.send_signal(signal.SIGINT)
            break
    rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1 and "stopped by SIGINT" in rest
