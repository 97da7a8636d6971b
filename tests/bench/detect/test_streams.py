"""Generated runs are the same every time, differ between the halves, and their numbers agree with one another."""

from __future__ import annotations

import numpy as np
import pytest

from bench.detect.catalogue import FAULTS
from bench.detect.host import Draws
from bench.detect.methods import rows
from bench.detect.streams import REPORT_SEEDS, SEVERITIES, Case, build, explain, kinds, make, twin
from stabilizer.incidents.diagnosis import RULES
from stabilizer.runs.history import History

HEALTHY, FAULTY = kinds("report")
BEGINS = {fault.name: fault.begins for fault in FAULTS}


def level(run: History, name: str, first: int, last: int) -> float:
    values = run.view().series(name).between(first, last).finite().values
    return float(np.median(values))


def seen(kind: str, name: str, severity: str = "severe") -> tuple[History, int]:
    """A develop case of a fault whose trainer logs a metric often enough, and its onset."""
    for seed in range(60):
        run, truth = build(Case(kind, seed, severity))
        if len(run.view().series(name)) > 300 and truth.onset_step:
            return run, truth.onset_step
    raise AssertionError(f"no case of {kind} logs {name}")


def test_the_same_case_is_the_same_run() -> None:
    one, other = make("entropy-collapse", 3, "subtle"), make("entropy-collapse", 3, "subtle")
    assert repr(rows(one)) == repr(rows(other))
    assert repr(rows(one)) != repr(rows(make("entropy-collapse", 4, "subtle")))


def test_there_are_enough_kinds_and_some_are_held_out() -> None:
    develop = kinds("develop")
    assert len(HEALTHY) >= 14 and len(FAULTY) >= 25
    assert len(set(HEALTHY) - set(develop[0])) >= 3 and len(set(FAULTY) - set(develop[1])) >= 3
    with pytest.raises(ValueError, match="held out for the report half"):
        make("healthy/sorted-epochs", 1)


def test_the_halves_share_no_parameter() -> None:
    develop, report = (Draws(np.random.default_rng(0), half) for half in ("develop", "report"))
    bins = [{int(6 * d.span(0, 1)) for _ in range(200)} for d in (develop, report)]
    assert bins == [{0, 2, 4}, {1, 3, 5}]


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_runs_learn_and_hold_nothing_impossible(kind: str) -> None:
    assert explain(kind)
    for seed in (REPORT_SEEDS, REPORT_SEEDS + 1):
        run, truth = build(Case(kind, seed))
        view = run.view()
        assert truth.healthy and truth.half == "report" and view.series("reward/mean").steps[-1] <= truth.steps
        for name in view.names():
            values = view.series(name).values
            assert np.isfinite(values).all(), name
            if name.endswith("_frac") or name.startswith("accuracy/"):
                assert values.min() >= 0 and values.max() <= 1, name
        reward = view.series("reward/mean").values
        third = len(reward) // 3
        assert reward[-third:].mean() > reward[:third].mean() - 0.02, "a healthy run must not end lower than it began"


@pytest.mark.parametrize(
    "severity", [SEVERITIES[0], *(pytest.param(severity, marks=pytest.mark.slow) for severity in SEVERITIES[1:])]
)
@pytest.mark.parametrize("kind", FAULTY)
def test_a_fault_equals_its_healthy_twin_up_to_the_onset_and_not_from_there_on(kind: str, severity: str) -> None:
    case = Case(kind, REPORT_SEEDS + 2, severity)
    run, truth = build(case)
    assert not truth.healthy and truth.onset_step is not None and explain(kind)
    first, last = BEGINS.get(kind) or (0.25, 0.65)
    assert first * truth.steps < truth.onset_step <= last * truth.steps + 1
    assert truth.reward_falls_at is None or truth.reward_falls_at >= truth.onset_step
    ill, well = dict(rows(run)), dict(rows(twin(case)))
    differ = [step for step in sorted(ill) if repr(ill[step]) != repr(well.get(step))]
    every = 10 if len(ill) < truth.steps / 5 else 5
    assert differ and truth.onset_step <= differ[0] < truth.onset_step + every + 1


def test_group_statistics_come_from_the_same_counts() -> None:
    for seed in range(40):
        view = make("healthy/base", seed).view()
        if "reward/all_pass_frac" in view and "reward/format/mean" not in view:
            break
    fail, whole, silent = (
        view.series(f"reward/{n}").values for n in ("all_fail_frac", "all_pass_frac", "zero_std_frac")
    )
    np.testing.assert_allclose(fail + whole, silent)
    accuracy = view.series("accuracy/train").values
    assert (whole <= accuracy + 1e-9).all() and (accuracy <= 1 - fail + 1e-9).all()


def test_a_small_batch_is_noisier() -> None:
    def jump(kind: str) -> float:
        runs = [make(kind, seed).view().series("accuracy/train").values for seed in range(10)]
        return float(np.median([np.std(np.diff(values)) for values in runs if len(values) > 100]))

    assert jump("healthy/noisy-small-batch") > 1.5 * jump("healthy/base")


@pytest.mark.parametrize(
    ("kind", "metric", "low", "high"),
    [
        ("entropy-collapse", "policy/entropy", 0, 0.1),
        ("entropy-explosion", "policy/entropy", 4, 20),
        ("gradient-explosion", "optim/grad_norm", 5, 1000),
        ("length-collapse", "rollout/length_mean", 0, 0.2),
        ("length-explosion", "rollout/length_mean", 2.5, 12),
        ("slowdown", "time/step_s", 3, 15),
        ("mismatch", "policy/mismatch_kl", 50, 1e5),
        ("verifier-down", "accuracy/train", 0, 0.2),
    ],
)
def test_severe_faults_are_ruin(kind: str, metric: str, low: float, high: float) -> None:
    run, onset = seen(kind, metric)
    ratio = level(run, metric, onset + 110, onset + 180) / level(run, metric, onset - 40, onset - 1)
    assert low <= ratio <= high


def test_subtle_is_barely_material() -> None:
    run, onset = seen("entropy-collapse", "policy/entropy", "subtle")
    ratio = level(run, "policy/entropy", onset + 90, onset + 150) / level(run, "policy/entropy", onset - 40, onset - 1)
    assert 0.3 < ratio < 0.6
    lost = []
    for seed in range(12):
        run, truth = build(Case("reward-collapse", seed, "subtle"))
        at = truth.onset_step or 0
        if "accuracy/train" in run.view():
            lost.append(level(run, "accuracy/train", at - 30, at - 1) - level(run, "accuracy/train", at + 45, at + 90))
    assert 0.04 < np.median(lost) < 0.25


def test_truncation_cuts_the_share_it_says() -> None:
    run, onset = seen("truncation", "rollout/truncated_frac", "medium")
    assert 0.3 < level(run, "rollout/truncated_frac", onset, onset + 60) < 0.7


def test_numbers_that_stop_being_numbers_are_in_the_log() -> None:
    run, truth = build(Case("not-finite", 0, "severe"))
    loss = run.view().series("policy/loss")
    assert np.isnan(loss.between(truth.onset_step or 0, truth.steps).values).all()
    assert np.isfinite(loss.between(0, (truth.onset_step or 0) - 1).values).all()


def test_causes_that_are_asked_for_exist() -> None:
    known = {name for name, _ in RULES}
    assert {cause for fault in FAULTS for cause in fault.causes} <= known
