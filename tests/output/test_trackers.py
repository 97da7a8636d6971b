"""A run's metrics in the formats of other tools: what is written is read back, and nothing is sent anywhere."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stabilizer.analysis.analyse import analyse
from stabilizer.cli import main
from stabilizer.trainers.reading import load

SAMPLE = Path(__file__).resolve().parents[2] / "sample_runs" / "addition-unstable"


def log(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_what_tensorboard_is_given_is_the_run_and_is_diagnosed_as_it(tmp_path, capsys) -> None:
    assert main(["export", str(SAMPLE), "--to", "tensorboard", "-o", str(tmp_path / "tb")]) == 0
    assert "tensorboard --logdir" in capsys.readouterr().out
    run, copy = load(SAMPLE), load(tmp_path / "tb")
    ours, theirs = run.history.view(), copy.history.view()
    assert copy.source.trainer == "stabilizer-export" and not copy.source.skipped_lines
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
    __file__ = "wandb.py"

    def init(self, *, mode: str, dir: str, config: dict[str, Any], **about: Any) -> Wandb:
        assert mode == "offline" == os.environ["WANDB_MODE"] and "WANDB_RUN_ID" not in os.environ
        self.dir, self.config, self.about = dir, config, about
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.rows[step] = values

    def finish(self) -> None:
        self.done = True


def test_wandb_is_asked_for_an_offline_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", wandb := Wandb())
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_RUN_ID", "another")
    assert main(["export", str(SAMPLE), "--to", "wandb", "-o", str(tmp_path / "out")]) == 0
    view = load(SAMPLE).history.view()
    assert (
        list(wandb.rows) == [0, *view.series("optim/lr").steps.tolist()] and wandb.about["settings"]["x_disable_stats"]
    )
    assert wandb.rows[7]["reward/mean"] == view.series("reward/mean").between(7, 7).values[0]
    times = view.times()
    assert wandb.rows[7]["_timestamp"] == times.values[times.steps.tolist().index(7)]
    assert wandb.rows[7]["train/global_step"] == 7 and wandb.config["optim.lr"] == view.config("optim.lr")
    assert wandb.done and os.environ["WANDB_MODE"] == "online" and os.environ["WANDB_RUN_ID"], (
        "what the user has set is as it was"
    )


def mlflow(monkeypatch) -> tuple[list[list[Any]], dict[str, str]]:
    """A stand-in for MLflow that refuses what it does: the batches of metrics it got, and the parameters."""
    batches: list[list[Any]] = []
    settings: dict[str, str] = {}

    def sound(name: str) -> bool:
        return bool(re.fullmatch(r"[/\w.\- ]{1,250}", name)) and os.path.normpath(name) == name and name[0] not in "./"

    class Client:
        def __init__(self, tracking_uri: str):
            assert tracking_uri.startswith("sqlite:////")

        def create_experiment(self, name: str, artifact_location: str) -> str:
            return name

        def create_run(self, experiment: str, **about: Any) -> SimpleNamespace:
            return SimpleNamespace(info=SimpleNamespace(run_id="1"))

        def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
            assert len(metrics) <= 1000 and len(params) <= 100
            assert all(sound(name) for name, *_ in (*metrics, *params)) and all(len(text) <= 6000 for _, text in params)
            batches.append(list(metrics))
            settings.update(params)

        def set_terminated(self, run: str, end_time: int) -> None:
            batches.append([])

    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(entities=entities, __file__="mlflow.py"))
    tracking = SimpleNamespace(MlflowClient=Client, __file__="tracking.py")
    monkeypatch.setitem(sys.modules, "mlflow.tracking", tracking)
    return batches, settings


def test_mlflow_gets_no_more_numbers_at_once_than_it_takes(tmp_path, monkeypatch) -> None:
    batches, settings = mlflow(monkeypatch)
    assert main(["export", str(SAMPLE), "--to", "mlflow", "-o", str(tmp_path / "out")]) == 0
    logged = {(name, step): value for batch in batches for name, value, _, step in batch}
    view = load(SAMPLE).history.view()
    assert len(logged) == sum(len(view.series(name)) for name in view.names())
    assert logged["reward/mean", 7] == view.series("reward/mean").between(7, 7).values[0]
    assert settings["optim.lr"] == str(view.config("optim.lr"))


def test_names_that_mlflow_refuses_are_written_as_it_takes_them_and_stay_apart(tmp_path, monkeypatch) -> None:
    odd = [
        "val/gsm8k/pass@4",
        "loss(total)",
        "loss[total]",
        "/a//b/",
        "../up",
        "...",
        "x" * 300,
        "x" * 301,
        "\u2603 \n",
    ]
    batches, settings = mlflow(monkeypatch)
    path = log(tmp_path / "log.jsonl", *({"step": step, "reward": 0.1} | dict.fromkeys(odd, 1.0) for step in (1, 2)))
    assert main(["export", str(path), "--to", "mlflow", "-o", str(tmp_path / "out")]) == 0
    logged = [(name, step) for batch in batches for name, _, _, step in batch]
    assert len(logged) == len(set(logged)) == 2 * (len(odd) + 1)
    assert any(name.endswith("val/gsm8k/pass_at_4") for name, _ in logged), "as trainers write it, and it is read back"


def test_trackio_keeps_its_project_in_the_folder_and_what_it_says_off_the_json(tmp_path, monkeypatch, capsys) -> None:
    rows: dict[int, dict[str, float]] = {}
    kept = []
    for server in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_DATASET_ID", "TRACKIO_BUCKET_ID"):
        monkeypatch.setenv(server, "somewhere")
    tool = SimpleNamespace(
        __file__="trackio.py",
        init=lambda **about: (
            kept.append([os.environ[name] for name in os.environ if name.startswith("TRACKIO_")])
            or print("* trackio says hello")
        ),
        log=lambda values, step: rows.setdefault(step, values),
        finish=lambda: kept.append("finished"),
    )
    monkeypatch.setitem(sys.modules, "trackio", tool)
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    assert main(["export", str(SAMPLE), "--to", "trackio", "-o", str(tmp_path / "out"), "--json"]) == 0
    assert kept == [[str(tmp_path / "out")], "finished"], "no server is left to be found"
    assert len(rows) == 121 and "TRACKIO_DIR" not in os.environ
    assert json.loads(capsys.readouterr().out)["steps"] == 121


@pytest.mark.parametrize(("run", "said"), [("addition-rescued", True), ("addition-unstable", False)])
def test_a_run_that_was_changed_while_it_trained_is_marked_as_such(tmp_path, run: str, said: bool) -> None:
    assert main(["export", str(SAMPLE.with_name(run)), "--to", "tensorboard", "-o", str(tmp_path / "tb")]) == 0
    file = next((tmp_path / "tb").iterdir()).read_bytes()
    assert b"optim.lr" in file and (b"not a plain run" in file) == said


def test_what_looks_like_a_secret_is_in_no_export(tmp_path) -> None:
    path = log(tmp_path / "log.jsonl", *({"step": step, "reward": 0.1} for step in range(1, 9)))
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra/config.yaml").write_text("wandb: {api_key: sk-THE}\nhf_token: hf_THE\nlr: 0.1\n")
    assert main(["export", str(path), "--to", "tensorboard", "-o", str(tmp_path / "tb")]) == 0
    file = next((tmp_path / "tb").iterdir()).read_bytes()
    assert b"| lr | 0.1 |" in file and b"api_key" in file and b"sk-THE" not in file and b"hf_THE" not in file


def test_a_folder_that_is_called_like_a_tool_is_not_taken_for_it(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    assert main(["export", str(SAMPLE), "--to", "wandb", "-o", str(tmp_path / "out")]) == 2
    assert "pip install wandb" in capsys.readouterr().err


@pytest.mark.parametrize("there", [True, False])
def test_an_export_that_fails_leaves_nothing_and_can_be_asked_for_again(tmp_path, monkeypatch, capsys, there) -> None:
    def init(**about: Any) -> None:
        (tmp_path / "out" / "wandb").mkdir()
        (tmp_path / "out" / "wandb" / "half").touch()
        raise TypeError("unexpected keyword argument 'settings'")

    old = SimpleNamespace(__file__="wandb.py", __version__="0.1", Settings=dict, init=init)
    monkeypatch.setitem(sys.modules, "wandb", old)
    if there:
        (tmp_path / "out").mkdir()
    assert main(["export", str(SAMPLE), "--to", "wandb", "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "wandb 0.1" in said and "pip install --upgrade wandb" in said and "bug" not in said
    assert (tmp_path / "out").exists() == there and (not there or not any((tmp_path / "out").iterdir()))


def test_runs_whose_names_differ_after_a_dot_have_folders_of_their_own(tmp_path) -> None:
    for name in ("exp-0.1", "exp-0.2"):
        shutil.copytree(SAMPLE, tmp_path / name)
        assert main(["export", str(tmp_path / name), "--to", "tensorboard"]) == 0
    assert (tmp_path / "exp-0.1-tensorboard").is_dir() and (tmp_path / "exp-0.2-tensorboard").is_dir()


def test_a_knob_that_a_person_turned_and_declared_is_not_held_against_the_copy(tmp_path) -> None:
    rows = [{"step": step, **{name: 1.0 for name in ("control/lr_scale", "batch/updates")}, "reward/zero_std_frac": 0.2,
             "reward/mean": 0.2 + step / 300 + 0.01 * (step % 3), "control/prompts": 32.0 if step < 60 else 24.0}
            for step in range(1, 121)]  # fmt: skip
    copy = load(log(tmp_path / "log.jsonl", *rows))
    assert copy.source.trainer == "stabilizer-export" and not analyse(copy).findings


@pytest.mark.parametrize("to", ["csv", "tensorboard"])
def test_a_run_is_exported_from_where_one_stands_and_with_its_whole_name(tmp_path, monkeypatch, to: str) -> None:
    shutil.copytree(SAMPLE, tmp_path / "lr0.5")
    monkeypatch.chdir(tmp_path / "lr0.5")
    assert main(["export", ".", "--to", to]) == 0
    assert (tmp_path / ("lr0.5.csv" if to == "csv" else "lr0.5-tensorboard")).exists()
