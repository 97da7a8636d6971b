"""`stabilizer runs` lists what is there, whatever is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page_client import CALM, RUN
from synthetic_run import healthy

from stabilizer.cli import main


def test_lists_runs_as_json(runs_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(runs_folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == [RUN, CALM]
    assert (rows[0]["step"], rows[0]["steps"], rows[0]["verdict"]) == (400, 500, "info")
    assert 0 < rows[0]["accuracy"] <= 1


def test_text_of_a_run_is_not_markup_and_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "[bold red]x \x1b]52;c;eA==\x07"
    healthy(tmp_path / name, 2).close()
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "[bold red]x" in out and "\x1b]52" not in out and "\x07" not in out


def test_broken_runs_are_listed_as_such(runs_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs_folder / CALM / "run.json").write_text("{")
    (runs_folder / RUN / "summary.json").write_text('{"metrics": [], "verdict": 4}')
    assert main(["runs", str(runs_folder), "--json"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[CALM]["state"] == "unreadable" and "run.json" in rows[CALM]["problem"]
    assert rows[RUN]["verdict"] == "info", "what was found still stands"
    assert rows[RUN]["reward"] is None


def test_numbers_json_has_no_word_for_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    healthy(tmp_path / "run", 2).close()
    (tmp_path / "run" / "summary.json").write_text('{"metrics": {"reward/mean": {"last": 1e400}}}')
    assert main(["runs", str(tmp_path), "--json"]) == 0
    json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))


def test_an_empty_folder_and_a_missing_one_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert "stabilizer demo" in capsys.readouterr().out
    assert main(["runs", str(tmp_path / "nothing")]) == 2
    assert "stabilizer demo" in capsys.readouterr().err
