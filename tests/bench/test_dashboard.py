"""`stabilizer bench dashboard` measures what it says it measures; how fast this machine is, is not a test."""

from __future__ import annotations

import json

import pytest

from stabilizer.cli import main


def test_the_table_has_every_row_and_no_metric_file_was_opened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "dashboard", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["what"] for row in rows][:2] == ["list of runs, cold", "list of runs, warm"]
    assert all(not row["metric files opened"] and 0 < row["median ms"] <= row["slowest ms"] for row in rows)
    assert any("viewers at once" in row["what"] for row in rows)
