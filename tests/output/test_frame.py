"""A run as a pandas table: `LoadedRun.frame()` and `export --to csv|parquet`."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

from stabilizer.cli import main
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.reading import load

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "sample_runs" / "addition-unstable"
FOREIGN = ROOT / "tests" / "trainers" / "samples" / "verl-0.5.log"


@pytest.mark.parametrize("path", [OWN, FOREIGN], ids=["own_run", "foreign_log"])
def test_every_logged_number_is_in_the_frame_at_its_step(path: Path) -> None:
    run = load(path)
    frame, view = run.frame(), run.history.view()
    assert frame.index.name == "step" and frame.index.is_monotonic_increasing and frame.index.is_unique
    assert list(frame.columns) == sorted(view.names()) and len(frame) > 1
    for name in view.names():
        series = view.series(name)
        assert np.array_equal(frame[name].loc[series.steps].to_numpy(), series.values, equal_nan=True), name
        assert frame[name].notna().sum() == np.count_nonzero(~np.isnan(series.values)), name


def test_a_metric_is_nan_at_steps_without_it(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.6, "loss": 2.0}\n{"step": 3, "loss": 1.0}\n')
    frame = load(log).frame()
    assert frame.index.tolist() == [1, 2, 3]
    assert math.isnan(frame["reward/mean"][3]) and frame["reward/mean"][2] == 0.6


def test_without_pandas_the_error_names_the_package(monkeypatch) -> None:
    run: LoadedRun = load(FOREIGN)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        run.frame()


@pytest.mark.parametrize("path", [OWN, FOREIGN], ids=["own_run", "foreign_log"])
def test_exported_tables_hold_what_the_frame_holds(tmp_path: Path, path: Path) -> None:
    for to in ("csv", "parquet"):
        assert main(["export", str(path), "--to", to, "-o", str(tmp_path / f"run.{to}")]) == 0
    frame = load(path).frame()
    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "run.parquet"), frame)
    read = pandas.read_csv(tmp_path / "run.csv", index_col="step")
    pandas.testing.assert_frame_equal(read.astype(float), frame.astype(float), rtol=1e-12)


def test_an_exported_table_replaces_no_file(tmp_path: Path, capsys) -> None:
    out = tmp_path / "mine.parquet"
    out.write_text("notes")
    assert main(["export", str(FOREIGN), "--to", "parquet", "-o", str(out)]) == 2
    assert "already exists" in capsys.readouterr().err and out.read_text() == "notes"
