"""The end-to-end truth: every sample run must get the diagnosis written beside it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stabilizer.analysis.analyse import Analysis, analyse, as_json
from stabilizer.compare import as_json as comparison_as_json
from stabilizer.compare import compare, read_side
from stabilizer.core.records import Finding
from stabilizer.runs.loaded import NoMetrics
from stabilizer.trainers.reading import load

SAMPLES = sorted(path.parent for path in (Path(__file__).parents[1] / "sample_runs").glob("*/expected.toml"))


@cache
def analysed(path: Path) -> Analysis:
    """A run or a log, or what the log holds where training failed before its first step, analysed once."""
    try:
        return analyse(load(path))
    except NoMetrics as error:
        return analyse(error.run)


def told_of(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    return as_json(analysed(path / expected.get("log", "")))


def test_there_are_healthy_and_broken_samples() -> None:
    verdicts = {tomllib.loads((path / "expected.toml").read_text())["worst"] for path in SAMPLES}
    assert {"", "critical"} <= verdicts


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_sample_gets_its_diagnosis(path: Path) -> None:
    expected = tomllib.loads((path / "expected.toml").read_text())
    told = told_of(path, expected)
    loud = [finding for finding in told["findings"] if finding["severity"] != "info"]
    assert told["verdict"] == expected["verdict"]
    assert (told["worst"] or "") == expected["worst"]
    assert set(expected["findings"]) <= {finding["id"] for finding in loud}
    assert {finding["incident"] for finding in loud} == set(expected["incidents"])
    for finding in loud:
        first, last = expected["onset"]
        assert first <= finding["onset_step"] <= last, finding["summary"]
        assert finding["causes"][0]["id"] == expected["cause"]
        if finding["severity"] == told["worst"]:  # a lesser one may come after a fix, which is then no longer to be had
            assert finding["remedies"][0]["id"] == expected["remedy"]


@pytest.mark.parametrize(
    "path", [path for path in SAMPLES if path.name.startswith("case-")], ids=lambda path: path.name
)
def test_a_case_shows_its_symptom(path: Path) -> None:
    expected = tomllib.loads((path / "expected.toml").read_text())
    symptom = expected["symptom"]
    told = told_of(path, expected)["findings"]
    shown = [finding for finding in told if finding["id"] == symptom["id"]]
    assert shown, [finding["id"] for finding in told]
    first, last = symptom["detected"]
    assert first <= shown[0]["detected_step"] <= last
    assert shown[0]["severity"] == symptom["severity"]
    assert shown[0]["causes"][0]["id"] == symptom["cause"]


@pytest.mark.parametrize("path", [path for path in SAMPLES if (path / "run.json").exists()], ids=lambda path: path.name)
def test_what_the_live_run_wrote_is_what_the_replay_finds(path: Path) -> None:
    def told(findings: Iterable[Finding]) -> dict:
        return {
            (f.incident, f.id, f.detected_step): (f.severity, f.state, f.onset_step, [c.id for c in f.causes])
            for f in findings
        }

    analysis = analysed(path)
    assert told(analysis.findings) == told(analysis.run.recorded)


@pytest.mark.parametrize(
    "path", [path for path in SAMPLES if (path / "reference.json").exists()], ids=lambda path: path.name
)
def test_sample_beside_its_reference_gets_its_answer(path: Path) -> None:
    expected = tomllib.loads((path / "expected.toml").read_text())["compare"]
    answer = compare(read_side(str(path)), read_side(str(path / "reference.json")))
    told = comparison_as_json(answer)
    explained = {
        kind: {(e["gap"], e["cause"]) for e in told["explanations"] if e["explains"] is kind} for kind in (True, False)
    }
    assert (told["verdict"], told["clock"]["by"], told["next"]["what"]) == (
        expected["verdict"], expected["by"], expected["next"],
    )  # fmt: skip
    assert {gap["id"] for gap in told["metrics"][0]["gaps"] if gap["state"] == "different"} == set(
        expected["different"]
    )
    assert {tuple(pair) for pair in expected["explains"]} <= explained[True]
    assert {tuple(pair) for pair in expected["does_not_explain"]} <= explained[False]
    assert set(expected["differs"]) <= {difference["what"] for difference in told["differences"]}
    for reached, (first, last) in zip(answer.highest_steps, expected["best_at_step"], strict=True):
        assert first <= reached <= last
    assert told["then"][0]["key"] == expected["then"]
