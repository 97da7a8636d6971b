"""MLflow's database: read without a lock, whatever else is in it."""

from __future__ import annotations

import math
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from stabilizer.formats import database
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load

SCHEMA = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256));
CREATE TABLE runs (run_uuid VARCHAR(32) NOT NULL, name VARCHAR(250), status VARCHAR(9), start_time BIGINT,
    lifecycle_stage VARCHAR(20), experiment_id INTEGER, PRIMARY KEY (run_uuid));
CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,
    run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,
    PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan));
CREATE TABLE params (key VARCHAR(250) NOT NULL, value VARCHAR(8000) NOT NULL, run_uuid VARCHAR(32) NOT NULL,
    PRIMARY KEY (key, run_uuid));
"""
"""What the reader needs of the tables that mlflow 3.17 makes."""


def base(path: Path, runs: dict[str, int], more: list[tuple[Any, ...]] = ()) -> Path:  # type: ignore[assignment]
    """A tracking store as MLflow keeps it; NaN is 0 with a mark, infinity the largest number."""
    with sqlite3.connect(path) as store:
        store.executescript(SCHEMA)
        for name, steps in runs.items():
            store.execute("INSERT INTO runs (run_uuid, name) VALUES (?, ?)", (f"id-{name}", name))
            for key, text in (("beta", "0.001"), ("trainer.use_kl", "True"), ("note", "plain")):
                store.execute("INSERT INTO params VALUES (?, ?, ?)", (key, text, f"id-{name}"))
            for s in range(1, steps + 1):
                rows = [
                    ("critic/score/mean", s / 8, s * 1000, f"id-{name}", s, 0),
                    ("actor/pg_loss", 0.0 if s == 3 else 0.25, s * 1000, f"id-{name}", s, int(s == 3)),
                    ("actor/grad_norm", sys.float_info.max if s == 4 else 0.5, s * 1000 + 7, f"id-{name}", s, 0),
                    ("val-core/math/acc/mean_at_4", s / 16, s * 1000, f"id-{name}", s, 0),
                    ("system/gpu_0_utilization", 50.0, s * 1000 + 3, f"id-{name}", 90 - s, 0),
                ]
                store.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
        store.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", more)
    store.close()
    return path


def test_the_largest_run_of_a_store_is_read_and_a_note_names_the_others(tmp_path):
    run = load(base(tmp_path / "mlflow.db", {"short": 2, "long": 6}))
    assert (run.name, run.source.format, run.source.trainer, run.source.steps) == ("long", "mlflow_db", "verl", 6)
    assert any("short" in note for note in run.source.notes)
    assert run.history.about["config"]["note"] == "plain" and run.history.about["config"]["beta"] == 0.001


def test_nan_infinity_and_the_at_sign_are_restored(tmp_path):
    view = load(base(tmp_path / "store.sqlite", {"a": 6})).history.view()
    assert math.isnan(view.series("policy/loss").values[2])
    assert view.series("optim/grad_norm").values.tolist() == [0.5, 0.5, 0.5, math.inf, 0.5, 0.5]
    assert view.latest("accuracy/val") == 6 / 16  # `_at_` is the @ that MLflow refuses


def test_metrics_of_the_machine_are_left_out(tmp_path):
    run = load(base(tmp_path / "mlflow.db", {"a": 6}))
    assert not any("system" in name for name in run.history.names()) and max(run.histories) == 0


def test_a_restart_in_a_store_is_an_attempt(tmp_path):
    again = [("critic/score/mean", 0.75, 90_000 + s, "id-a", s, 0) for s in (3, 4)]
    run = load(base(tmp_path / "mlflow.db", {"a": 5}, again))
    assert max(run.histories) == 1 and run.history.view().latest("reward/mean") == 0.75


def test_values_of_another_kind_are_counted(tmp_path):
    odd = [("x", "text", 1, "id-a", 1, 0), (b"\xff", 1.0, 2, "id-a", 1, 0), ("y", 1.0, 3, "id-a", "late", 0),
           ("z", 1.0, 4, "id-a", -5, 0)]  # fmt: skip
    run = load(base(tmp_path / "mlflow.db", {"a": 5}, odd))
    assert run.source.skipped_lines == 4 and run.source.steps == 5


def test_a_store_that_is_read_is_not_locked_nor_touched(tmp_path):
    path = base(tmp_path / "mlflow.db", {"a": 5})
    before = path.read_bytes()
    writer = sqlite3.connect(path, isolation_level=None, timeout=0)
    writer.execute("BEGIN EXCLUSIVE")  # a trainer in the middle of writing
    assert load(path).source.steps == 5
    writer.execute("ROLLBACK")
    writer.close()
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_store_that_changes_under_the_reader_is_read_again(tmp_path, monkeypatch):
    path = base(tmp_path / "mlflow.db", {"a": 5})
    stamps = iter([(1, 1), (2, 1), (2, 1), (2, 1)])
    monkeypatch.setattr(database, "_stamp", lambda _: next(stamps))
    assert load(path).source.steps == 5
    always = iter(range(100))
    monkeypatch.setattr(database, "_stamp", lambda _: (next(always), 0))
    with pytest.raises(RunError, match="changed while it was read"):
        load(path)


def test_a_view_that_never_ends_is_no_table(tmp_path):
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as store:
        store.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT 'k' AS key, i AS value, i AS timestamp, 'r' AS run_uuid, i AS step, 0 AS is_nan FROM n"
        )
    store.close()
    with pytest.raises(RunError, match=r"mlflow\.db"):
        load(path)
    with pytest.raises(RunError, match="no table of metrics"):
        load(path, format="mlflow_db")


@pytest.mark.parametrize("rows", [{}, {"a": 0}])
def test_a_store_without_a_value_says_so(tmp_path, rows):
    with pytest.raises(RunError, match="no metrics in it"):
        load(base(tmp_path / "mlflow.db", rows))


def test_every_damage_to_a_store_gives_a_message_or_a_run(tmp_path):
    raw = base(tmp_path / "good.db", {"a": 5}).read_bytes()
    path = tmp_path / "mlflow.db"
    for place in range(0, len(raw), len(raw) // 60):
        for damaged in (raw[:place], raw[:place] + b"\xff" * 40 + raw[place + 40 :]):
            path.write_bytes(damaged)
            for format in (None, "mlflow_db"):
                try:
                    load(path, format=format)
                except RunError as error:
                    assert "mlflow.db" in str(error)


def test_a_damaged_schema_with_a_binary_message_gives_a_message(tmp_path):
    path = base(tmp_path / "mlflow.db", {"a": 6})
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"CREATE TABLE", b"CREAT\xff TABLE".ljust(12)[:12]))
    with pytest.raises(RunError):
        load(path)
    with pytest.raises(RunError, match="not readable as a database of MLflow"):
        load(path, format="mlflow_db")
