"""Every case of cases/<failure>.toml, as the watch sees it: `fires_…` must open in time, `quiet_…` must never open."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from stabilizer.analysis.watching import new_watch
from stabilizer.core.records import SEVERITIES
from stabilizer.detectors.reward.outage import Outage
from stabilizer.runs.history import History
from tests.series import history

CASES = [
    pytest.param(path.stem, name, case, id=f"{path.stem}-{name}")
    for path in sorted((Path(__file__).parent / "cases").glob("*.toml"))
    for name, case in tomllib.loads(path.read_text()).items()
]
OTHER_SEEDS = range(1, 5)
"""Seeds of other noise, under which a case must hold as well, or as often as its `of_four` says: what lies at the edge
of what so much noise allows can't hold always, and a case that says so is worth more than one without its noise."""


def opened(case: dict, seed: int) -> dict:
    """The first opening of every finding, by id."""
    run = history(
        case["series"], every=case.get("every", 1), seed=seed, about=case.get("about"), events=case.get("events", ())
    )
    watch, first = new_watch(), {}
    closed = set()
    for step in range(1, run.step + 1, case.get("every", 1)):
        over = watch.end(run.view()) if step + case.get("every", 1) > run.step else []
        for finding in (*watch.tick(run.view(step)), *over):
            if finding.state == "resolved":
                closed.add(finding.id)
            if finding.state == "open":
                known = first.setdefault(finding.id, finding)
                if SEVERITIES.index(finding.severity) > SEVERITIES.index(known.severity):
                    first[finding.id] = finding
    if case.get("stands_to_the_end"):
        assert not closed, "what was lost was not made good, so nothing is resolved"
    return first


@pytest.mark.parametrize(("failure", "name", "case"), CASES)
def test_case(failure: str, name: str, case: dict) -> None:
    holds(failure, name, case, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("failure", "name", "case"), CASES)
def test_case_with_other_noise(failure: str, name: str, case: dict) -> None:
    broken = {}
    for seed in OTHER_SEEDS:
        try:
            holds(failure, name, case, seed)
        except AssertionError as error:
            broken[seed] = str(error)
    assert len(OTHER_SEEDS) - len(broken) >= case.get("of_four", len(OTHER_SEEDS)), broken


def holds(failure: str, name: str, case: dict, seed: int) -> None:
    """The case as it says, under one noise."""
    id_ = case.get("id") or failure.replace("__", "/").replace("_", "-")
    found = opened(case, seed)
    loud = {key: finding.summary for key, finding in found.items() if finding.severity != "info"}
    if name.startswith("quiet"):
        assert not (case.get("silent") and id_ in found), "not even as information"
        assert {key: text for key, text in loud.items() if case.get("all", True) or key == id_} == {}
        return
    assert id_ in found, f"nothing; others: {loud}"
    finding = found[id_]
    assert finding.severity == case.get("severity", finding.severity), finding.summary
    first, last = case["detected"]
    assert first <= finding.detected_step <= last, finding.summary
    if "louder" in case:  # when what was a hint became a warning
        first, last = case["louder"]
        assert first <= finding.last_step <= last, finding.summary
    if "onset" in case:
        first, last = case["onset"]
        assert first <= finding.onset_step <= last, finding.summary


def test_every_detector_has_more_quiet_cases_than_firing_ones() -> None:
    from stabilizer.detectors import DETECTORS

    for detector in DETECTORS:
        names = [
            name
            for failure, name, _ in (p.values for p in CASES)
            if failure == detector.id.replace("/", "__").replace("-", "_")
        ]
        fires = [name for name in names if name.startswith("fires")]
        assert fires and len(names) - len(fires) > len(fires), f"{detector.id}: {names}"


@pytest.mark.parametrize(
    ("by_function", "words"),
    [
        ({}, "no reward since step 1; the notes"),  # the share over all functions is no function
        ({"reward/close/failed_frac": 0.1, "reward/judge/failed_frac": 0.4}, "(most by 'judge')"),
    ],
)
def test_an_outage_names_the_function_that_fails_most_and_no_other(by_function, words) -> None:
    run = History()
    for step in range(1, 31):
        run.append(step, {"reward/failed_frac": 0.5, **by_function})
    assert words in Outage().check(run.view()).summary
