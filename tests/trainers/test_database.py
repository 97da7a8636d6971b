"""SQLite databases of other programs: whatever they hold, reading ends, and nothing is left beside them."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from dashboards.data.logs import Logs
from stabilizer.formats import database
from stabilizer.runs.reader import RunError
from stabilizer.trainers.places import find
from stabilizer.trainers.reading import load
from tests.bounded import stabilizer
from tests.trainers.test_trackers import trackio_base

TRACKIO_VIEW = """
CREATE VIEW metrics AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT 'r' AS run_name, i AS step, '{}' AS metrics, i AS id FROM n;
"""
MLFLOW_VIRTUAL = """
CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT i AS id, 'k' AS key, 1.0 AS value, i AS timestamp, 'r' AS run_uuid, i AS step, 0 AS is_nan FROM n;
CREATE VIRTUAL TABLE metrics USING fts4(content='endless', key, value, timestamp, run_uuid, step, is_nan);
"""
UNDER_ANOTHER_NAME = """
CREATE TABLE other (x);
PRAGMA writable_schema = ON;
UPDATE sqlite_master SET name = 'metrics', tbl_name = 'metrics' WHERE name = 'other';
INSERT INTO sqlite_master VALUES ('view', 'v', 'v', 0, 'CREATE VIEW metrics AS
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT 1 AS run_name, i AS step, 1 AS metrics, i AS id FROM n');
"""


def hostile(path: Path, script: str) -> Path:
    base = sqlite3.connect(path)
    base.executescript(script)
    base.close()
    return path


@pytest.mark.parametrize("script", [TRACKIO_VIEW, MLFLOW_VIRTUAL, UNDER_ANOTHER_NAME])
@pytest.mark.parametrize("format", [None, "trackio", "mlflow_db"])
def test_an_endless_query_behind_the_name_of_a_table_is_not_run(tmp_path, script, format):
    path = hostile(tmp_path / "grpo.db", script)
    done = stabilizer("diagnose", path, *(["--format", format] if format else []))
    assert done.code == 2 and str(path) in done.err and "Traceback" not in done.err


def test_a_query_ends_with_its_budget(tmp_path):
    path = trackio_base(tmp_path / "grpo.db", {"a": 3000})
    slow = "SELECT a.step FROM metrics a, metrics b, metrics c WHERE a.step + b.step + c.step < 0"
    started = time.monotonic()
    with database._opened(path, ["metrics"], 10**6, 0.2) as base, pytest.raises(sqlite3.OperationalError):
        list(base.rows(slow))
    assert time.monotonic() - started < 5


def test_a_tree_that_returns_its_rows_again_and_again_is_refused(tmp_path):
    path = trackio_base(tmp_path / "grpo.db", {"a": 100})
    with database._opened(path, ["metrics"], path.stat().st_size) as base, pytest.raises(sqlite3.Error, match="than a"):
        list(base.rows("SELECT a.metrics FROM metrics a, metrics b"))  # more rows than the file holds


def test_the_dashboard_reads_on_beside_a_hostile_database(tmp_path):
    hostile(tmp_path / "grpo.db", TRACKIO_VIEW)
    rows = "".join(json.dumps({"step": step, "reward": 0.5, "kl": 0.01}) + "\n" for step in range(1, 30))
    (tmp_path / "log.jsonl").write_text(rows)
    logs = Logs([tmp_path])
    thread = threading.Thread(target=logs.settle, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and tmp_path / "log.jsonl" in logs.paths()


def live(path: Path) -> sqlite3.Connection:
    """A database in write-ahead mode whose newest rows are in its log alone, and its writer."""
    trackio_base(path, {"a": 5})
    writer = sqlite3.connect(path)
    assert writer.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    for step in range(6, 13):
        row = ("a", "a", step, json.dumps({"train/reward": 0.5, "train/loss": 0.1}).encode())
        sql = "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, '', ?, ?, ?)"
        writer.execute(sql, row)
    writer.commit()
    return writer


def test_rows_that_are_only_in_the_write_ahead_log_are_read(tmp_path):
    path = tmp_path / "grpo.db"
    writer = live(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}
    assert load(path).source.steps == 12
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}
    writer.close()


def test_a_database_in_write_ahead_mode_is_left_as_it_was(tmp_path):
    path = tmp_path / "grpo.db"
    live(path).close()
    before = path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["grpo.db"]
    assert load(path).source.steps == 12 and [place.format for place in find(tmp_path)] == ["trackio"]
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["grpo.db"]


def test_a_new_database_whose_tables_are_only_in_the_write_ahead_log_is_recognised(tmp_path):
    writer = sqlite3.connect(tmp_path / "grpo.db")
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)")
    writer.execute("INSERT INTO metrics VALUES (1, 'a', 1, '{\"train/reward\": 0.5}')")
    writer.commit()
    assert load(tmp_path / "grpo.db").source.steps == 1
    writer.close()


def test_a_note_names_a_write_ahead_log_too_large_to_copy(tmp_path, monkeypatch):
    path = tmp_path / "grpo.db"
    writer = live(path)
    writer.execute("PRAGMA wal_checkpoint")
    monkeypatch.setattr(database, "MAX_COPY_BYTES", 1000)
    assert any("grpo.db-wal is left out" in note for note in load(path).source.notes)
    writer.close()


def test_a_half_written_transaction_is_undone_in_the_copy(tmp_path):
    path = trackio_base(tmp_path / "grpo.db", {"a": 12})
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
    writer.execute("BEGIN")
    writer.execute("UPDATE metrics SET run_name = 'torn', metrics = ?", (b" " * 5000,))
    before = path.read_bytes()
    assert load(path).name == "a" and path.read_bytes() == before
    writer.close()


def test_a_database_that_changes_all_the_time_says_so(tmp_path, monkeypatch):
    path = trackio_base(tmp_path / "grpo.db", {"a": 5})
    stamps = iter(range(100))
    monkeypatch.setattr(database, "_stamp", lambda _: (next(stamps), 0))
    with pytest.raises(RunError, match="changed while it was read"):
        load(path)
