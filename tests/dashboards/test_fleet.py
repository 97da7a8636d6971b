"""The list of runs as plain data: what a query means, which rows come, in which order; and the files it opens."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import HOSTILE_NAME, healthy, many, silence, values

from bench.dashboard import listing
from dashboards.data.run_list import PAGE, ListSettings, compared, group_choices, run_list
from dashboards.data.run_registry import Runs
from dashboards.data.run_search import parse
from stabilizer.runs.listing import Reading, RunLine, list_runs, recipe, run_line, settings
from stabilizer.runs.reader import read_json
from stabilizer.runs.trend import POINTS, Trend
from stabilizer.runs.writer import RunWriter

NOW = 1_790_000_000.0


def line(id: str, **about: Any) -> RunLine:
    config = settings(about.pop("config", {}))
    about = {"state": "finished", "verdict": "healthy", "created": NOW - 100, "task": "sorting", **about}
    return RunLine(id, Path("/x") / id, settings=config, recipe=recipe(about["task"], "", config), **about)


LINES = [
    line(
        "a",
        config={"optim": {"lr": 1e-6}, "policy": {"beta": 0}, "seed": 1, "model": "Qwen-3"},
        numbers={"reward": Reading("reward/mean", 0.4, 10)},
        step=10,
        steps=20,
    ),
    line(
        "b",
        config={"optim": {"lr": 3e-5}, "policy": {"beta": 0.001}, "seed": 1},
        state="running",
        verdict="warn",
        numbers={"reward": Reading("reward/mean", 0.9, 10)},
        step=15,
        steps=20,
    ),
    line(
        "c",
        config={"optim": {"lr": 3e-5}, "policy": {"beta": 0.001}, "seed": 2},
        state="failed",
        numbers={"reward": Reading("reward/mean", math.nan, 10)},
        created=NOW - 7200,
    ),
]


def ids(find: str = "", **view: Any) -> list[str]:
    return [row.name for row in run_list(LINES, ListSettings(find=find, **view), NOW).rows]


# --- what is typed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", "abc"),
        ("optim.lr>1e-5", "bc"),
        ("lr>1e-5 seed=2", "c"),
        ("policy.beta=0", "a"),
        ("beta=0.0", "a"),
        ("policy.beta!=0", "bc"),
        ("qwen", "a"),
        ("-qwen", "bc"),
        ("model=qwen-3", "a"),
        ('model="Qwen-3"', "a"),
        ("state=failed", "c"),
        ("reward>=0.4", "ab"),
        ("reward<0.5", "a"),
        ("-reward>0.5", "ac"),
        ("nothing.such>1", ""),
        ("nothing.such!=1", "abc"),
        ("sorting", "abc"),
        ("seed=1 state=running", "b"),
        ("=", ""),
        ('"', "abc"),
    ],
)
def test_what_is_typed_finds(typed: str, found: str) -> None:
    assert sorted(ids(typed)) == list(found)


@pytest.mark.parametrize("typed", ["lr>abc", "x" * 501, "a " * 21, "reward<"])
def test_what_is_not_understood_is_said_and_matches_nothing(typed: str) -> None:
    found = run_list(LINES, ListSettings(find=typed), NOW)
    assert found.problem and not found.rows and found.total == 3


@pytest.mark.parametrize(
    "typed", ["(((", "a=b=c", "\\", "lr>1e400", "-", "--", "\x00", "x>" + "9" * 400, "🙂=1", "a" * 500]
)
def test_nothing_typed_raises(typed: str) -> None:
    parse(typed).matches(LINES[0])


# --- order ------------------------------------------------------------------------------------------------------------


def test_sorts_both_ways_and_keeps_what_has_no_value_behind() -> None:
    assert ids(sort="reward", down=True) == ["b", "a", "c"]
    assert ids(sort="reward", down=False) == ["a", "b", "c"]
    assert ids(sort="started", down=True)[-1] == "c"
    assert ids(sort="state", down=False)[0] == "c"
    assert ids(sort="progress", down=True) == ["b", "a", "c"]


def test_a_view_is_its_address() -> None:
    view = ListSettings("lr>1e-5", "reward", False, 100)
    assert ListSettings.from_query(view.as_query()) == view
    assert ListSettings().as_query() == {}
    odd = {"sort": "x", "show": "9" * 50}
    assert ListSettings.from_query(odd) == ListSettings()


def test_a_second_click_turns_the_order_round() -> None:
    view = ListSettings().sorted_by("reward")
    assert (view.sort, view.down, view.sorted_by("reward").down) == ("reward", True, False)
    assert ListSettings().sorted_by("__class__") == ListSettings()


def test_only_so_many_rows_come_at_once() -> None:
    found = run_list([line(f"r{n}") for n in range(PAGE + 7)], ListSettings(), NOW)
    assert (len(found.rows), found.more) == (PAGE, 7)


def test_ids_with_commas_are_told_apart_in_an_address() -> None:
    assert compared(["a,b", "c", "d%2C"]) == "a%2Cb,c,d%252C"


def test_time_left_is_that_of_the_present_pace() -> None:
    pace = {"step_s": Reading("time/step_s", 99.0, 10, (9.0, 2.0, 2.0, 3.0))}
    row = run_list([line("a", state="running", step=10, steps=40, numbers=pace)], ListSettings(), NOW).rows[0]
    assert row.left == "about 1 min left"
    assert (
        run_list([line("a", state="finished", step=10, steps=40, numbers=pace)], ListSettings(), NOW).rows[0].left == ""
    )


# --- the course of a metric -------------------------------------------------------------------------------------------


def test_a_course_stays_small_and_keeps_its_shape() -> None:
    trend = Trend(range(100_000))
    points = trend.points()
    assert POINTS // 2 <= len(points) <= POINTS + 1
    assert points == sorted(points) and points[0] < 3_200 and points[-1] > 93_000


def test_a_course_passes_over_what_is_not_finite() -> None:
    assert Trend([1.0, math.nan, math.inf]).points() == [1.0, None, None]
    assert Trend([1e308] * 200).points()[0] in (1e308, None)
    assert Trend().points() == []


def test_the_writer_leaves_courses_in_the_summary_and_the_list_reads_them(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 60)
    found = run_line(tmp_path / "run", "run", NOW)
    assert 16 <= len(found.numbers["reward"].trend) <= POINTS + 1
    assert found.numbers["accuracy"].metric == "accuracy/val" and found.trainer == "stabilizer"
    assert found.settings == {"optim.lr": 3e-5}
    writer.metrics(61, {"reward/mean": math.nan})
    writer.summary(verdict="healthy", worst=None, force=True)
    assert math.isnan(run_line(tmp_path / "run", "run", NOW).numbers["reward"].last)


def test_a_summary_without_courses_is_a_list_without_them(tmp_path: Path) -> None:
    healthy(tmp_path / "run", 5).close()
    summary = read_json(tmp_path / "run" / "summary.json")
    for trends in (None, [], {"reward/mean": "x"}, {"reward/mean": [1, "x", None]}, {"reward/mean": [1] * 10_000}):
        (tmp_path / "run" / "summary.json").write_text(json.dumps({**summary, "trends": trends}))
        found = run_line(tmp_path / "run", "run", NOW)
        assert len(found.numbers["reward"].trend) <= POINTS + 1


def test_a_rollback_begins_its_courses_anew_from_its_lineage(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 20)
    from stabilizer.runs.reader import RunReader

    history = RunReader(tmp_path / "run").history
    writer.begin_attempt(11, "rollback", history=history.fork(11, 1))
    writer.metrics(11, values(11))
    writer.summary(verdict="healthy", worst=None, force=True)
    assert len(read_json(tmp_path / "run" / "summary.json")["trends"]["reward/mean"]) == 11


# --- many, broken and hostile -----------------------------------------------------------------------------------------


def test_a_thousand_runs_open_four_small_files_each_and_then_none(tmp_path: Path) -> None:
    listing.make(tmp_path, 1000, 3)
    opened: list[str] = []
    watching = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "open" and str(tmp_path) in str(args[0]):
            opened.append(str(args[0]))

    sys.addaudithook(hook)
    runs = Runs([tmp_path])
    assert len(runs.lines()) == 1000
    assert {os.path.basename(name) for name in opened} == {"run.json", "status.json", "summary.json", "findings.jsonl"}
    opened.clear()
    run_list(runs.lines(), ListSettings(), runs.clock())
    watching.clear()
    assert opened == []


def test_a_run_without_its_process_is_stalled_at_once(tmp_path: Path) -> None:
    healthy(tmp_path / "run", 2).close()
    status = read_json(tmp_path / "run" / "status.json")
    (tmp_path / "run" / "status.json").write_text(json.dumps({**status, "pid": 2**22 + 1}))
    (found,) = run_list(Runs([tmp_path]).lines(), ListSettings(), status["t"] + 1).rows
    assert (found.state, found.state_note) == ("stalled", "process is gone")


def test_silence_is_seen_without_a_file_changing(tmp_path: Path) -> None:
    healthy(tmp_path / "run", 2).close()
    now = [read_json(tmp_path / "run" / "status.json")["t"]]
    runs = Runs([tmp_path], clock=lambda: now[0])
    assert runs.lines()[0].state == "running"
    now[0] += 600
    (found,) = run_list(runs.lines(), ListSettings(), now[0]).rows
    assert (found.state, found.state_note) == ("stalled", "silent for 10 min")
    silence(tmp_path / "run", -600)
    assert runs.lines()[0].state == "running"


def test_a_folder_of_everything_is_listed(tmp_path: Path) -> None:
    many(tmp_path, 2, 2, 6)
    found = {row.name: row for row in run_list(Runs([tmp_path]).lines(), ListSettings(), NOW).rows}
    assert len(found) == 6 and HOSTILE_NAME in found
    assert found["broken"].state == "unreadable" and "run.json" in found["broken"].problem


@pytest.mark.parametrize(
    "config",
    [
        [],
        5,
        "x",
        {"a": {"b": None}},
        {"a": [1, {"b": 2}]},
        {str(n): n for n in range(5000)},
        {"x" * 10_000: "y" * 10_000},
    ],
)
def test_settings_of_any_shape_are_listed(tmp_path: Path, config: Any) -> None:
    RunWriter.create(tmp_path / "run", config={}, argv=[]).close()
    about = read_json(tmp_path / "run" / "run.json")
    (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "config": config}))
    lines = Runs([tmp_path]).lines()
    run_list(lines, ListSettings(), NOW)
    assert len(lines[0].settings) <= 400 and all(len(key) <= 200 for key in lines[0].settings)


def test_deeply_nested_settings_end_somewhere() -> None:
    config: Any = 1
    for _ in range(900):
        config = {"a": config}
    assert len(settings(config)) == 1


def test_what_lies_inside_a_run_is_part_of_it(tmp_path: Path) -> None:
    healthy(tmp_path / "run", 1).close()
    healthy(tmp_path / "run" / "twin", 1).close()
    healthy(tmp_path / "group" / "other", 1).close()
    assert [path.name for path in list_runs(tmp_path)] == ["run", "other"]


def test_a_setting_of_the_same_name_as_a_column_is_one_choice() -> None:
    lines = [replace(LINES[0], settings={"task": "addition"}), replace(LINES[0], settings={"task": "sorting"})]
    choices = [value for value, _ in group_choices(lines)]
    assert len(choices) == len(set(choices)), "a list that names a choice twice is not drawn at all"
