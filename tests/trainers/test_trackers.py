"""MLflow's folders, trackio's database, and folders in which one training left several logs."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load
from tests.trainers.trl_logs import state
from tests.trainers.trl_logs import write as write_state

SAMPLES = Path(__file__).parent / "tool_samples"


def mlflow_run(root: Path, name: str = "0123456789abcdef", steps: int = 12) -> Path:
    """A run as mlflow 3.17's file store lays it out: `timestamp value step` a line, parameters one file each."""
    run = root / "mlruns" / "227767130831447704" / name
    for metric in ("critic/score/mean", "actor/pg_loss", "val-core/math/acc/mean_at_4"):
        file = run / "metrics" / metric
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f"{1700000000000 + s} {'nan' if s == 3 and 'loss' in metric else s / 64} {s}" for s in range(1, steps + 1)
        ]
        file.write_text("\n".join(lines) + "\n")
    (run / "params").mkdir()
    (run / "params" / "learning_rate").write_text("1e-06")
    (run / "tags").mkdir()
    (run / "tags" / "mlflow.runName").write_text("small")
    (run / "meta.yaml").write_text(f"run_id: {name}\n")
    return run


def trackio_base(path: Path, runs: dict[str, int]) -> Path:
    """A database as trackio 0.43 makes it; NaN is the text "NaN" in the JSON."""
    with sqlite3.connect(path) as base:
        base.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,"
            " run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)"
        )
        base.execute(
            "CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL, "
            "config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id))"
        )
        for name, steps in runs.items():
            config = json.dumps({"beta": 0.04, "_Group": None})
            base.execute(
                "INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, '')", (name, name, config)
            )
            for s in range(1, steps + 1):
                loss = "NaN" if s == 3 else 0.1
                values = {"train/reward": s / 64, "train/completions/mean_length": 9.0, "train/loss": loss}
                base.execute(
                    "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, '', ?, ?, ?)",
                    (name, name, s, json.dumps(values).encode()),
                )
    base.close()
    return path


def test_a_run_in_mlflows_file_store(tmp_path: Path) -> None:
    run = mlflow_run(tmp_path)
    for path in (run, tmp_path / "mlruns", tmp_path):
        read = load(path)
        view = read.history.view()
        assert (read.name, read.source.format, read.source.trainer) == ("small", "mlflow", "verl")
        assert view.series("reward/mean").values.tolist() == [s / 64 for s in range(1, 13)]
        assert np.isnan(view.series("policy/loss").values[2]) and read.history.about["config"]["learning_rate"] == 1e-6
        assert view.latest("accuracy/val") == 12 / 64  # `_at_` is the @ that MLflow refuses


def test_the_largest_of_mlflows_runs_is_read_and_a_note_names_the_others(tmp_path: Path) -> None:
    mlflow_run(tmp_path, "a" * 16, steps=3)
    mlflow_run(tmp_path, "b" * 16, steps=9)
    run = load(tmp_path)
    assert run.source.steps == 9 and any("a" * 16 in note for note in run.source.notes)


def test_torn_lines_of_mlflow_are_counted(tmp_path: Path) -> None:
    run = mlflow_run(tmp_path)
    with (run / "metrics" / "critic" / "score" / "mean").open("a") as file:
        file.write("17000 0.5 x\nnoise\n")
    assert load(run).source.skipped_lines == 2


def test_the_longest_run_of_a_trackio_project(tmp_path: Path) -> None:
    path = trackio_base(tmp_path / "grpo.db", {"short": 3, "long": 12})
    before = path.read_bytes()
    run = load(path)
    assert (run.name, run.source.trainer, run.source.steps) == ("long", "trl", 12)
    assert np.isnan(run.history.view().series("policy/loss").values[2])
    assert run.history.about["config"] == {"beta": 0.04} and any("short" in note for note in run.source.notes)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["grpo.db"]


def test_a_database_of_something_else_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as base:
        base.execute("CREATE TABLE metrics (a)")
    base.close()
    data = trackio_base(tmp_path / "good.db", {"a": 400}).read_bytes()
    (tmp_path / "torn.db").write_bytes(data[: len(data) // 2])
    for name in ("other.db", "torn.db"):
        for format in (None, "trackio"):
            with pytest.raises(RunError, match=name):
                load(tmp_path / name, format=format)


def test_one_training_in_several_formats_counts_once_and_the_richest_is_read(tmp_path: Path) -> None:
    write_state(tmp_path / "out" / "checkpoint-40", state("0.20", rows=40))
    (tmp_path / "tb").mkdir()
    shutil.copy(SAMPLES / "events.out.tfevents.1700000000.small", tmp_path / "tb")
    (tmp_path / "notes.md").write_text("step 1 was fine")
    run = load(tmp_path)
    assert (run.source.format, run.source.steps) == ("trl_trainer_state", 40)
    assert any("not used" in note and "tensorboard" in note for note in run.source.notes)


def test_a_folder_with_one_log_somewhere_below_is_that_log(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "metrics.jsonl").write_text('{"step":1,"reward":0.5}\n{"step":2,"reward":0.6}\n')
    (tmp_path / "a" / "config.json").write_text('{"hidden_size": 64}')
    run = load(tmp_path)
    assert run.source.steps == 2 and run.source.files == (str(tmp_path / "a" / "b" / "metrics.jsonl"),)


def test_a_damaged_log_in_a_folder_is_skipped_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step":1,"reward":0.5}\n{"step":2,"reward":0.6}\n')
    (tmp_path / "b.json").write_text('{"torn": [1, ')
    run = load(tmp_path)
    assert run.source.format == "json" and any("skipped" in note and "b.json" in note for note in run.source.notes)


@pytest.mark.parametrize("log", ["search-r1.log", "skyrl.log", "nemo-rl.log", "verl-file.jsonl"])
def test_the_configuration_hydra_keeps_beside_a_console_or_a_file_of_verl_and_its_like_is_used(
    log: str, tmp_path: Path
) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("algorithm:\n  gamma: 0.5\n")
    (tmp_path / log).write_bytes((Path(__file__).parent / "samples" / log).read_bytes())
    run = load(tmp_path / log)
    assert run.history.about["config"]["algorithm"]["gamma"] == 0.5
    assert any(".hydra/config.yaml" in note for note in run.source.notes)


def test_the_configuration_hydra_keeps_beside_a_log_is_used(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("algorithm:\n  gamma: 0.5\n")
    (tmp_path / "log.csv").write_text("step,reward\n1,0.5\n2,0.6\n")
    run = load(tmp_path / "log.csv")
    assert run.history.about["config"] == {"algorithm": {"gamma": 0.5}}
    assert any(".hydra/config.yaml" in note for note in run.source.notes)
