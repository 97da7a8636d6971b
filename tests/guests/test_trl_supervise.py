"""A real TRL training under `stabilizer supervise`: restarted with another argument, after a crash and after a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from stabilizer.runs.reader import RunReader

pytestmark = pytest.mark.skipif(
    find_spec("trl") is None, reason="needs TRL: make test-trl runs these in an environment of their own"
)
SCRIPT = Path(__file__).with_name("supervised_trl.py")
ROOT = SCRIPT.parents[2]


def test_a_training_is_restarted_with_one_changed_argument_and_after_a_crash_and_a_hang(tmp_path):
    command = [
        sys.executable, "-m", "stabilizer", "supervise", "--pause", "0.1", "--hang", "20", "--",
        sys.executable, str(SCRIPT), str(tmp_path), "--num_generations", "4",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    runs = sorted((RunReader(path.parent) for path in tmp_path.glob("runs/*/run.json")), key=lambda run: run.path.name)
    assert [run.about["config"]["num_generations"] for run in runs] == [4, 2, 2, 2]
    states = [json.loads((run.path / "status.json").read_text())["state"] for run in runs]
    assert states[0] == "stopped" and states[1] == "failed" and states[3] == "finished"
    rows = [run.history.view().series("reward/mean").steps.tolist() for run in runs]
    stopped = rows[0][-1]
    assert rows[1] == list(range(stopped + 1, 13)) and rows[2][0] == 11 and rows[3][-1] == 20
    asked = [action for action in runs[0].actions if action.entry == "applied"]
    assert asked[0].change == {"control/group_size": (4.0, 2.0)}
    ended = [json.loads(line) for run in runs[:3] for line in (run.path / "supervisor.jsonl").open()]
    assert ended[0]["plan"] == {
        "step": stopped, "arguments": {"num_generations": 2}, "checkpoint": f"{tmp_path}/out/checkpoint-{stopped}"
    }  # fmt: skip
    assert "a worker was lost" in ended[1]["why"] and "supervised_trl.py" in ended[2]["why"]
