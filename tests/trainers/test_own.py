"""A run directory of ours: what its status says beside what its metrics say."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from stabilizer.analysis.analyse import analyse
from stabilizer.trainers.stabilizer import log

SAMPLE = Path(__file__).parents[2] / "sample_runs/addition-healthy"


@pytest.mark.parametrize(
    ("said", "silence", "stalled"),
    [("running", 86400.0, True), ("running", 0.0, False), ("paused", 86400.0, False), ("finished", 86400.0, False)],
)
def test_only_a_run_that_calls_itself_running_and_fell_silent_is_stalled(tmp_path, said, silence, stalled) -> None:
    folder = Path(shutil.copytree(SAMPLE, tmp_path / "run"))
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"state": said, "t": time.time() - silence}))
    found = analyse(log.read(folder, mapping={}, config=None)).findings
    assert any(finding.id == "system/stalled" for finding in found) == stalled
