"""README and docs describe what is there: links resolve, commands are understood, shown output is real, Python runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import stabilizer
from stabilizer.cli import VERBS, build_parser

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.md")])
PAGES = [page for page in PAGES if "reference" not in page.parts and "_build" not in page.parts]
README_LINES = 150
ENTRY_WORDS = 25
"""Words of a CHANGELOG entry at most."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


COMMANDS = sorted({
    line.split("  #")[0].strip()
    for page in PAGES
    for block in blocks(page, "sh")
    for line in block.splitlines()
    if line.startswith("stabilizer ")
})  # fmt: skip
PYTHON = [(page, block) for page in PAGES for block in blocks(page, "python")]
SHOWN = re.findall(r"```sh\n(stabilizer [^\n]*)\n```\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str) -> None:
    words = shlex.split(command.replace("PATH [PATH ...]", "PATH").replace("DIR [DIR ...]", "DIR"))[1:]
    args = build_parser(words[0]).parse_args(words)
    assert args.verb in VERBS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"(?:\]\(|(?:src|srcset)=\")([^)\"\s]+)[)\"]", page.read_text(encoding="utf-8")):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if "reference" in linked.parts:
            continue  # generated when the documentation is built
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {title.lower().replace(" ", "-") for title in titles}, f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_and_make_targets_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # names what there was
    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
        assert f"\n{target}:" in makefile, target
    for path in re.findall(r"`((?:stabilizer|dashboards|sample_runs|tests|bench)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("command,shown", SHOWN)
def test_shown_output_is_what_the_command_prints(command: str, shown: str) -> None:
    words = shlex.split(command.split("  #")[0])
    environment = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    for line in shown.splitlines():
        assert line.strip() in ("", "...") or line.rstrip() in printed, line
    assert len(SHOWN) == 2


@pytest.mark.parametrize("page,code", PYTHON, ids=[f"{page.stem}{n}" for n, (page, _) in enumerate(PYTHON)])
def test_python_examples_run(page: Path, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = '"optim.lr=2e-4", "steps=3", "rollout.prompts=4", "rollout.group_size=4", "validation.problems=8"'
    code = code.replace('"optim.lr=2e-4"', small).replace('Path("runs")', f"Path({str(tmp_path)!r})")
    monkeypatch.chdir(ROOT)
    exec(compile(code, page.name, "exec"), {})  # noqa: S102 (our own documentation)


def test_the_newest_change_is_this_version_and_entries_are_short() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) — (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    assert newest and newest[1] == stabilizer.__version__
    assert f'version = "{newest[1]}"' in (ROOT / "pyproject.toml").read_text()
    entries = re.findall(r"^- (.*?)(?=\n- |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert entries and [entry for entry in entries if len(entry.split()) > ENTRY_WORDS] == []


def test_the_documentation_builds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "reference" / "detectors.html").stat().st_size > 10_000


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in set(stabilizer.__all__) - {"__version__"}:
        assert f"stabilizer.{name}" in page, name
        assert getattr(stabilizer, name) is not None
