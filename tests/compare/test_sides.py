"""References in every form, and what is said when one of them is not right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stabilizer.compare.sides import group, read_member, read_side
from stabilizer.runs.reader import RunError
from tests.compare.synthetic import member, noisy, side
from tests.trainers.trl_logs import state
from tests.trainers.trl_logs import write as write_state

CURVE: dict[str, Any] = {"metric": "reward/mean", "x": "step", "points": [[0, 0.1], [10, 0.5], [20, 0.6]]}


def curve(folder: Path, **changes: Any) -> Path:
    path = folder / "curve.json"
    path.write_text(json.dumps({key: value for key, value in {**CURVE, **changes}.items() if value is not ...}))
    return path


def test_a_curve_is_read_with_what_it_states(tmp_path: Path) -> None:
    path = curve(tmp_path, name="figure 1", source="page 3", completions_per_step=64, config={"a": {"b": 1}})
    read = read_member(path)
    assert (read.name, read.kind, read.notes, read.config) == ("figure 1", "curve", ("page 3",), {"a.b": 1})
    assert read.on("samples", "reward/mean")[0].tolist() == [0, 640, 1280]
    assert read.on("step", "reward/mean")[1].tolist() == [0.1, 0.5, 0.6]


def test_a_curve_over_tokens_has_no_steps(tmp_path: Path) -> None:
    assert set(read_member(curve(tmp_path, x="tokens")).clocks) == {"tokens"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": ...}, "needs 'metric'"),
        ({"points": []}, "needs 'points'"),
        ({"x": "epoch"}, "step, tokens, samples, time"),
        ({"points": [[0, 1], [1]]}, "point 1"),
        ({"points": [[0, 1], [5, 2], [3, 3]]}, "sort by x"),
        ({"points": [[-1, 1]]}, "from 0 up"),
        ({"points": [[0, "high"]]}, "two numbers"),
        ({"smothing": "none"}, "did you mean 'smoothing'"),
        ({"smoothing": {"kind": "ema"}}, "smoothing"),
        ({"smoothing": {"kind": "ema", "weight": 1.0}}, "smoothing"),
        ({"support": [1, 0]}, "lowest and the highest"),
        ({"support": [0]}, "lowest and the highest"),
        ({"completions_per_step": 0}, "above 0"),
        ({"config": [1]}, "'config' is a list"),
        ({"name": 3}, "'name' is a number"),
    ],
)
def test_what_is_wrong_with_a_curve_is_said(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError, match=said):
        read_member(curve(tmp_path, **changes))


def test_points_that_are_not_numbers_yet_are_kept_as_gaps(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"metric": "reward/mean", "x": "step", "points": [[0, 0.1], [1, NaN], [2, 0.3]]}')
    assert read_member(path).on("step", "reward/mean")[1].tolist() == [0.1, 0.3]


def test_json_that_is_neither_log_nor_curve(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(RunError, match='a curve has "metric", "x" and "points"'):
        read_member(tmp_path / "x.json")


def test_a_csv_with_a_step_column_and_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,score,loss\n1,0.1,3\n2,0.2,\nx,9,9\n3,nan,1\n")
    read = read_member(path, mapping={"reward/mean": "score"})
    assert read.series["reward/mean"].steps.tolist() == [1, 2, 3]
    assert read.on("step", "reward/mean")[1].tolist() == [0.1, 0.2] and read.series["loss"].values.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [("step,a\n", "no rows"), ("step,a\n1,x\n", "no metrics"), ("", "empty")],
)
def test_what_is_wrong_with_a_csv_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(RunError, match=said):
        read_member(tmp_path / "log.csv")


def test_a_mapping_to_an_absent_column_names_the_near_ones(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,score\n1,2\n")
    with pytest.raises(RunError, match="has no 'scor'.*score"):
        read_member(tmp_path / "log.csv", mapping={"reward/mean": "scor"})


def test_foreign_logs_have_tokens_and_time_as_clocks(tmp_path: Path) -> None:
    rows = [
        {"step": step, "reward": 0.1, "num_tokens": 100.0 * step, "step_time": 2.0} for step in range(10, 60, 10)
    ]  # fmt: skip
    read = read_member(write_state(tmp_path / "trl", state("0.20", log_history=rows)))
    assert read.on("tokens", "reward/mean")[0].tolist() == [1000, 2000, 3000, 4000, 5000]
    assert read.on("time", "reward/mean")[0].tolist() == [20, 40, 60, 80, 100]  # a row stands for ten steps of 2 s


def test_one_argument_may_be_several_seeds(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("step,reward/mean\n1,2\n2,3\n")
    assert len(read_side(f"{tmp_path}/a.csv,{tmp_path}/b.csv").members) == 2
    with pytest.raises(RunError, match="twice"):
        read_side(f"{tmp_path}/a.csv,{tmp_path}/a.csv")


def test_a_path_with_a_comma_is_one_path(tmp_path: Path) -> None:
    (tmp_path / "a,b.csv").write_text("step,reward/mean\n1,2\n2,3\n")
    assert read_side(f"{tmp_path}/a,b.csv").name == "a,b"


def test_configurations_that_differ_by_more_than_the_seed_are_no_seeds(tmp_path: Path) -> None:
    paths = [curve(tmp_path, config={"lr": 1, "seed": 1}).rename(tmp_path / "a.json")]
    paths.append(curve(tmp_path, config={"lr": 2, "seed": 2}).rename(tmp_path / "b.json"))
    with pytest.raises(RunError, match="differ in lr"):
        read_side(",".join(map(str, paths)))


def test_further_runs_join_the_side_they_are_seeds_of() -> None:
    def seed(name: str, lr: float, number: int):
        return side(member(noisy(number), name, config={"lr": lr, "seed": number}))

    runs, reference = group(
        seed("a1", 1, 1), seed("b1", 2, 1), [seed("a2", 1, 2), seed("b2", 2, 2), seed("c", 3, 1), seed("c2", 3, 2)]
    )
    assert [[m.name for m in each.members] for each in runs] == [["a1", "a2"], ["c", "c2"]]
    assert [m.name for m in reference.members] == ["b1", "b2"]


def test_runs_that_state_no_configuration_do_not_join() -> None:
    runs, reference = group(side(member(noisy(1), "a")), side(member(noisy(2), "b")), [side(member(noisy(3), "c"))])
    assert [len(each.members) for each in (*runs, reference)] == [1, 1, 1]
