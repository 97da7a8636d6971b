"""Two processes of a TRL training: the first decides, both apply at the same step, and one that differs is found."""

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
SCRIPT = Path(__file__).with_name("two_ranks.py")
ROOT = SCRIPT.parents[2]


def two_ranks(scene: str, folder: Path) -> tuple[list[dict], RunReader]:
    words = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--rdzv-backend=c10d",
             "--rdzv-endpoint=localhost:0", str(SCRIPT), scene, str(folder)]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    return told, RunReader(Path(told[0]["run"]))


def test_both_processes_change_and_return_at_the_same_step(tmp_path):
    (first, second), run = two_ranks("acts", tmp_path)
    assert first["seen"] == second["seen"]  # weights and rates of every step
    rates = {step: rate for step, _, _, rate in first["seen"]}
    assert rates[3] == pytest.approx(0.01) and rates[12] == pytest.approx(0.005)
    assert [attempt["reason"] for attempt in run.about["attempts"]] == ["start", "rollback"]
    apart = run.history.view().series("system/ranks_apart").values
    assert len(apart) and not apart.any()


def test_a_process_with_other_knobs_is_an_incident(tmp_path):
    _, run = two_ranks("apart", tmp_path)
    apart = run.history.view().series("system/ranks_apart")
    assert dict(zip(apart.steps.tolist(), apart.values.tolist(), strict=True))[5] == 1.0
    found = [one for one in run.findings if one.id == "system/invariant" and one.severity == "critical"]
    assert found and "other settings than the first one" in found[0].summary


def test_a_process_that_did_not_attach_is_not_waited_for(tmp_path):
    told, run = two_ranks("alone", tmp_path)
    assert len(told[0]["seen"]) == 12
    assert any("not all of them attached" in event.text for event in run.events)
