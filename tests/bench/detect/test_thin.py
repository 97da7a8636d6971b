"""Logs as other trainers leave them: made the same every time, with nothing in them that such a log lacks."""

from __future__ import annotations

import pytest

from bench.detect import measure, tables, thin
from bench.detect.logbooks import LOGBOOKS
from bench.detect.measure import Item, judge_item
from bench.detect.methods import rows
from bench.detect.score import summary
from bench.detect.streams import REPORT_SEEDS, Case
from stabilizer.cli import main

PARTNERS, AILMENTS = thin.kinds("develop")
BY_NAME = {book.name: book for book in LOGBOOKS}


def test_the_same_case_is_the_same_log() -> None:
    one, other, next_one = (thin.build(Case("thin/flattens", seed, "subtle"))[0] for seed in (3, 3, 4))
    assert repr(rows(one)) == repr(rows(other)) != repr(rows(next_one))


@pytest.mark.parametrize("kind", AILMENTS)
def test_what_ails_a_thin_log_begins_early_and_leaves_a_metric_to_show_it(kind: str) -> None:
    for severity in ("subtle", "severe"):
        run, truth = thin.build(Case(kind, REPORT_SEEDS + 1, severity))
        view = run.view()
        assert truth.tier == "thin" and truth.half == "report" and truth.onset_step
        assert 20 <= len(view.series("reward/mean")) <= 400 and truth.onset_step <= 0.7 * truth.steps + 1


@pytest.mark.parametrize("kind", PARTNERS[:8])
def test_partners_are_healthy(kind: str) -> None:
    run, truth = thin.build(Case(kind, 5))
    assert truth.healthy and truth.onset_step is None and len(run.view().series("reward/mean")) >= 20


def test_kinds_that_are_held_out_are_no_part_of_the_develop_half() -> None:
    report = thin.kinds("report")[0]
    assert len(report) > len(PARTNERS) and set(PARTNERS) < set(report)


def test_a_logbook_keeps_its_trainers_metrics_rounded_as_they_are_printed() -> None:
    values = {name: 0.123456789 for name in ("reward/mean", "reward/format/mean", "policy/entropy", "accuracy/train")}
    notebook, console = BY_NAME["notebook"], BY_NAME["verl-console"]
    assert [name for name in values if notebook.keeps(name)] == ["reward/mean"]
    assert [name for name in values if BY_NAME["trl-console"].keeps(name)] == list(values)[:3]
    assert console.printed(0.123456789) == 0.123 and BY_NAME["trl-console"].printed(0.123456789) == 0.1235


@pytest.mark.slow
def test_thin_logs_count_towards_a_row_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [Case("not-finite", 0, "severe"), Case("healthy/base", 0)]
    monkeypatch.setattr(measure, "cases", lambda *_: list(few))
    monkeypatch.setattr(thin, "cases", lambda *_: [Case("thin/never-rises", 0, "severe")])
    result, judged = measure.measure(quick=True, half="develop", peers=False)
    methods = result["methods"]
    assert len(judged) == 3 and methods[measure.OURS]["recall"]["all"]["n"] == 1
    assert methods[measure.AS_LOGGED]["recall"]["all"]["n"] == 1
    titles = [title for title, _ in tables.tables(result)]
    assert sum(title.startswith("As other trainers log it") for title in titles) == 2


def test_the_command_measures_thin_logs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "detect", "--quick", "--half", "develop", "--only", "thin/never-rises"]) == 0
    assert "thin/never-rises" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sample_is_named_more_often_than_not_and_partners_are_left_alone() -> None:
    """Bounds are wide on purpose: an alarm, no measurement."""
    cases = [Case(kind, REPORT_SEEDS + 10, "severe") for kind in AILMENTS]
    cases += [Case(kind, REPORT_SEEDS + 10) for kind in PARTNERS[:6]]
    found = summary([judge_item(Item(case))[measure.OURS] for case in cases])
    assert found["recall"]["all"]["recall"] >= 0.5 and found["false alarms"]["incidents"] <= 2
