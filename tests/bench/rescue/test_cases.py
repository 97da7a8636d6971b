"""The plan of RescueBench, and that its runs are made once, within a budget, and gone on with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.detect import faults as detect_faults
from bench.rescue import cases, faults, plan
from bench.rescue.arms import ARMS, BASELINES, OFF, OURS, PLACEBO
from bench.rescue.measure import complaints, measure
from bench.rescue.reasons import reason
from stabilizer.cli import main
from stabilizer.incidents.diagnosis import CAUSES

ILL, HEALTHY = plan.quick()[0], plan.quick()[-1]


def made_up(final: float, *findings: str) -> dict[str, object]:
    """An outcome that nobody trained."""
    rows = [{"at": 47, "id": id, "incident": 1, "onset": 45, "severity": "warn", "causes": ["lr-too-high"],
             "summary": "made up"} for id in findings]  # fmt: skip
    return {"onset": 45, "steps": 90, "trained": 90, "at_step": 90, "ended": "", "curve": [[0, 0.5], [90, final]],
            "final": final, "findings": rows, "actions": [], "seconds": 1.0}  # fmt: skip


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Runs are made up instead of trained: what is broken ends at 0.1, and only auto-full saves it."""
    seen: list[tuple[str, str]] = []

    def play(case: plan.Case, arm: str, path: Path, folder: Path) -> dict[str, object]:
        seen.append((case.kind, arm))
        (path / "checkpoints").mkdir(parents=True)
        if case.healthy:
            return made_up(0.8)
        return made_up(0.79 if arm == "auto-full" else 0.1, "optim/grad-explosion")

    monkeypatch.setattr(cases, "play", play)
    return seen


def test_arms_that_nothing_could_set_off_are_not_trained(played: list[tuple[str, str]], tmp_path: Path) -> None:
    assert set(cases.treat(HEALTHY, tmp_path)) == {OFF}
    assert set(cases.treat(ILL, tmp_path)) == {*ARMS}
    assert cases.arms_of(ILL, made_up(0.79, "optim/grad-spike"), 0.8) == [*OURS, PLACEBO]  # nothing to save
    assert cases.arms_of(ILL, made_up(0.1), 0.8) == []
    assert set(BASELINES) < set(cases.arms_of(ILL, made_up(0.1, "optim/grad-spike"), 0.8))


def test_an_outcome_that_is_there_is_not_made_again(played: list[tuple[str, str]], tmp_path: Path) -> None:
    first = cases.treat(ILL, tmp_path)
    count = len(played)
    assert cases.treat(ILL, tmp_path) == first == cases.treated(ILL, tmp_path)
    assert len(played) == count == len(ARMS) + 1  # the twin
    assert cases.treated(replace(ILL, strength=2.0), tmp_path) is None
    assert not list((tmp_path / "unfinished").rglob("checkpoints"))


def test_what_a_killed_process_left_is_made_again_and_the_rest_is_kept(
    played: list[tuple[str, str]], tmp_path: Path
) -> None:
    cases.treat(ILL, tmp_path)
    cases.file_of(ILL, "rollback only", tmp_path).unlink()
    (tmp_path / "unfinished" / "999999999" / "half a run").mkdir(parents=True)
    played.clear()
    cases._tidy(tmp_path / "unfinished")
    assert not list((tmp_path / "unfinished").iterdir())
    assert cases.treated(ILL, tmp_path) is None
    cases.treat(ILL, tmp_path)
    assert played == [(ILL.kind, "rollback only")]


def test_a_run_that_was_told_to_end_is_no_outcome(
    played: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "play", lambda *about: made_up(0.1) | {"ended": "SIGTERM"})
    with pytest.raises(InterruptedError, match="told to end"):
        cases.make(ILL, OFF, tmp_path)
    assert cases.outcome(ILL, OFF, tmp_path) is None


def test_changing_a_remedy_makes_only_the_arms_anew_that_use_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {arm: cases.file_of(ILL, arm, Path()) for arm in ARMS}
    known = plan.sources(remedies=False)
    monkeypatch.setattr(cases, "sources", lambda remedies: "changed" if remedies else known)
    after = {arm: cases.file_of(ILL, arm, Path()) for arm in ARMS}
    assert {arm for arm in ARMS if before[arm] != after[arm]} == {*OURS, "random action"}


def test_a_budget_leaves_cases_out_and_says_so(played: list[tuple[str, str]], tmp_path: Path) -> None:
    for case in (ILL, HEALTHY, ILL.other_prompts):
        cases.treat(case, tmp_path)
    told: list[str] = []
    result, judged = measure(quick=True, budget_s=0, folder=tmp_path, tell=told.append)
    assert "1 cases to make, about 2 minutes of one core, of which the budget leaves 0" in told[0]
    assert result["left out"] == 1 and "left out 1 of 5" in told[1]
    assert result["command"].endswith("--budget 0"), "a budget is part of how the figures were made"
    assert {j.case.kind for j in judged} == {"nan-weight", "healthy/curriculum", "healthy/twin"}
    assert result["arms"]["auto-full"]["rescue"]["hits"] == result["faults"]["damaged"] == 1
    assert result["against"]["auto-full"]["difference"] == 1.0
    shown = complaints(judged)
    assert any(line.startswith("damaged: nan-weight") and "auto-full 0.790" in line for line in shown)
    assert any("auto-safe did not save it: " in line for line in shown)


# --- why a run was not saved --------------------------------------------------------------------------------------


def test_a_reason_is_where_the_help_ended() -> None:
    fault = faults.BY_KIND["lr-jump"]
    assert reason(made_up(0.1), fault) == "not detected"
    heard = made_up(0.1, "optim/grad-spike")
    assert reason(heard, fault).startswith("nothing done: cause lr-too-high; proposed nothing")
    assert reason(heard, faults.BY_KIND["kl-pinned"]).startswith("wrong cause, nothing done")
    row = {"at": 50, "remedy": "lower-lr", "safety": "soft", "incident": 1, "change": {}, "text": "so"}
    tried = heard | {"actions": [row | {"entry": "applied"}, row | {"entry": "reverted"}]}
    assert reason(tried, fault).startswith("reverted: lower-lr at +5")
    kept = heard | {"actions": [row | {"entry": "applied"}, row | {"entry": "verified"}]}
    assert reason(kept, fault).startswith("kept lower-lr, not enough")
    assert reason(heard | {"ended": "stood still"}, fault).startswith("ended (stood still)")


# --- the plan -----------------------------------------------------------------------------------------------------


def test_every_fault_of_stability_bench_is_here_or_said_why_not() -> None:
    assert {fault.kind for fault in detect_faults.FAULTS} <= {*faults.BY_KIND, *faults.LEFT_OUT}
    assert not set(faults.BY_KIND) & set(faults.LEFT_OUT)
    assert {cause for fault in faults.FAULTS for cause in fault.causes} <= set(CAUSES)
    assert all(fault.why for fault in faults.FAULTS)


def test_the_halves_share_no_seed_strength_or_task() -> None:
    develop, report = plan.plan("develop"), plan.plan("report")
    assert not {case.seed for case in develop} & {case.seed for case in report}
    assert not {case.task for case in develop} & {case.task for case in report}
    for fault in faults.FAULTS:
        pairs = zip(fault.develop, fault.report, strict=True)
        assert all(a != b or a in (None, 1, 2, 3, 4) for a, b in pairs), fault.kind  # counts and bounds get no finer


@pytest.mark.parametrize("half", ["develop", "report"])
def test_a_plan_leaves_time_to_act_and_healthy_runs_to_harm(half: str) -> None:
    wanted = plan.plan(half, rounds=2)
    ill, well = [c for c in wanted if not c.healthy], [c for c in wanted if c.healthy]
    assert len({case.name for case in wanted}) == len(wanted)
    assert 2 * len(well) >= len(ill) and len({case.kind for case in well}) >= 10
    assert {case.algorithm for case in ill} == {"grpo", "ppo"} and len({case.task for case in ill}) == 2
    assert {case.kind for case in ill} == {*faults.BY_KIND}
    assert all(0.25 * case.steps <= case.onset <= 0.45 * case.steps for case in ill)
    third = wanted[: len(wanted) // 3]
    assert 0.2 < sum(case.healthy for case in third) / len(third) < 0.5  # a budget leaves a fair sample


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_quick_bench_runs_and_prints_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Real training under every arm, small: weights that overflowed come back only by going back."""
    monkeypatch.setattr(measure, "__kwdefaults__", measure.__kwdefaults__ | {"folder": tmp_path})
    assert main(["bench", "rescue", "--quick", "--only", "nan-weight", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["faults"]["damaged"], result["arms"]["auto-full"]["rescue"]["n"]) == (1, 1)
    assert result["arms"][OFF]["reached"] < 0.1 and result["arms"]["rollback only"]["reached"] > 0.5
    assert (result["left out"], result["quick"]) == (0, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--show"], "--show needs --half develop"),
        (["--half", "develop", "--only", "no-such-fault"], "no such kind"),
        (["--quick", "--keep"], "leave out --only and --quick"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", "rescue", *words]) == 2
    assert said in capsys.readouterr().err
