"""The page Setup: what changed, what a run was made with, and how its settings differ from another run's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from page_client import CALM, RUN, Client
from synthetic_run import healthy
from test_incident_page import words

from dashboards.app import build
from dashboards.data.setup import different, settings
from stabilizer.runs.identity import git_state

SAMPLES = Path(__file__).parent.parent / "trainers" / "tool_samples"
HOSTILE = "<script>window.pwned=1</script>"


def edited(folder: Path, run: str, **config) -> None:
    path = folder / run / "run.json"
    about = json.loads(path.read_text())
    about["config"] = {**about["config"], **config}
    path.write_text(json.dumps(about))


def test_settings_are_listed_with_command_and_versions(client, runs_folder) -> None:
    edited(runs_folder, CALM, optim={"lr": 0.123456, "betas": [0.9, 0.99]}, note=HOSTILE)
    text = words(client.open("/setup", f"?run={CALM}"))
    assert "optim.lr" in text and "0.123456" in text and "[0.9, 0.99]" in text and HOSTILE in text
    assert "What changed" in text and "versions" in text and "python" in text


@pytest.mark.parametrize(
    ("trainer", "argv", "command"),
    [
        ("trl", ["python", "train.py", "--lr", "1e-6"], "python train.py --lr 1e-6"),
        ("stabilizer", ["train", "addition"], "stabilizer train addition"),
    ],
)
def test_the_command_of_a_run_is_that_of_its_own_program(client, runs_folder, trainer, argv, command) -> None:
    path = runs_folder / CALM / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "trainer": trainer, "argv": argv}))
    text = words(client.open("/setup", f"?run={CALM}"))
    assert command in text and f"stabilizer {command}" not in text


def test_a_search_narrows_the_settings_and_another_run_shows_the_differences(client, runs_folder) -> None:
    edited(runs_folder, CALM, optim={"lr": 0.5}, alike=1)
    edited(runs_folder, RUN, optim={"lr": 0.25}, alike=1)
    given = {"setup-search.value": "lr", "setup-other.value": None, "setup-run.data": CALM}
    text = words(client.call("setup-table", "setup-search.value", given)["setup-table"]["children"])
    assert "optim.lr" in text and "alike" not in text
    given = {"setup-search.value": "", "setup-other.value": RUN, "setup-run.data": CALM}
    text = words(client.call("setup-table", "setup-other.value", given)["setup-table"]["children"])
    assert "0.5" in text and "0.25" in text and "alike" not in text


@pytest.mark.parametrize("search", ["x" * 10_000, HOSTILE, 7, None, ["a"]])
def test_an_odd_search_or_run_is_answered(client, search) -> None:
    given = {"setup-search.value": search, "setup-other.value": search, "setup-run.data": search}
    assert client.call("setup-table", "setup-search.value", given)["setup-table"]["children"]


def test_differences_name_keys_that_are_missing() -> None:
    one = settings({"config": {"a": 1, "b": {"c": 2}}})
    assert different(one, settings({"config": {"a": 1, "d": 3}})) == [("b.c", "2", "–"), ("d", "–", "3")]


def test_git_says_commit_branch_and_uncommitted_changes(tmp_path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True,
            capture_output=True,
        )  # fmt: skip

    assert git_state(tmp_path) == {}
    git("init", "-b", "work")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "one")
    clean = git_state(tmp_path)
    assert len(clean["commit"]) == 40 and clean["branch"] == "work" and clean["dirty"] is False
    (tmp_path / "file").write_text("2")
    assert git_state(tmp_path)["dirty"] is True


def test_a_new_run_records_its_code(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = healthy(tmp_path / "one")
    run.close()
    assert "git" not in json.loads((tmp_path / "one" / "run.json").read_text())


def test_saved_states_are_listed(client, runs_folder) -> None:
    for step in (10, 20):
        (runs_folder / CALM / "checkpoints" / f"step-{step:08}-a0").mkdir(parents=True)
    assert "after steps 10, 20" in words(client.open("/setup", f"?run={CALM}"))


def test_the_end_of_a_log_of_text_is_shown_without_its_secrets(tmp_path) -> None:
    log = tmp_path / "train.log"
    told = f"\x1b[31m{HOSTILE}\nAPI_KEY=sk-abcdef0123456789 out of memory\n"
    log.write_text((SAMPLES / "easyr1.log").read_text() + told)
    client = Client(build([log]))
    client.app.runs.logs.settle()
    text = words(client.open("/setup", f"?run={next(iter(client.app.runs.scan()))}"))
    assert "End of the log" in text and HOSTILE in text and "out of memory" in text
    assert "sk-abcdef" not in text and "\x1b" not in text
    assert "  step: 75.25\n" in text and "adv_estimator: grpo" not in text  # the end of it alone, as it is indented
