"""A case's truth survives its file, is found beside the case, and nonsense in it is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.detect.truth import Truth, beside, load

FAULT = Truth(
    tier="T2", kind="entropy-collapse", healthy=False, fault="entropy-collapse", accept=("policy/entropy-collapse",),
    causes=("exploration-exhausted",), onset_step=210, severity="subtle", task="addition", algorithm="grpo", seed=3,
    half="develop", speed="fast", steps=600, reward_falls_at=None,
)  # fmt: skip


def test_a_truth_survives_its_file(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("...")
    run = tmp_path / "run"
    run.mkdir()
    assert FAULT.save(run) == run / "truth.json"
    FAULT.save(log)
    assert beside(tmp_path) == [(run, FAULT), (log, FAULT)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"severity": "mild"}, "severity is 'mild'"),
        ({"steps": "many"}, "steps is 'many'"),
        ({"colour": 1}, "no field 'colour'"),
        ({"accept": []}, "at least one id in accept"),
        ({"healthy": True}, "a healthy case has no fault"),
        ({"schema": 2}, "not a truth of schema 1"),
    ],
)
def test_nonsense_is_refused_with_the_reason(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(FAULT.as_json() | change))
    with pytest.raises(ValueError, match=says):
        load(path)


def test_a_truth_without_its_case_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "gone.log.truth.json").write_text(json.dumps(FAULT.as_json()))
    with pytest.raises(ValueError, match=r"gone\.log, of which this is the truth"):
        beside(tmp_path)
