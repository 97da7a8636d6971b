"""What is nested too deep in one file of a run costs that file, that line or that run, and nothing beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stabilizer.cli import main
from stabilizer.core.records import Action, Finding, Sample
from stabilizer.runs import listing
from stabilizer.runs.reader import RunError, RunReader, read_records
from stabilizer.runs.writer import RunWriter
from tests.deep import DEPTHS, nested

SMALL = ("run.json", "status.json", "summary.json")
LINES = ("metrics/r0-a0.jsonl", "events.jsonl", "findings.jsonl", "actions.jsonl", "samples/000003-r0.jsonl")


def stabilizer(*words: object) -> subprocess.CompletedProcess:
    """A verb in a process of its own."""
    command = [sys.executable, "-m", "stabilizer", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "160"})
    assert "Traceback" not in done.stderr and "this is a bug" not in done.stderr, done.stderr
    return done


def written(path: Path) -> Path:
    """A short run that is over, with a line of every kind."""
    writer = RunWriter.create(path, config={"lr": 1e-5}, task="addition", steps=12, argv=[])
    for step in range(12):
        writer.metrics(step, {"reward/mean": 0.1 * step, "optim/grad_norm": 1.0, "policy/kl_ref": 0.01})
    writer.samples(3, [Sample(3, 0, "1+1=", "2", 1.0, 0.0)])
    writer.event(3, "note", "begun")
    writer.finding(Finding("optim/grad-spike", "warn", "a spike", 3, 4, 5, incident=1))
    writer.action(Action("a1", "proposed", "lower-lr", 4, incident=1))
    writer.status("finished", 11, force=True)
    writer.summary(verdict="healthy", worst=None, force=True)
    writer.close()
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder of two runs, `sound` and `damaged`, that nothing has happened to yet."""
    written(tmp_path / "sound")
    written(tmp_path / "damaged")
    return tmp_path


def damage(file: Path, levels: int) -> None:
    """Put something nested into a small file of a run, whose other settings stay as they were."""
    row = json.loads(file.read_text())
    key = {"run.json": "config", "status.json": "state", "summary.json": "metrics"}[file.name]
    file.write_text(json.dumps({**row, key: "HERE"}).replace('"HERE"', nested(levels)))


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("name", SMALL)
def test_a_damaged_run_costs_only_itself_in_the_list(runs: Path, name: str, levels: int) -> None:
    damage(runs / "damaged" / name, levels)
    done = stabilizer("runs", runs, "--json")
    rows = {row["id"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 0 and rows.keys() == {"sound", "damaged"}
    assert (rows["sound"]["state"], rows["sound"]["step"]) == ("finished", 11)
    assert (rows["damaged"]["state"] == "unreadable") == (name == "run.json")
    assert ("run.json" in rows["damaged"]["problem"]) == (name == "run.json")
    assert stabilizer("runs", runs).stdout.count("damaged") >= 1


@pytest.mark.parametrize("levels", DEPTHS)
def test_every_verb_reports_a_damaged_run_without_a_traceback(runs: Path, levels: int, capsys) -> None:
    damage(runs / "damaged" / "run.json", levels)
    bad, good = runs / "damaged", runs / "sound"
    verbs = (
        ("diagnose", bad), ("compare", bad, good), ("compare", good, bad), ("watch", bad), ("report", bad),
        ("export", bad, "--to", "csv"), ("fix", bad, "list"), ("replay", bad), ("train", "--resume", bad),
    )  # fmt: skip
    for words in verbs:
        assert main([*map(str, words)]) == 2
        told = capsys.readouterr().err
        assert "run.json" in told and "restore it" in told and "bug" not in told, words


def test_any_error_of_one_run_leaves_the_others_listed(runs: Path, capsys, monkeypatch) -> None:
    settings = listing.settings
    damage(runs / "damaged/run.json", 1)  # the configuration is {"a": 1}

    def fails(config: object) -> dict:
        if "a" in config:
            raise RuntimeError("a fault nobody thought of")
        return settings(config)

    monkeypatch.setattr(listing, "settings", fails)
    assert main(["runs", str(runs), "--json"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["sound"]["state"] == "finished" and rows["damaged"]["state"] == "unreadable"
    assert "a fault nobody thought of" in rows["damaged"]["problem"]


def test_a_sound_run_beside_a_damaged_one_is_diagnosed(runs: Path) -> None:
    damage(runs / "damaged" / "run.json", 990)
    done = stabilizer("diagnose", runs / "sound", "--json")
    assert json.loads(done.stdout)["source"]["steps"] == 12


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("name", LINES)
def test_a_nested_line_counts_as_one_damaged_line(runs: Path, name: str, levels: int) -> None:
    file = runs / "damaged" / name
    sound = file.read_bytes()
    line = {
        "metrics": '{"n": 12, "step": 12, "t": 1.0, "m": {"reward/mean": HERE}}',
        "events": '{"step": 3, "kind": "note", "text": "x", "data": HERE}',
        "findings": '{"id": "x", "severity": "warn", "summary": "x", "onset_step": 1, "detected_step": 1,'
        ' "last_step": 1, "evidence": HERE}',
        "actions": '{"action": "a2", "entry": "proposed", "remedy": "x", "step": 1, "data": HERE}',
        "samples": '{"step": 3, "group": 0, "prompt": "x", "completion": "x", "reward": 1, "advantage": 0,'
        ' "rewards": HERE}',
    }[name.partition("/")[0].partition(".")[0]]
    file.write_bytes(line.replace("HERE", nested(levels)).encode() + b"\n" + sound)
    reader = RunReader(runs / "damaged")
    samples = read_records(runs / "damaged/samples/000003-r0.jsonl", Sample)
    assert reader.skipped + samples.skipped == 1
    assert [len(found) for found in (reader.ticks, reader.events, reader.findings, reader.actions)] == [12, 1, 1, 1]
    assert len(samples.records) == 1


def test_diagnose_reports_a_deeply_nested_line(runs: Path) -> None:
    with open(runs / "damaged/events.jsonl", "a") as file:
        file.write(f'{{"step": 3, "kind": "note", "text": "x", "data": {nested(990)}}}\n')
    done = stabilizer("diagnose", runs / "damaged", "--json")
    assert json.loads(done.stdout)["source"]["skipped_lines"] == 1


@pytest.mark.parametrize("word", ["[]", "{}", '["nan"]', "1", nested(500)])
def test_a_wrong_value_in_nf_does_not_break_the_run(runs: Path, word: str) -> None:
    with open(runs / "damaged/metrics/r0-a0.jsonl", "a") as file:
        row = f'{{"n": 12, "step": 12, "m": {{"reward/mean": null}}, "nf": {{"reward/mean": {word}}}}}'
        file.write(row + "\n")
    rewards = RunReader(runs / "damaged").history.view().series("reward/mean")
    assert rewards.steps.tolist() == list(range(12))


def test_a_configuration_that_readers_would_refuse_is_not_written(tmp_path: Path) -> None:
    config: dict = {}
    for _ in range(99):
        config = {"a": config}
    with pytest.raises(ValueError, match="98 levels"):
        RunWriter.create(tmp_path / "run", config=config, argv=[])
    assert not (tmp_path / "run").exists()
    RunWriter.create(tmp_path / "run", config=config["a"]["a"], argv=[]).close()
    assert RunReader(tmp_path / "run").about["config"] == config["a"]["a"]


def test_a_run_whose_file_is_damaged_while_it_is_followed_stays_as_it_was(runs: Path) -> None:
    reader = RunReader(runs / "damaged")
    damage(runs / "damaged/run.json", 990)
    reader.refresh()
    assert reader.about["config"] == {"lr": 1e-5} and reader.history.step == 11
    with pytest.raises(RunError, match="nested more than 100 levels"):
        RunReader(runs / "damaged")


# --- logs of other trainers -------------------------------------------------------------------------------------------

ROWS = [{"step": step, "reward": 0.1 * step, "kl": 0.01} for step in range(20)]


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("name", ["log.json", "trainer_state.json", "notebook.ipynb", "log.jsonl", "dump/1.jsonl"])
def test_a_deeply_nested_log_is_refused_without_a_traceback(tmp_path: Path, name: str, levels: int, capsys) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    inner = nested(levels)
    file.write_text({
        "log.json": f'{{"reward": [0.1, 0.2], "x": {inner}}}',
        "trainer_state.json": f'{{"global_step": 1, "log_history": [{{"step": 1, "x": {inner}}}]}}',
        "notebook.ipynb": f'{{"cells": [{inner}], "nbformat": 4}}',
        "log.jsonl": f'{{"reward": {inner}}}\n' * 3,
        "1.jsonl": f'{{"input": "x", "output": "y", "score": 1, "step": 1, "more": {inner}}}\n' * 3,
    }[file.name])  # fmt: skip
    assert main(["diagnose", str(file if file.parent == tmp_path else file.parent)]) == 2
    told = capsys.readouterr().err
    assert str(tmp_path) in told and "bug" not in told


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_nested_line_of_a_log_costs_only_itself(tmp_path: Path, levels: int) -> None:
    lines = [json.dumps(row) for row in ROWS]
    lines.insert(7, f'{{"step": 6, "reward": {nested(levels)}}}')
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    told = json.loads(stabilizer("diagnose", tmp_path / "log.jsonl", "--json").stdout)["source"]
    assert (told["steps"], told["skipped_lines"]) == (20, 1)


@pytest.mark.parametrize("levels", [150, 300, 990])
def test_a_nested_value_in_a_trainer_state_costs_only_itself(tmp_path: Path, levels: int, capsys) -> None:
    text = json.dumps({"global_step": 20, "log_history": [{**row, "x": "HERE"} for row in ROWS]})
    (tmp_path / "trainer_state.json").write_text(text.replace('"HERE"', nested(levels), 1).replace("HERE", ""))
    main(["diagnose", str(tmp_path / "trainer_state.json"), "--json"])
    told = capsys.readouterr()
    assert json.loads(told.out)["source"]["steps"] == 20 and "bug" not in told.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", nested(990)), ("c.json", f'{{"x": {nested(150, "list")}}}'),
        ("c.yaml", "x: " + nested(150, "list")), ("c.toml", ".".join("a" * 5_000) + " = 1"),
        ("c.toml", "x = " + nested(150, "list")),
    ],
)  # fmt: skip
def test_a_deeply_nested_configuration_is_refused(tmp_path: Path, name: str, text: str, capsys) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    assert main(["diagnose", str(tmp_path / "log.jsonl"), "--config", str(tmp_path / name)]) == 2
    assert main(["preflight", str(tmp_path / name)]) == 2
    told = capsys.readouterr().err
    assert told.count(name) == 2 and "deep" in told and "bug" not in told


@pytest.mark.parametrize("below", ["", "group"])
def test_a_link_to_itself_beside_runs_hides_none_of_them(runs: Path, below: str) -> None:
    (runs / below).mkdir(exist_ok=True)
    (runs / below / "loop").symlink_to("loop")
    (runs / below / "nowhere").symlink_to("missing")
    assert {path.name for path in listing.list_runs(runs)} == {"sound", "damaged"}
