"""Real training with injected faults: cases come out the same, differ from their twins from the onset on, survive."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path

import pytest

from bench.detect import live, live_lookalikes, live_plan, truth
from bench.detect.faults import BY_KIND, FAULTS, SEVERITIES
from bench.detect.live_effects import effects, falls_at, shows, view
from bench.detect.live_plan import HOSTS, Case, plan
from stabilizer.incidents.diagnosis import CAUSES
from stabilizer.training.tasks import TASKS

SMALL = Case(
    half="develop", kind="lr-jump", task="addition", algorithm="grpo", seed=3, steps=6, start=None,
    settings=("device=cpu", "rollout.prompts=2", "rollout.group_size=2", "validation.every=3",
              "validation.problems=4", "checkpoint.every=0", "optim.warmup_steps=0"),
    severity="severe", strength=30.0, onset=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one small case and its twin have been made."""
    folder = tmp_path_factory.mktemp("live")
    live.make(SMALL, folder)
    return folder


def rows(path: Path) -> dict[int, dict[str, float]]:
    """What a run logged, without what depends on the machine's mood."""
    run = view(path)
    found: dict[int, dict[str, float]] = {}
    for name in run.names():
        series = run.series(name)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            if not name.startswith("time/"):
                found.setdefault(step, {})[name] = value
    return found


def made(case: Case, folder: Path) -> Path:
    """Where a case that has been made lies."""
    return folder / case.half / case.name


def test_a_case_made_twice_logs_the_same(folder: Path, tmp_path: Path) -> None:
    assert rows(live.make(SMALL, tmp_path)) == rows(made(SMALL, folder))


def test_the_fault_begins_at_its_onset_and_not_before(folder: Path) -> None:
    ill, well = rows(made(SMALL, folder)), rows(made(SMALL.twin, folder))
    assert sorted(ill) == sorted(well) == list(range(SMALL.steps + 1))
    for step in range(SMALL.onset):
        assert ill[step] == well[step]
    at, clean = ill[SMALL.onset], well[SMALL.onset]
    assert at["optim/lr"] == pytest.approx(30 * clean["optim/lr"])
    assert at["optim/update_ratio"] > 3 * clean["optim/update_ratio"]
    assert at["reward/mean"] == clean["reward/mean"]  # sampled before the first wrong update


def test_the_truth_lies_beside_the_run(folder: Path) -> None:
    told = dict((path.name, told) for path, told in truth.beside(folder / "develop"))
    ill, well = told[SMALL.name], told[SMALL.twin.name]
    assert (ill.tier, ill.kind, ill.onset_step, ill.severity) == ("T2", "lr-jump", 4, "severe")
    assert ill.accept == BY_KIND["lr-jump"].accept
    assert well.healthy and well.kind == "healthy/plain" and well.onset_step is None


def test_a_case_that_is_there_is_not_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*args: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(live, "train", train)
    assert live.make(SMALL, folder) == made(SMALL, folder)
    with pytest.raises(AssertionError, match="trained again"):
        live.make(replace(SMALL, strength=31.0), folder)


def test_a_case_whose_process_was_killed_is_made_anew(folder: Path, tmp_path: Path) -> None:
    case = SMALL.twin

    def die(*about: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "truth", die)
        process = get_context("fork").Process(target=live.make, args=(case, tmp_path))
        process.start()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert list((tmp_path / "unfinished").rglob("run.json"))
    assert not live.made(case, tmp_path)
    assert rows(live.make(case, tmp_path)) == rows(made(case, folder))
    live._prune(tmp_path, case.half, {case.name})
    assert live.made(case, tmp_path)
    assert not list((tmp_path / "unfinished").iterdir())


def test_a_budget_leaves_cases_out_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(live, "plan", lambda half, draw: [SMALL.twin, SMALL, replace(SMALL, seed=4)])
    assert live.cases("develop", folder=folder, budget_s=0) == [made(SMALL.twin, folder), made(SMALL, folder)]
    assert "2 of 3 cases; the budget left out 1" in capsys.readouterr().err


def test_the_effect_is_measured_against_the_twin(folder: Path) -> None:
    found = effects(made(SMALL, folder), made(SMALL.twin, folder), SMALL.onset)
    assert shows(BY_KIND["lr-jump"], found)
    nothing = effects(made(SMALL.twin, folder), made(SMALL.twin, folder), SMALL.onset)
    assert {effect.size for effect in nothing if not effect.metric.startswith("time/")} == {0.0}
    assert not shows(BY_KIND["lr-jump"], nothing)


@pytest.mark.parametrize("kind", ["outage", "stale-weights", "wrong-groups", "resume-amnesia", "healthy/resumed"])
def test_what_happens_to_a_run_stays_with_it(kind: str, tmp_path: Path) -> None:
    severe = None if kind.startswith("healthy/") else 1.0
    case = replace(SMALL, kind=kind, strength=severe, severity="severe" if severe else None, onset=2, steps=3)
    before = dict(vars(TASKS["addition"]))
    live.train(case, tmp_path / "run", tmp_path)
    assert vars(TASKS["addition"]).keys() <= {*before, "_held_out", "held_out_indices"}
    logged = rows(tmp_path / "run")
    assert sorted(logged) == [0, 1, 2, 3]
    if kind == "outage":
        assert logged[2]["reward/mean"] == 0.0


# --- the plan -----------------------------------------------------------------------------------------------------


def test_the_halves_share_no_seed_strength_or_fault_task() -> None:
    develop, report = plan("develop"), plan("report")
    assert not {case.seed for case in develop} & {case.seed for case in report}
    for fault in FAULTS:
        pairs = zip(fault.develop, fault.report, strict=True)
        assert all(a != b or a in (None, 1.0) for a, b in pairs), fault.kind  # 1 is as bad as a share, or a count, gets
    tasks = [{case.task for case in half if case.severity} for half in (develop, report)]
    assert tasks[0] & tasks[1] == {"search"}


def test_another_draw_of_a_half_shares_no_run_with_any_other() -> None:
    parts = [plan(half, draw) for half in sorted(HOSTS) for draw in (0, 1, 2)]
    for a, b in combinations(parts, 2):
        assert not {case.seed for case in a} & {case.seed for case in b}
    for first, second in (parts[:2], parts[3:5]):
        same = [a.onset == b.onset for a, b in zip(first, second, strict=False) if a.severity and b.severity]
        assert sum(same) < len(same) / 4  # onsets are drawn anew, not copied
        assert [(c.kind, c.severity, c.strength) for c in first if c.severity] == [
            (c.kind, c.severity, c.strength) for c in second if c.severity
        ]


def test_draws_are_kept_apart(tmp_path: Path) -> None:
    assert live.place(tmp_path, 0) == tmp_path
    assert len({live.place(tmp_path, draw) for draw in range(3)}) == 3


@pytest.mark.parametrize("half", sorted(HOSTS))
def test_a_plan_is_mostly_not_one_thing(half: str) -> None:
    wanted = plan(half)
    ill = [case for case in wanted if case.severity]
    well = [case for case in wanted if not case.severity]
    assert len({case.name for case in wanted}) == len(wanted)
    assert len(well) >= 0.4 * len(wanted)
    assert len({case.kind for case in well}) >= 10
    assert len({case.kind for case in ill}) >= 25
    assert {case.algorithm for case in ill} == {"grpo", "ppo"}
    for severity in SEVERITIES:
        assert sum(case.severity == severity for case in ill) >= 25
    for case in ill:
        assert case.twin in well
        assert live_plan.FIRST_ONSET <= case.onset <= live_plan.LAST_ONSET * case.steps
    third = wanted[: len(wanted) // 3]
    assert sum(case.severity is None for case in third) >= 0.4 * len(third)  # a budget leaves a fair sample


def test_every_fault_names_causes_that_are_listed() -> None:
    assert {cause for fault in FAULTS for cause in fault.causes} <= set(CAUSES)
    assert len(BY_KIND) == len(FAULTS) and len(live_lookalikes.BY_KIND) == len(live_lookalikes.LOOKALIKES)
    assert all(name[-1] in "+-^" for fault in FAULTS for name in fault.shows)


# --- when the reward fell -----------------------------------------------------------------------------------------


def wave(level: float, first: int, last: int) -> dict[int, float]:
    """Rewards that swing by 0.05 around a level, without any randomness."""
    return {step: level + 0.05 * math.sin(7.3 * step) for step in range(first, last)}


def test_a_reward_that_falls_for_good_is_found_where_it_falls() -> None:
    twin = wave(0.6, 1, 200)
    assert falls_at(wave(0.6, 1, 120) | wave(0.3, 120, 200), twin, onset=80) == 120


def test_a_reward_that_recovers_or_never_fell_is_not() -> None:
    twin = wave(0.6, 1, 200)
    assert falls_at(wave(0.6, 1, 100) | wave(0.2, 100, 130) | wave(0.6, 130, 200), twin, onset=80) is None
    assert falls_at({step: value + 0.01 * (-1) ** step for step, value in twin.items()}, twin, onset=80) is None
    assert falls_at(wave(0.9, 1, 200), twin, onset=80) is None
