"""A key that stands twice is said with both lines, wherever a configuration is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stabilizer.cli import main
from stabilizer.configs.yaml_keys import KeyTwice, load
from stabilizer.trainers.reading import load as read_log

LOG = Path(__file__).parents[1] / "trainers" / "samples" / "trl-transformers-5.log"


def test_a_repeated_key_is_refused_with_both_lines() -> None:
    with pytest.raises(KeyTwice, match="'b' stands in line 3 and again in line 5"):
        load("a:\n  c: 1\n  b: 2\n  d: 3\n  b: 4\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: {x: 1}\nb: {x: 2}\n", {"a": {"x": 1}, "b": {"x": 2}}),
        ("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n", {"a": {"x": 1}, "b": {"x": 2}}),
        ("a: &a {x: 1}\nb: &b\n  <<: *a\n  x: 2\nc:\n  <<: *b\n  x: 3\n", None),
        ("1: a\n'1': b\n", {1: "a", "1": "b"}),
        ("[1, 1]", [1, 1]),
    ],
)
def test_keys_that_only_look_repeated_are_read(text: str, value: object) -> None:
    assert load(text) == value or value is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("config.yaml", "beta: 0.0\nlogging_steps: 1\nbeta: 0.1\n", "'beta' stands in line 1 and again in line 3"),
        ("config.json", '{"beta": 0.0,\n "logging_steps": 1,\n "beta": 0.1}', "'beta' stands twice in one object"),
        ("config.toml", "beta = 0.0\nbeta = 0.1\n", "not readable as TOML"),
    ],
)
def test_the_configuration_of_diagnose_is_refused_when_it_contradicts_itself(tmp_path, capsys, name, text, said):
    config = tmp_path / name
    config.write_text(text)
    assert main(["diagnose", str(LOG), "--config", str(config)]) == 2
    told = capsys.readouterr().err
    assert said in told and str(config) in told and len(told.splitlines()) == 1
    assert name == "config.toml" or "delete one" in told


def test_a_repeated_key_beside_a_log_is_only_a_note(tmp_path) -> None:
    rows = [{"step": step, "reward": 0.1, "loss": 0.0} for step in range(1, 40)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows, "global_step": 39}))
    (tmp_path / "config.yaml").write_text("num_generations: 8\nbeta: 0.0\nbeta: 0.1\n")
    notes = read_log(tmp_path).source.notes
    assert any("configuration not read" in note and "line 2 and again in line 3" in note for note in notes)


def test_our_own_trainer_refuses_a_repeated_key_before_it_starts(tmp_path, capsys) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("task: addition\nrollout:\n  prompts: 4\n  prompts: 8\n")
    assert main(["train", str(config), "--runs", str(tmp_path / "runs")]) == 2
    assert "'prompts' stands in line 3 and again in line 4" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_preflight_reports_both_lines_and_checks_the_last(tmp_path, capsys) -> None:
    config = tmp_path / "grpo.yaml"
    config.write_text("num_generations: 8\nlearning_rate: 1.0e-6\nbeta: 0.04\nlearning_rate: 1.0e-1\n")
    assert main(["preflight", str(config), "--trainer", "trl", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    found = {finding["id"]: finding for finding in told["findings"]}
    assert found["keys/repeated"]["location"]["line"] == 4 and "line 2 (1.0e-6)" in found["keys/repeated"]["summary"]
    assert found["lr/range"]["location"]["line"] == 4
