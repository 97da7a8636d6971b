"""The README describes what is there today: its commands exist, its table is the list, its Python runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stabilizer.cli import VERBS, build_parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
    if line.startswith("stabilizer ")
]


def test_the_detector_table_is_the_list_of_detectors() -> None:
    from stabilizer.commands.detectors import markdown

    table = README.split("checked by a test -->\n", 1)[1].split("\n<!-- /detectors -->", 1)[0]
    assert table == markdown()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str) -> None:
    words = shlex.split(command)[1:]
    args = build_parser(words[0]).parse_args(words)
    assert args.verb in VERBS


def test_make_targets_and_files_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile, target
    for path in re.findall(r"`((?:stabilizer|dashboards|sample_runs|tests)/[\w/.]+)`", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r'(?:src|srcset)="([^"]+)"', README):
        assert (ROOT / path).stat().st_size > 10_000, path


def test_the_python_example_runs(tmp_path, monkeypatch, capsys) -> None:
    (code,) = [block for language, block in BLOCKS if language == "python"]
    small = '"optim.lr=2e-4", "rollout.prompts=4", "rollout.group_size=4", "validation.problems=8"'
    code = code.replace('"optim.lr=2e-4"', small).replace('"addition", [', '"addition", steps=3, overrides=[')
    assert "PLACEHOLDER" not in README
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert list((tmp_path / "runs").glob("*-mine-*/run.json"))
