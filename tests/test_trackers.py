"""A run's metrics in the formats of other tools: what is written is read back, and nothing is sent anywhere."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stabilizer.analysis import analyse
from stabilizer.cli import main
from stabilizer.readers import load

SAMPLE = Path(__file__).resolve().parents[1] / "sample_runs" / "addition-unstable"


def log(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_what_tensorboard_is_given_is_the_run_and_is_diagnosed_as_it(tmp_path, capsys) -> None:
    assert main(["export", str(SAMPLE), "--to", "tensorboard", "-o", str(tmp_path / "tb")]) == 0
    assert "tensorboard --logdir" in capsys.readouterr().out
    run, copy = load(SAMPLE), load(tmp_path / "tb")
    ours, theirs = run.history.view(), copy.history.view()
    assert copy.source.trainer == "stabilizer" and not copy.source.skipped_lines
    assert set(theirs.names()) == set(ours.names())
    for name in ours.names():
        assert np.array_equal(theirs.series(name).steps, ours.series(name).steps)
        near = ours.series(name).values.astype(np.float32)
        assert np.array_equal(theirs.series(name).values.astype(np.float32), near, equal_nan=True), name
    told = [(f.id, f.severity, f.onset_step) for f in analyse(copy).findings]
    assert told == [(f.id, f.severity, f.onset_step) for f in analyse(run).findings] and told


@pytest.mark.filterwarnings("error")
def test_no_number_and_no_name_is_too_odd_for_an_event_file(tmp_path) -> None:
    odd = {"reward": math.nan, "a\nb": math.inf, "big": 1e300, "small": -1e300, "päck/ \u2603": 1e-320}
    path = log(tmp_path / "log.jsonl", *({"step": step, **odd} for step in range(1, 4)))
    assert main(["export", str(path), "--to", "tensorboard", "-o", str(tmp_path / "tb")]) == 0
    ours, theirs = load(path).history.view(), load(tmp_path / "tb").history.view()
    assert len(theirs.names()) == len(ours.names()) == len(odd)
    assert sorted(map(str, (theirs.latest(name) for name in theirs.names()))) == ["-inf", "0.0", "inf", "inf", "nan"]


@pytest.mark.parametrize("to", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_a_folder_with_anything_in_it_is_left_alone(tmp_path, capsys, to: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").touch()
    assert main(["export", str(SAMPLE), "--to", to, "-o", str(out)]) == 2
    assert "no empty folder" in capsys.readouterr().err and [path.name for path in out.iterdir()] == ["mine"]


@pytest.mark.parametrize("to", ["wandb", "mlflow", "trackio"])
def test_who_lacks_the_tool_is_told_what_to_install(tmp_path, capsys, monkeypatch, to: str) -> None:
    monkeypatch.setitem(sys.modules, to, None)
    assert main(["export", str(SAMPLE), "--to", to, "-o", str(tmp_path / "out")]) == 2
    assert f"pip install {to}" in capsys.readouterr().err and not (tmp_path / "out").exists()


class Wandb:
    """As much of W&B as an offline run needs."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, float]] = {}
        self.done = False

    Settings = dict

    def init(self, *, mode: str, dir: str, config: dict[str, Any], **about: Any) -> Wandb:
        assert mode == "offline" == os.environ["WANDB_MODE"]
        self.dir, self.config, self.about = dir, config, about
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.rows[step] = values

    def finish(self) -> None:
        self.done = True


def test_wandb_is_asked_for_an_offline_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", wandb := Wandb())
    monkeypatch.setenv("WANDB_MODE", "online")
    assert main(["export", str(SAMPLE), "--to", "wandb", "-o", str(tmp_path / "out")]) == 0
    view = load(SAMPLE).history.view()
    assert (
        list(wandb.rows) == [0, *view.series("optim/lr").steps.tolist()] and wandb.about["settings"]["x_disable_stats"]
    )
    assert wandb.rows[7]["reward/mean"] == view.series("reward/mean").between(7, 7).values[0]
    assert wandb.rows[7]["train/global_step"] == 7 and wandb.config["optim.lr"] == view.config("optim.lr")
    assert wandb.done and os.environ["WANDB_MODE"] == "online", "what the user has set is as it was"


def test_mlflow_gets_no_more_numbers_at_once_than_it_takes(tmp_path, monkeypatch) -> None:
    batches: list[list[Any]] = []

    class Client:
        def __init__(self, tracking_uri: str):
            assert tracking_uri.startswith("sqlite:///") and str(tmp_path) in tracking_uri

        def create_experiment(self, name: str, artifact_location: str) -> str:
            return name

        def create_run(self, experiment: str, **about: Any) -> SimpleNamespace:
            return SimpleNamespace(info=SimpleNamespace(run_id="1"))

        def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
            assert len(metrics) <= 1000 and len(params) <= 100
            batches.append(list(metrics))

        def set_terminated(self, run: str, end_time: int) -> None:
            batches.append([])

    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(entities=entities))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", SimpleNamespace(MlflowClient=Client))
    assert main(["export", str(SAMPLE), "--to", "mlflow", "-o", str(tmp_path / "out")]) == 0
    logged = {(name, step): value for batch in batches for name, value, _, step in batch}
    view = load(SAMPLE).history.view()
    assert len(logged) == sum(len(view.series(name)) for name in view.names())
    assert logged["reward/mean", 7] == view.series("reward/mean").between(7, 7).values[0]


def test_trackio_keeps_its_project_in_the_folder_and_what_it_says_off_the_json(tmp_path, monkeypatch, capsys) -> None:
    rows: dict[int, dict[str, float]] = {}
    kept = []
    tool = SimpleNamespace(
        init=lambda **about: kept.append(os.environ["TRACKIO_DIR"]) or print("* trackio says hello"),
        log=lambda values, step: rows.setdefault(step, values),
        finish=lambda: kept.append("finished"),
    )
    monkeypatch.setitem(sys.modules, "trackio", tool)
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    assert main(["export", str(SAMPLE), "--to", "trackio", "-o", str(tmp_path / "out"), "--json"]) == 0
    assert kept == [str(tmp_path / "out"), "finished"] and len(rows) == 121 and "TRACKIO_DIR" not in os.environ
    assert json.loads(capsys.readouterr().out)["steps"] == 121


@pytest.mark.parametrize(("run", "said"), [("addition-rescued", True), ("addition-unstable", False)])
def test_a_run_that_was_changed_while_it_trained_is_marked_as_such(tmp_path, run: str, said: bool) -> None:
    assert main(["export", str(SAMPLE.with_name(run)), "--to", "tensorboard", "-o", str(tmp_path / "tb")]) == 0
    file = next((tmp_path / "tb").iterdir()).read_bytes()
    assert b"optim.lr" in file and (b"not a plain run" in file) == said
