"""`stabilizer bench dashboard` measures what it says it measures; how fast this machine is, is not a test."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.dashboard import paint


@pytest.mark.slow
def test_the_table_has_every_row_and_no_metric_file_was_opened() -> None:
    # A process of its own: the bench drives a browser, and there is one driver to a process.
    command = [sys.executable, "-m", "stabilizer", "bench", "dashboard", "--quick", "--json"]
    bench = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bench.returncode == 0, bench.stderr
    rows = json.loads(bench.stdout)
    assert [row["what"] for row in rows][:2] == ["list of runs, cold", "list of runs, warm"]
    assert all(not row["metric files opened"] and 0 < row["median ms"] <= row["slowest ms"] for row in rows)
    assert any("viewers at once" in row["what"] for row in rows)


def test_polls_of_a_run_that_nobody_read_yet_are_measured(tmp_path) -> None:
    paint.write_run(tmp_path / "run", steps=40, metrics=6)
    (row,) = paint.callbacks(tmp_path / "run", polls=3, charts=4)
    assert 0 < row["ms"] <= row["p95_ms"] and row["bytes"] > 1000
