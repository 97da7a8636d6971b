"""The scorer on examples worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bench.detect.score import (
    ANY,
    Alarm,
    by_kind,
    causes,
    delays,
    detectors,
    false_alarms,
    judge,
    lead,
    merged,
    onset_error,
    poisson,
    quantile,
    recall,
    wilson,
)
from bench.detect.truth import Truth

COMMON = {"tier": "T1", "task": "sums", "algorithm": "grpo", "seed": 0, "half": "develop"}
HEALTHY = Truth(kind="healthy/base", healthy=True, steps=1000, **COMMON)
FAULT = Truth(kind="entropy-collapse", healthy=False, fault="entropy-collapse", accept=("policy/entropy-collapse",),
              causes=("exploration-exhausted",), onset_step=300, severity="medium", steps=600, reward_falls_at=400,
              **COMMON)  # fmt: skip
HIT = ("policy/entropy-collapse",)
OTHER = ("reward/plateau",)


def test_alarms_within_fifty_steps_of_one_another_are_one_incident() -> None:
    assert [[a.step for a in group] for group in merged([Alarm(s, OTHER) for s in (210, 100, 150, 201)])] == [
        [100, 150],
        [201, 210],
    ]


def test_false_incidents_per_thousand_steps() -> None:
    """Two incidents and one of info alone in 1,000 healthy steps; one before the onset in 297."""
    healthy = judge(HEALTHY, [Alarm(100, OTHER), Alarm(120, OTHER), Alarm(500, HIT), Alarm(800, OTHER, "info")])
    assert ([a.step for a in healthy.false], len(healthy.false_alarms), healthy.false_infos) == ([100, 500], 3, 1)
    early = judge(FAULT, [Alarm(50, HIT)])
    assert (len(early.false), early.healthy_steps, early.hit, early.any_step) == (1, 297, None, None)
    row = false_alarms([healthy, early])
    assert (row["incidents"], row["steps"], row["rate"]) == (3, 1297, pytest.approx(3 / 1.297))
    assert [r["kind"] for r in by_kind([healthy, early])] == ["before an onset", "base"]


def test_a_trained_run_is_counted_before_its_fault_as_its_twin_and_not_once_more() -> None:
    judged = judge(replace(FAULT, tier="T2"), [Alarm(50, HIT), Alarm(200, OTHER, "info"), Alarm(350, HIT)])
    assert (judged.false, judged.false_alarms, judged.false_infos, judged.healthy_steps) == ((), (), 0, 0)
    assert judged.hit == Alarm(350, HIT)
    twin = judge(replace(HEALTHY, tier="T2"), [Alarm(50, HIT)])
    assert (len(twin.false), twin.healthy_steps) == (1, 1000)


@pytest.mark.parametrize(
    ("alarms", "hit", "opened"),
    [
        ([Alarm(298, HIT)], 298, 298),  # a row that holds the onset may be written just before it
        ([Alarm(297, HIT)], None, None),
        ([Alarm(340, OTHER), Alarm(350, HIT)], 350, 340),
        ([Alarm(340, HIT, "info")], None, None),
        ([Alarm(340, HIT, "info"), Alarm(360, HIT)], 360, 360),
        ([Alarm(100, HIT), Alarm(130, OTHER)], None, None),
        ([Alarm(340, (ANY,))], 340, 340),
        ([], None, None),
    ],
)
def test_what_is_a_hit(alarms: list[Alarm], hit: int | None, opened: int | None) -> None:
    judged = judge(FAULT, alarms)
    assert (judged.hit.step if judged.hit else None, judged.any_step) == (hit, opened)


def test_a_finding_that_is_info_by_design_counts_at_any_severity() -> None:
    shift = Truth(kind="data-shift", healthy=False, fault="data-shift", accept=("system/data-shift",), onset_step=300,
                  severity="medium", steps=600, **COMMON)  # fmt: skip
    judged = judge(shift, [Alarm(310, ("system/data-shift",), "info")])
    assert judged.hit is not None and judged.any_step is None


def test_misses_are_infinite_delays() -> None:
    judged = [judge(FAULT, [Alarm(300 + d, HIT)] if d else []) for d in (10, 20, 30, 0)]
    assert [j.delay for j in judged] == [10, 20, 30, math.inf]
    assert delays(judged) == {"n": 4, "median": 20, "p90": None}
    assert delays([judge(FAULT, [Alarm(299, HIT)])])["median"] == 0


def test_onset_error_and_lead() -> None:
    judged = [judge(FAULT, [Alarm(310, HIT, onset=295)]), judge(FAULT, [Alarm(390, HIT, onset=340)]), judge(FAULT, [])]
    assert onset_error(judged) == {"n": 2, "median": 5}
    assert lead(judged) == {"n": 3, "median": 10, "share early": pytest.approx(1 / 3)}


def test_causes_may_abstain() -> None:
    """One right at once, one right second, one that abstains with the right one behind, one wrong, one missed."""
    given = [("exploration-exhausted",), ("lr-too-high", "exploration-exhausted"),
             ("undetermined", "exploration-exhausted"), ("lr-too-high", "lr-too-low")]  # fmt: skip
    judged = [judge(FAULT, [Alarm(310, HIT, causes=names)]) for names in given] + [judge(FAULT, [])]
    row = causes(judged)
    assert (row["n"], row["top-1"], row["top-2"], row["abstained"]) == (4, 0.25, 0.75, 0.25)
    assert row["precision"] == pytest.approx(1 / 3)


def test_a_detector_is_judged_by_its_own_finding() -> None:
    pinned = Truth(kind="kl-pinned", healthy=False, fault="kl-pinned", accept=("policy/kl-pinned", "reward/plateau"),
                   onset_step=300, severity="severe", steps=600, **COMMON)  # fmt: skip
    judged = [judge(pinned, [Alarm(400, ("reward/plateau",))]), judge(HEALTHY, [Alarm(5, ("reward/plateau",))])]
    assert judged[0].hit is not None
    table = detectors(judged)
    assert (table["policy/kl-pinned"]["hits"], table["policy/kl-pinned"]["n"]) == (0, 1)
    assert table["reward/plateau"]["false rate"] == pytest.approx(1000 / 1297)


def test_intervals_are_the_textbook_ones() -> None:
    assert wilson(0, 10) == pytest.approx([0, 0.2775], abs=1e-3)
    assert wilson(8, 10) == pytest.approx([0.4902, 0.9433], abs=1e-3)
    assert poisson(0) == pytest.approx((0, 3.689), abs=1e-3)
    assert poisson(10) == pytest.approx((4.795, 18.390), abs=1e-3)
    assert recall([]) | {"interval": None} == recall([]) | {"interval": None, "n": 0, "hits": 0}
    assert quantile([1, 2, math.inf], 0.5) == 2 and quantile([1, 2, math.inf], 0.9) == math.inf
