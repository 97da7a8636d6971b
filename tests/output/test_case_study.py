"""Case studies: each recorded run tells its whole story on one page, and a story that can't be read stops nothing."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import pytest

from stabilizer.analysis.analyse import analyse
from stabilizer.output.report import html
from stabilizer.output.report.case_study import against, case_of, read, rows
from stabilizer.trainers.reading import load
from tests.analysis.test_diagnose import HOSTILE
from tests.output.test_report import Page

SAMPLES = Path(__file__).parents[2] / "sample_runs"
CASES = sorted(path.parent for path in SAMPLES.glob("*/case.toml"))
TRAINED = [path for path in CASES if (path / "arms.json").exists() and read(path).trials]
KEYS = {
    "case-easyr1": ("worker.actor.global_batch_size", "data.rollout_batch_size"),
    "case-trl-beta0": ("scale_rewards", "beta=0.001"),
    "case-search-r1": ("data.train_batch_size", "ppo_micro_batch_size"),
}
RULES = {
    "case-easyr1": {"batch/too-few-prompts", "kl/placement", "lr/conservative", "watching/sparse"},
    "case-trl-beta0": {"kl/no-anchor", "updates/off-policy"},
    "case-search-r1": {"batch/smaller-than-recipe", "lr/warmup-long"},
}


def written(folder: Path, story: str, numbers: object = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "case.toml").write_text(story)
    if numbers is not None:
        (folder / "arms.json").write_text(numbers if isinstance(numbers, str) else json.dumps(numbers))
    return folder


def arm(name: str, values: list[list[float]], completions: list[float]) -> dict:
    seeds = list(range(len(values)))
    return {"name": name, "seeds": seeds, "steps": [1, 2, 3, 4], "completions": completions, "values": values}


def test_the_three_cases_of_training_are_there() -> None:
    assert {path.name for path in TRAINED} == set(KEYS) == set(RULES)


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.name)
def test_a_case_is_complete_and_small(path: Path) -> None:
    case = read(path)
    assert case.problems == () and case.title and case.saw and case.changed and case.happened and case.limits
    assert {finding.id for finding in case.checked.findings} >= RULES[path.name]
    assert all(any(key in step for step in case.do) for key in KEYS[path.name])
    assert case.trials and all(len(arm.seeds) >= 3 for trial in case.trials for arm in trial.arms)
    assert min(seed for trial in case.trials for arm in trial.arms for seed in arm.seeds) >= 10
    assert sum(file.stat().st_size for file in path.rglob("*") if "__pycache__" not in file.parts) < 900_000


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.name)
def test_its_report_tells_it_beside_the_controls(path: Path) -> None:
    page = Page(html(analyse(load(path))))
    case = read(path)
    for shown in (f"Case: {case.title}", *KEYS[path.name], *RULES[path.name], *(a.name for a in case.trials[0].arms)):
        assert shown in page.shown
    figures = json.loads(page.scripts[0][1])["figures"]
    assert len(figures["case-0"]["data"]) == sum(len(arm.seeds) + 1 for arm in case.trials[0].arms)


def test_easyr1_the_batch_was_grown_first_and_stayed() -> None:
    run = load(SAMPLES / "case-easyr1")
    assert [(a.entry, a.remedy) for a in run.actions][-2:] == [("applied", "grow-batch"), ("verified", "grow-batch")]
    assert {a.remedy for a in run.actions} == {"grow-batch"}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_a_story_is_whole(path: Path) -> None:
    case = read(path)
    assert case.problems == ()
    assert case.title and case.saw and case.advice and case.limits and case.do and case.checked


def test_numbers_of_the_text_come_from_the_measurements(tmp_path) -> None:
    plain, more = arm("nothing", [[0.2] * 4] * 2, [1, 2, 3, 4]), arm("more", [[0.5] * 4] * 2, [1, 2, 3, 4])
    seen = {"name": "halved", "settings": [], "present": [True, False], "numbers": {"swing": [1.0, 2.0]}}
    numbers = {
        "symptom": {"title": "t", "what": "w", "arms": [seen]},
        "trials": [{"title": "t", "metric": "m", "arms": [plain, more]}],
    }
    case = read(written(tmp_path / "case", "saw = 'in {seen in halved}: {level of more}, {gain of more}'", numbers))
    assert case.saw == ("in 1 of 2: 0.50, +0.300 ± 0.000",) and case.problems == ()
    case = read(written(tmp_path / "case", "saw = 'only {gain of less}'", numbers))
    assert case.saw == ("only {gain of less}",) and "{gain of less} names no measurement" in case.problems[0]


def test_a_run_without_a_story_has_no_case() -> None:
    run = load(SAMPLES / "length-healthy")
    assert case_of(run) is None and "id=case" not in html(analyse(run))


def test_hostile_stories_stay_text(tmp_path) -> None:
    shutil.copytree(SAMPLES / "length-healthy", tmp_path / "run")
    bad = arm(HOSTILE, [[1, 2, 3, 4]], [1, 2, 3, 4])
    trial = {"title": HOSTILE, "note": HOSTILE, "metric": HOSTILE, "arms": [bad]}
    numbers = {"trials": [trial], "measured": {HOSTILE: HOSTILE}}
    text = json.dumps(HOSTILE)
    story = f"title = {text}\nsaw = {text}\ndo = [{text}]\nconfig = '../run.json'\n"
    written(tmp_path / "run", story, numbers)
    page = Page(html(analyse(load(tmp_path / "run"))))
    assert len(page.scripts) == 3 and "alert(1)" in page.shown
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert [tag for tag, _ in page.tags if tag in ("img", "iframe", "object")] == []


@pytest.mark.parametrize(
    "story,numbers",
    [
        ("title = ", None),
        ("title = 'x'\nsaw = 3\ndo = 'one'\nsaid = 4\nconfig = 'absent.yaml'", "{"),
        ("title = 'x'", [1]),
        ("title = 'x'", {"trials": 3}),
        ("title = 'x'", {"symptom": {"title": "t", "what": "w", "arms": []}}),
        ("title = 'x'", {"symptom": {"title": "t", "what": "w", "arms": [{"name": "a"}]}}),
        ("title = 'x'", {"trials": [{"title": "t", "metric": "m", "arms": [{"name": "a"}]}]}),
        ("title = 'x'", {"trials": [{"title": "t", "metric": "m", "arms": [arm("a", [[1, 2]], [1])]}]}),
    ],
)
def test_what_cannot_be_read_is_said_and_stops_nothing(tmp_path, story, numbers) -> None:
    case = read(written(tmp_path / "case", story, numbers))
    assert case.problems and not case.trials


def test_differences_are_taken_seed_by_seed() -> None:
    # gaps 1, 2, 3: mean 2, deviation 1, t(2) = 4.30: half = 4.30 / sqrt(3)
    told = against([0, 10, 20], [1, 12, 23])
    assert told.mean == 2 and told.half == pytest.approx(4.30 / math.sqrt(3))
    assert against([1], [2]).half == math.inf and against([1, 2], [1]) is None


def test_an_arm_that_spends_more_is_also_judged_at_equal_completions(tmp_path) -> None:
    plain = arm("nothing", [[1, 1, 1, 1], [1, 1, 1, 1]], [10, 20, 30, 40])
    large = arm("more", [[2, 3, 5, 6], [2, 3, 5, 6]], [20, 40, 60, 80])
    numbers = {"trials": [{"title": "t", "metric": "m", "arms": [plain, large]}]}
    table = rows(read(written(tmp_path / "case", "title = 'x'", numbers)).trials[0])
    # the last three of all: (3 + 5 + 6) / 3 - 1; of those within 40 completions: (2 + 3) / 2 - 1
    assert table[1][3:5] == ("+3.667 ± 0.000", "+1.500 ± 0.000") and table[1][5] == "80"


@pytest.mark.parametrize("value", ["1e999", "NaN", "1e308", "9" * 400])
def test_numbers_nobody_can_have_measured_are_said_and_stop_nothing(tmp_path, value) -> None:
    arm = f'{{"name": "a", "seeds": [1, 2], "steps": [1], "completions": [1], "values": [[{value}], [{value}]]}}'
    numbers = f'{{"trials": [{{"title": "t", "metric": "m", "arms": [{arm}, {arm}]}}]}}'
    case = read(written(tmp_path / "case", 'title = "x"', numbers))
    assert not case.trials and "not as expected" in case.problems[0]
    seeds = numbers.replace(value, "1").replace('"seeds": [1, 2]', '"seeds": [1e999, 2]')
    assert not read(written(tmp_path / "case", 'title = "x"', seeds)).trials


def test_what_is_no_file_is_not_opened_and_what_is_no_text_not_believed(tmp_path) -> None:
    folder = written(tmp_path / "case", 'config = "c.json"\n[said]\nversion = ["x"]')
    (folder / "c.json").write_text('{"learning_rate": 1e-5}')
    os.mkfifo(folder / "arms.json")
    problems = " ".join(read(folder).problems)
    assert "no plain file" in problems and "said.version is no text" in problems
    assert read(written(tmp_path / "case", 'config = ".."')).checked is None
