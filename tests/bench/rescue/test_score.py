"""The scorer of RescueBench on examples worked by hand."""

from __future__ import annotations

import pytest

from bench.rescue.arms import ARMS, BASELINES, OFF
from bench.rescue.score import Result, against, damaged, lost_iterations, summary
from bench.rescue.tables import statements, tables


def case(name: str, clean: float, off: float, severity: str | None = "severe", **ends: float) -> Result:
    """A case with the ends of some arms, by the first word of their names; the others end as `off`."""
    finals = {arm: ends.get(arm.split()[0].replace("-", "_"), off) for arm in ARMS}
    return Result(
        name=name, kind="lr-jump" if severity else "healthy/plain", nature="setting" if severity else "",
        severity=severity, clean=clean, finals=finals, actions={"auto-full": 1}, lost={arm: 0 for arm in ARMS},
    )  # fmt: skip


SAVED = case("saved", 0.8, 0.1, auto_full=0.77, auto_safe=0.5)
LOST = case("lost", 0.8, 0.4, auto_full=0.75, rollback=0.79)
MADE_WORSE = case("worse", 0.8, 0.5, auto_full=0.47, auto_safe=0.49)
NOT_ILL = case("no damage", 0.8, 0.77, auto_full=0.70)
WELL = case("well", 0.8, 0.8, severity=None, auto_full=0.78)


def test_only_a_run_that_ends_below_95_percent_of_its_twin_can_be_rescued() -> None:
    assert damaged(0.75, 0.8) and not damaged(0.77, 0.8)
    assert [r.damaged for r in (SAVED, LOST, MADE_WORSE, NOT_ILL, WELL)] == [True, True, True, False, False]
    figures = summary([SAVED, LOST, MADE_WORSE, NOT_ILL, WELL], [(0.8, 0.79)])
    assert (figures["faults"]["n"], figures["faults"]["damaged"]) == (4, 3)
    arms = figures["arms"]
    assert [arms[name]["rescue"]["hits"] for name in ("auto-full", "auto-safe", "rollback only", OFF)] == [1, 0, 1, 0]
    assert arms["auto-full"]["rescue"]["n"] == 3
    assert arms["auto-full"]["reached"] == pytest.approx((0.77 + 0.75 + 0.47) / 3 / 0.8)


def test_harm_is_two_points_lost_and_counts_where_there_was_no_damage_too() -> None:
    figures = summary([SAVED, LOST, MADE_WORSE, NOT_ILL], [(0.8, 0.77), (0.8, 0.83)])
    assert figures["chance"]["sd"] == pytest.approx(0.03)
    harm = figures["arms"]["auto-full"]
    assert (harm["harm"]["hits"], harm["harm"]["n"]) == (2, 4)  # 3 points and 7
    assert harm["harm beyond noise"]["hits"] == 1  # of which one is more than two deviations
    assert harm["points lost"] == pytest.approx((3 + 7) / 4)
    assert figures["arms"]["auto-safe"]["harm"]["hits"] == 0  # one point is none


def test_harm_beyond_chance_is_what_an_arm_harms_less_what_other_prompts_do() -> None:
    chancy = case("chancy", 0.8, 0.5, auto_full=0.47, other=0.46)
    figures = summary([chancy, SAVED, MADE_WORSE, LOST], [])["harm beyond chance"]["auto-full"]
    assert (figures["difference"], figures["n"]) == (0.25, 4)  # two harmed, of which chance harms one as well
    assert figures["interval"][0] <= 0.0 < figures["interval"][1]
    alike = [case(str(i), 0.8, 0.5, auto_full=0.47, other=0.47) for i in range(20)]
    assert summary(alike, [])["harm beyond chance"]["auto-full"]["interval"] == [0.0, 0.0]
    assert summary([WELL], [])["harm beyond chance"]["auto-full"]["n"] == 0


def test_healthy_runs_count_apart() -> None:
    row = summary([SAVED, WELL], [(0.8, 0.8)])["healthy"]["auto-full"]
    assert (row["acted on"]["hits"], row["acted on"]["n"], row["actions"]) == (1, 1, 1)
    assert row["change"] == pytest.approx(-0.02)


def test_the_difference_to_the_best_of_the_others_has_a_paired_interval() -> None:
    everywhere = [case(str(i), 0.8, 0.1, auto_full=0.8) for i in range(20)]
    row = against("auto-full", everywhere)
    assert (row["difference"], row["interval"], row["n"]) == (1.0, [1.0, 1.0], 20)
    mixed = [*everywhere[:10], *(case(str(i), 0.8, 0.1, auto_full=0.8, rollback=0.8) for i in range(10))]
    row = against("auto-full", mixed)
    assert (row["best"], row["difference"]) == ("rollback only", 0.5)
    assert 0.2 < row["interval"][0] < 0.5 < row["interval"][1] < 0.8
    assert against("auto-full", mixed) == row  # drawn the same every time
    assert against("auto-full", [])["n"] == 0


def test_iterations_lost_are_those_below_the_twin_at_the_same_iteration() -> None:
    clean = [(0, 0.5), (20, 0.6), (40, 0.7), (60, 0.8)]
    assert lost_iterations([(0, 0.5), (20, 0.1), (40, 0.1), (60, 0.8)], clean, onset=31) == 10
    assert lost_iterations([(0, 0.5), (20, 0.1), (40, 0.1), (60, 0.1)], clean, onset=11) == 50
    assert lost_iterations(clean, clean, onset=11) == 0


def test_tables_say_n_and_interval_and_what_is_missing() -> None:
    figures = summary([SAVED, LOST, MADE_WORSE, NOT_ILL, WELL], [(0.8, 0.79)])
    result = figures | {"half": "develop", "tasks": ["addition by grpo"], "cpu_s": 60, "version": "1", "date": "today",
                        "left out": 7, "quick": False}  # fmt: skip
    named = dict(tables(result))
    arms = {row["arm"]: row for row in named["Rescue and harm, develop half"]}
    assert arms["auto-full"]["rescued"] == "33% (6-79) of 3"
    assert set(arms) == {*ARMS} and all(arms[name]["harm > 2 points"].endswith("of 3") for name in BASELINES)
    assert any("7 cases were left out" in line for line in statements(result))
    assert any("4 faults, of which 3 did damage" in line for line in statements(result))
