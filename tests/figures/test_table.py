"""The numbers behind a chart, as a file."""

from __future__ import annotations

import csv
import io
import math

import pytest

from stabilizer.figures.table import table
from stabilizer.runs.history import History


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_every_point_is_there_with_its_step_and_time() -> None:
    run = History()
    run.append(1, {"reward/mean": 0.1, "accuracy/val": 0.5}, 1000.5)
    run.append(2, {"reward/mean": math.nan}, 1001.5)
    run.append(4, {"reward/mean": -math.inf, "accuracy/val": 1 / 3})
    text, left_out = table(run.view(), ["reward/mean", "accuracy/val"])
    assert left_out == 0
    assert read(text) == [
        ["step", "seconds_since_epoch", "reward/mean", "accuracy/val"],
        ["1", "1000.5", "0.1", "0.5"],
        ["2", "1001.5", "NaN", ""],
        ["4", "", "-Inf", "0.3333333333333333"],
    ]


def test_a_run_without_times_has_no_column_for_them() -> None:
    run = History()
    run.append(1, {"a": 1.0})
    assert read(table(run.view(), ["a"])[0]) == [["step", "a"], ["1", "1.0"]]


def test_a_long_one_keeps_the_newest_rows_and_says_how_many_it_left_out() -> None:
    run = History()
    for step in range(10):
        run.append(step, {"a": float(step)})
    text, left_out = table(run.view(), ["a"], max_rows=3)
    assert left_out == 7 and [row[0] for row in read(text)[1:]] == ["7", "8", "9"]


def test_no_header_is_a_formula() -> None:
    run = History()
    run.append(1, {"=1+1": 1.0, 'a","b': 2.0})
    assert read(table(run.view(), ["=1+1", 'a","b'])[0])[0] == ["step", "'=1+1", 'a","b']


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "'\t'=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a;=1", "a;'=1"),
        ('a","=1', 'a","\'=1'),
        ("loss/kl-old", "loss/kl-old"),
        ("a - b", "a - b"),
        ("grad norm (x=1)", "grad norm (x=1)"),
    ],
)
def test_a_formula_begins_in_no_part_of_a_header_and_other_names_stay(name: str, shown: str) -> None:
    run = History()
    run.append(1, {name: 1.0})
    assert read(table(run.view(), [name])[0])[0] == ["step", shown]


def test_nothing_measured_is_a_header() -> None:
    assert read(table(History().view(), ["a"])[0]) == [["step", "a"]]
