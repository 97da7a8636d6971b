"""The end-to-end truth: every sample run must get the diagnosis written beside it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from stabilizer.analysis import analyse, as_json
from stabilizer.readers import load
from stabilizer.records import Finding

SAMPLES = sorted(path.parent for path in (Path(__file__).parents[1] / "sample_runs").glob("*/expected.toml"))


def test_there_are_healthy_and_broken_samples() -> None:
    verdicts = {tomllib.loads((path / "expected.toml").read_text())["worst"] for path in SAMPLES}
    assert {"", "critical"} <= verdicts


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_sample_gets_its_diagnosis(path: Path) -> None:
    expected = tomllib.loads((path / "expected.toml").read_text())
    told = as_json(analyse(load(path)))
    loud = [finding for finding in told["findings"] if finding["severity"] != "info"]
    assert told["verdict"] == expected["verdict"]
    assert (told["worst"] or "") == expected["worst"]
    assert set(expected["findings"]) <= {finding["id"] for finding in loud}
    assert {finding["incident"] for finding in loud} == set(expected["incidents"])
    for finding in loud:
        first, last = expected["onset"]
        assert first <= finding["onset_step"] <= last, finding["summary"]
        assert finding["causes"][0]["id"] == expected["cause"]
        assert finding["remedies"][0]["id"] == expected["remedy"]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_what_the_live_run_wrote_is_what_the_replay_finds(path: Path) -> None:
    run = load(path)

    def told(findings: Iterable[Finding]) -> dict:
        return {
            (f.incident, f.id, f.detected_step): (f.severity, f.state, f.onset_step, [c.id for c in f.causes])
            for f in findings
        }

    assert told(analyse(run).findings) == told(run.recorded)
