"""The benchmark as a whole, on few cases: ours is better than the null rows, and its command says what it must."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.detect import measure, score, tables
from bench.detect.measure import Item, judge_item
from bench.detect.streams import REPORT_SEEDS, Case, kinds
from bench.detect.truth import Truth
from stabilizer.cli import main
from stabilizer.detectors import measured
from stabilizer.runs.writer import RunWriter

EASY = ("not-finite", "gradient-explosion", "reward-collapse", "verifier-down", "reward-outage", "kl-runaway")
"""Faults for which there have been detectors from the beginning."""


@pytest.mark.slow
def test_on_a_sample_ours_beats_the_null_rows() -> None:
    """Bounds are wide on purpose: this is no measurement but an alarm for a benchmark or a detector gone wrong."""
    healthy = [Case(kind, REPORT_SEEDS + 10) for kind in kinds("report")[0][::4]]
    faulty = [Case(kind, REPORT_SEEDS + 10, "medium") for kind in EASY]
    judged: dict[str, list[score.Judged]] = {}
    for case in healthy + faulty:
        for name, one in judge_item(Item(case)).items():
            judged.setdefault(name, []).append(one)
    ours, always, never = (score.summary(judged[name]) for name in (measure.OURS, "always", "never"))
    assert ours["false alarms"]["rate"] < 2.0 < always["false alarms"]["rate"]
    assert ours["recall"]["all"]["recall"] > 0.6 > never["recall"]["all"]["recall"]
    assert ours["onset error"]["median"] < 40


def test_the_command_measures_one_kind_and_shows_its_misses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    words = ["bench", "detect", "--quick", "--half", "develop", "--only", "not-finite"]
    assert main([*words, "--show", "-o", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "stabilizer" in shown and "always" in shown and "not-finite" in shown and "streams.make" in shown
    assert page.read_text().startswith("# StabilityBench")
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["methods"]["stabilizer"]["recall"]["all"]["hits"] == 3
    assert "<table>" in tables.html(result, "how")
    monkeypatch.setattr(measured, "KEPT", tmp_path / "detect.json")
    measured.keep(result)
    assert measured.in_words("numerics/non-finite").startswith("100% (44-100) of 3; 0")
    assert measured.in_words("policy/router-shift") == "not measured"
    monkeypatch.undo()
    measured.kept.cache_clear()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--show"], "--show needs --half develop"),
        (["--keep", "--only", "plateau"], "leave out --only"),
        (["--only", "nothing"], "no such kind"),
        (["--extra", "missing-folder"], "no such folder"),
        (["-o", "missing-folder/page.html"], "make it first"),
    ],
)
def test_bad_usage_is_said_in_a_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "detect", "--quick", "--no-peers", *words]) == 2
    assert says in capsys.readouterr().err


def test_runs_of_ones_own_are_judged_by_the_truth_beside_them(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "mine", config={})
    for step in range(1, 121):
        writer.metrics(step, {"reward/mean": 0.3, "policy/loss": float("nan") if step > 90 else 0.1})
    writer.close()
    truth = Truth(tier="extra", kind="my-fault", healthy=False, fault="my-fault", accept=("numerics/non-finite",),
                  onset_step=91, task="mine", algorithm="grpo", seed=0, half="report", steps=120)  # fmt: skip
    truth.save(tmp_path / "mine")
    ((path, found),) = measure.beside(tmp_path)
    judged = judge_item(Item(None, path, found))["stabilizer"]
    assert judged.hit is not None and judged.hit.step == 91 and judged.truth.tier == "extra"


def test_a_miss_and_a_false_alarm_are_listed_with_what_makes_the_case_again() -> None:
    truth = Truth(tier="T1", kind="plateau", healthy=False, fault="plateau", accept=("reward/plateau",), onset_step=300,
                  severity="subtle", steps=600, task="sums", algorithm="grpo", seed=7, half="develop")  # fmt: skip
    judged = score.judge(truth, [score.Alarm(50, ("reward/collapse",), text="fell"), score.Alarm(400, ("x/y",))])
    false, miss = measure.complaints([judged])
    assert false.startswith("FALSE plateau subtle seed 7") and "step 50 warn reward/collapse: fell" in false
    assert miss.startswith("MISS plateau subtle seed 7") and "wanted reward/plateau; said step 400 warn x/y" in miss
