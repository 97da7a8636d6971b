"""A TRL training in two processes under `stabilizer supervise`: a live change, a plan, a kill, a hang, and one run."""

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


def test_two_processes_are_restarted_for_a_plan_a_kill_and_a_hang_and_stay_one_run(tmp_path):
    command = [
        sys.executable, "-m", "stabilizer", "supervise", "--pause", "0.1", "--hang", "20", "--",
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0", str(SCRIPT), str(tmp_path), "--num_generations", "4",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (folder,) = (tmp_path / "runs").iterdir()
    run = RunReader(folder)
    assert [attempt["reason"] for attempt in run.about["attempts"]] == ["start", "resume", "resume", "resume"]
    assert run.history.view().series("reward/mean").steps.tolist() == list(range(1, 15))
    assert run.about["config"]["num_generations"] == 2 and run.status["state"] == "finished"

    first, second = (
        [json.loads(line) for line in (tmp_path / f"rank{rank}.jsonl").read_text().splitlines()] for rank in (0, 1)
    )
    both = [row for row in first if row in second]
    assert len(both) >= len(second) - 1 > 10  # weights and rates; the killed process may be a step ahead
    assert both[0][3] == 1e-3 and both[-1][3] == 5e-4
    apart = run.history.view().series("system/ranks_apart").values
    assert len(apart) == 14 and not apart.any()

    ended = [json.loads(line) for line in (folder / "supervisor.jsonl").open()]
    assert ended[0]["plan"]["arguments"] == {"num_generations": 2}
    assert "SIGKILL" in ended[1]["why"] and "rank 1" in ended[1]["why"]
    assert "rank 1: the reward" in ended[2]["why"] and "supervised_trl.py" in ended[2]["why"]
    assert ended[3]["then"] == "ended well"
    assert all("rank 1" in found.summary for found in run.findings if found.id == "system/stalled")
    crashed = next((found for found in run.findings if found.id == "system/crashed"), None)
    assert crashed is None or crashed.evidence["trouble"] == "nccl/remote-gone"  # torchrun may end it before
