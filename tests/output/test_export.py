"""A run's policy and metrics for other programs."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from stabilizer.cli import main
from stabilizer.live.session import Session
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer

SMALL = ["rollout.prompts=4", "rollout.group_size=4", "validation.problems=16", "validation.every=2", "device=cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    session = Session.start(load_config("addition", SMALL, steps=6), path)
    list(session.run())
    return path


def test_an_exported_model_loads_and_says_what_the_policy_says(trained, tmp_path, capsys):
    assert main(["export", str(trained), "-o", str(tmp_path / "out"), "--checkpoint", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 6
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    session = Session.start(load_config("addition", SMALL, steps=6), tmp_path / "again")
    list(session.run())  # the same seed: the same weights
    ids = torch.tensor([tokenizer("37+58=")["input_ids"]])
    assert torch.allclose(model(ids).logits, session.trainer.policy.model(ids).logits, atol=1e-6)


def test_the_card_holds_configuration_verdict_and_plot(trained, tmp_path):
    assert main(["export", str(trained), "-o", str(tmp_path / "out")]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front)["tags"][:2] == ["stabilizer", "reinforcement-learning"]
    assert "**Verdict on the run: too-short**" in body and "training.svg" in body and '"group_size": 4' in body
    assert "`accuracy/val`" in body
    assert (tmp_path / "out" / "training.svg").read_text().count("<polyline") == 2


def test_the_best_state_is_taken_unless_another_is_asked_for(trained, tmp_path, capsys):
    assert main(["export", str(trained), "-o", str(tmp_path / "best"), "--json"]) == 0
    step = json.loads(capsys.readouterr().out)["step"]
    assert step in (0, 2, 4, 6)
    assert main(["export", str(trained), "-o", str(tmp_path / "first"), "--checkpoint", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--checkpoint", "77"], "there are best, last, 0"), (["--checkpoint", "newest"], "no checkpoint 'newest'")],
)
def test_what_is_not_there_is_refused_with_what_is(trained, tmp_path, capsys, words, said):
    assert main(["export", str(trained), "-o", str(tmp_path / "out"), *words]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_nothing_is_overwritten(trained, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    assert main(["export", str(trained), "-o", str(tmp_path / "mine")]) == 2
    assert "not empty" in capsys.readouterr().err


def test_metrics_as_a_table(trained, tmp_path, capsys):
    out = tmp_path / "metrics.csv"
    assert main(["export", str(trained), "--to", "csv", "-o", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert [row["step"] for row in rows] == ["0", "1", "2", "3", "4", "5", "6"]
    assert rows[0]["accuracy/val"] and not rows[0]["reward/mean"] and float(rows[3]["reward/mean"]) >= 0
    assert main(["export", str(trained), "--to", "csv", "-o", str(out)]) == 2
    deep = tmp_path / "a" / "b" / "metrics.csv"
    assert main(["export", str(trained), "--to", "csv", "-o", str(deep)]) == 0
    assert deep.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("to", ["csv", "model", "tensorboard"])
def test_nothing_is_written_into_a_run_directory(trained, tmp_path, capsys, monkeypatch, to):
    before = sorted(trained.rglob("*"))
    monkeypatch.chdir(trained)
    assert main(["export", ".", "--to", to, "-o", "out"]) == 2
    assert f"inside the run directory {trained}" in capsys.readouterr().err
    assert sorted(trained.rglob("*")) == before


@pytest.mark.parametrize(
    ("step", "best", "said"),
    [(4, 4, ""), (0, 0, "no validation was better than the first"), (6, 4, "whose checkpoint is not kept")],
)
def test_a_best_policy_that_is_not_what_the_word_promises_says_so(step, best, said):
    from stabilizer.output.export_model import _note

    note = _note(step, best, compared=True)
    assert said in note and bool(note) == bool(said)


def test_of_a_run_without_validations_the_newest_policy_is_taken_and_not_the_untrained_one(tmp_path, capsys):
    run = tmp_path / "run"
    list(Session.start(load_config("addition", [*SMALL, "validation.every=0"], steps=2), run).run())
    assert main(["export", str(run), "-o", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == 2 and "never validated" in told["note"]


def test_the_policy_a_run_starts_from_stays_the_best_while_training_does_no_better(tmp_path, monkeypatch, capsys):
    accuracies = iter([0.5, 0.2, 0.4])
    monkeypatch.setattr(Trainer, "validate", lambda self: {"accuracy/val": next(accuracies)})
    settings = [*SMALL, "validation.patience=2"]
    session = Session.start(load_config("addition", settings, steps=20), tmp_path / "run")
    list(session.run())
    assert session.trainer.step == 4 and "no better validation than 50.0% (step 0)" in session.trainer.finished
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == 0 and "no validation was better than the first" in told["note"]


def test_no_header_of_a_table_of_metrics_is_a_formula(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"step": i, "reward": 0.1 * i, "=cmd()": 1.0}) + "\n" for i in range(30)))
    assert main(["export", str(log), "--to", "csv", "-o", str(tmp_path / "out.csv")]) == 0
    heads = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    assert any("=cmd()" in head for head in heads) and not [head for head in heads if head[:1] in "=+-@"]


def test_a_log_has_no_policy_and_is_told_of_the_table(tmp_path, capsys):
    (tmp_path / "log.csv").write_text("step,reward\n1,0.5\n2,0.5\n")
    assert main(["export", str(tmp_path / "log.csv"), "-o", str(tmp_path / "out")]) == 2
    assert "--to csv" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_run_without_checkpoints_is_told_of_the_table(trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "out")]) == 2
    assert "--to csv" in capsys.readouterr().err
