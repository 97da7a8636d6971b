"""An incident is drawn on the course of the run on which it happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stabilizer.core.records import Finding
from stabilizer.figures import abandoned, metric_figure
from stabilizer.figures.lineage import Lineage, on_lineage
from stabilizer.runs.history import History
from stabilizer.trainers.reading import load

NAME = "reward/mean"
ABOUT = {
    "attempts": [
        {"attempt": 0, "from_step": 0, "parent": None},
        {"attempt": 1, "from_step": 6, "parent": 0},
        {"attempt": 2, "from_step": 8, "parent": 1},
    ]
}
"""A run that went back from 10 to 5, and on the second attempt from 12 to 7."""
FIRST = Finding("reward/collapse", "critical", "it fell", 7, 8, 10, {"metric": NAME}, state="open", incident=1)


def spans(records: list[Finding], attempt: int) -> list[tuple[int, int]]:
    return [(f.onset_step, f.last_step) for f in on_lineage(records, Lineage.of(attempt, ABOUT))]


@pytest.mark.parametrize(
    ("records", "present", "on_the_first"),
    [
        ([FIRST], [], [(7, 10)]),
        ([replace(FIRST, onset_step=2, last_step=4)], [(2, 4)], [(2, 4)]),
        ([replace(FIRST, onset_step=4)], [(4, 5)], [(4, 10)]),
        ([replace(FIRST, attempt=2, last_step=9)], [(7, 9)], []),
        ([FIRST, replace(FIRST, attempt=1, last_step=12)], [(7, 7)], [(7, 10)]),
        ([FIRST, replace(FIRST, attempt=2, last_step=15)], [(8, 15)], [(7, 10)]),
    ],
    ids=[
        "on the first alone",
        "before any fork",
        "across a fork",
        "on the newest",
        "on two that were left",
        "came back on the newest",
    ],
)
def test_a_finding_counts_where_it_was_seen(
    records: list[Finding], present: list[tuple[int, int]], on_the_first: list[tuple[int, int]]
) -> None:
    assert (spans(records, 2), spans(records, 0)) == (present, on_the_first)


def test_what_still_stands_on_a_branch_that_was_left_does_not_reach_to_the_present() -> None:
    (cut,) = on_lineage([replace(FIRST, onset_step=4)], Lineage.of(2, ABOUT))
    assert cut.state == "resolved"
    (there,) = on_lineage([replace(FIRST, attempt=2)], Lineage.of(2, ABOUT))
    assert there.state == "open"


def test_a_log_that_tells_of_no_attempts_keeps_all_its_findings() -> None:
    assert on_lineage([FIRST, replace(FIRST, attempt=1)], Lineage.of(1, {})) == [replace(FIRST, attempt=1)]


def test_a_damaged_list_of_attempts_hides_no_finding() -> None:
    for rows in (3, [3], [{"attempt": "x"}], [{"attempt": 1, "parent": 1, "from_step": None}]):
        assert on_lineage([FIRST], Lineage.of(1, {"attempts": rows})) == [FIRST]


def test_a_branch_is_shaded_along_its_own_line() -> None:
    history = History(ABOUT)
    for step in range(1, 11):
        history.append(step, {NAME: float(step)})
    present = history.fork(6, 1)
    for step in range(6, 20):
        present.append(step, {NAME: -float(step)})
    about = {"attempts": ABOUT["attempts"][:2]}
    history.about = present.about = about
    (branch,) = abandoned({0: history, 1: present}, [FIRST])
    found = on_lineage([FIRST], Lineage.of(1, about))
    figure = metric_figure(present.view(), NAME, findings=found, abandoned=[branch])
    assert not [shape for shape in figure.layout.shapes if shape.type == "rect"]
    shade = figure.data[-1]
    assert list(shade.y) == [6, 7, 8, 9, 10], "the branch's own values"
    assert "reward/collapse" in shade.text and "on attempt 0, rolled back" in shade.text


def test_the_rescued_sample_run_is_shaded_only_where_its_present_course_went_wrong() -> None:
    run = load(Path(__file__).parents[2] / "sample_runs" / "addition-rescued")
    view = run.history.view()
    assert on_lineage(run.recorded, Lineage.of(view.attempt, run.history.about)) == [], "nothing since the return"
    (branch,) = abandoned(run.histories, run.recorded)
    assert "critical" in {finding.severity for finding in branch.findings}
