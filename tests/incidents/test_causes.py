"""Diagnosis on incidents with a known cause, each beside look-alikes that must not get it.

A run is what the series say, the onset is at step 150, and the findings are those its detectors would have raised.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import stabilizer
from stabilizer.core.records import Cause, Finding
from stabilizer.incidents.diagnosis import CAUSES, ENOUGH, causes
from stabilizer.incidents.diagnosis.case import Case
from stabilizer.remedies import advise, for_cause
from stabilizer.runs.history import History
from stabilizer.runs.stalls import STALLS
from tests.series import history

ONSET = 150
CALM = {
    "reward/mean": "0.2+0.002~0.02x200",
    "policy/entropy": "1.0+-0.001~0.02x200",
    "policy/kl_old": "0.002%0.2x200",
    "policy/kl_ref": "0.01+0.0003%0.1x200",
    "optim/grad_norm": "0.5%0.2x200",
    "optim/lr": "1e-6x200",
    "policy/mismatch_kl": "0.0004%0.2x200",
    "rollout/staleness": "0x200",
    "rollout/length_mean": "200%0.03x200",
}
"""A run that learns."""
BREAKS = {
    "reward/mean": "0.2+0.002~0.02x158 0.5+-0.04~0.02x12 0.02~0.01x30",
    "policy/kl_old": "0.002%0.2x148 0.08%0.3x52",
    "policy/kl_ref": "0.01+0.0003%0.1x150 0.06*1.3%0.1x15 3%0.1x35",
    "optim/grad_norm": "0.5%0.2x150 3%0.4x50",
    "optim/update_ratio": "0.001%0.1x150 0.02%0.2x50",
}
"""The same, broken at step 150 by steps that are too large."""
UNMEASURED = {"policy/kl_old": "_x200", "optim/update_ratio": "_x200"}
SLOWLY_SURE = "1.0*0.985~0.01x150 0.08~0.01x50"
BLOWS_UP = {"policy/entropy": "1.0~0.02x150 1.0*1.03~0.02x50"}
STANDS = {"reward/mean": "0.2+0.006~0.02x50 0.5~0.02x150", "policy/entropy": "1.0~0.02x200"}
"""A reward that has been flat since step 50, with entropy left."""
DRIFT = {"policy/kl-runaway": 150, "reward/collapse": 158}
FLAT = {"reward/plateau": 60}
ENTROPY_UP = {"policy/entropy-explosion": 150}


def told(findings: dict, series: dict, about=None, events=(), **evidence):
    """Causes of an incident with these findings (id to onset, or id to (onset, summary))."""
    run = history(CALM | series, about=about, events=events)
    raised = []
    for id, told in findings.items():
        onset, words = told if isinstance(told, tuple) else (told, f"{id} since step {told}")
        raised.append(Finding(id, "warn", words, onset, onset + 3, run.step, evidence=evidence))
    return causes(raised, run.view())


CASES = {
    # the same collapse, by the knob that was turned before it
    "lr raised": ("lr-too-high", DRIFT, BREAKS | {"control/lr_scale": "1x145 8x55"}),
    "lr jumped in a foreign log": ("lr-too-high", DRIFT, BREAKS | {"optim/lr": "1e-6x146 1e-5x54"}),
    "steps too large": ("lr-too-high", DRIFT, BREAKS),
    "clip widened": ("clip-too-wide", DRIFT, BREAKS | {"control/epsilon_high": "0.28x145 3x55"}),
    "more passes": ("too-many-epochs", DRIFT, BREAKS | {"control/inner_epochs": "1x145 8x55"}),
    "anchor let go": ("no-kl-anchor", DRIFT, {"control/beta": "0.01x140 0x60"} | BREAKS),
    "engine changed": (
        "engine-mismatch", {"policy/mismatch": 130} | DRIFT,
        BREAKS | {"policy/mismatch_kl": "0.0004%0.2x130 0.05%0.2x70"},
    ),
    "lr raised over many rows": ("lr-too-high", DRIFT, BREAKS | {"optim/lr": "1e-6x130 1e-6*1.06x20 4e-6x50"}),
    "the engine kept old weights": (
        "stale-weights", {"policy/mismatch": 149, "policy/stale-rollouts": 150},
        {"policy/mismatch_kl": "0.0004%0.2x150 0.05%0.2x50", "rollout/sync_error": "1e-6%0.2x150 0.4%0.2x50"},
    ),
    "entropy fell, then the reward": (
        "exploration-exhausted", {"policy/entropy-collapse": 120, "reward/collapse": 158},
        {"policy/entropy": "1.0~0.02x120 1.0*0.9~0.01x30 0.05~0.01x50", "reward/mean": BREAKS["reward/mean"]},
    ),
    "larger steps, which only the KL to the reference shows": (
        "lr-too-high", {"policy/entropy-collapse": 5} | DRIFT, BREAKS | UNMEASURED | {"policy/entropy": SLOWLY_SURE},
    ),
    "certainty, and a drift no faster than before": (
        "exploration-exhausted", {"policy/entropy-collapse": 5} | DRIFT,
        BREAKS | UNMEASURED | {"policy/entropy": SLOWLY_SURE, "policy/kl_ref": "0.01+0.005%0.05x200"},
    ),
    "weights not handed over": (
        "stale-weights", {"policy/stale-rollouts": 130} | DRIFT, BREAKS | {"rollout/staleness": "0x130 16x70"},
    ),
    "no anchor ever, slow drift": (
        "no-kl-anchor", {"policy/kl-runaway": 150},
        {"control/beta": "0x200", "policy/kl_ref": "0.01%0.1x150 0.02*1.05%0.1x50"},
    ),
    # entropy that rises
    "bonus raised": ("entropy-bonus-too-large", ENTROPY_UP, BLOWS_UP | {"control/entropy_coef": "0x140 0.05x60"}),
    "bonus always large": ("entropy-bonus-too-large", ENTROPY_UP, BLOWS_UP | {"control/entropy_coef": "0.05x200"}),
    "target above": ("entropy-bonus-too-large", ENTROPY_UP, BLOWS_UP | {"control/entropy_target": "0x140 5x60"}),
    # facts
    "nan": ("numeric-overflow", {"numerics/non-finite": 150}, {"policy/loss": "0.1~0.01x150 nanx50"}),
    "advantages off": ("wrong-groups", {"system/invariant": 150}, {}),
    "groups of one answer": ("single-answers", {"system/invariant": 0}, {}),
    "out of memory": ("out-of-memory", {"system/crashed": (150, "torch.OutOfMemoryError: CUDA out of memory")}, {}),
    "worker lost": ("infrastructure", {"system/crashed": (150, "a Ray worker died")}, {}),
    "program stopped": ("program-error", {"system/crashed": (150, "KeyError: 'answer' in reward.py, line 12")}, {}),
    "slower": ("infrastructure", {"system/slowdown": 150}, {}),
    "leaking": ("memory-leak", {"system/memory-growth": 150}, {}),
    "nothing arrives": (
        "weights-frozen", {"optim/no-update": 150},
        {"optim/update_ratio": "0.001%0.1x150 0x50", "reward/zero_std_frac": "0.2~0.02x200"},
    ),
    "stalled": ("infrastructure", {"system/stalled": 150}, {}),
    "config refused": ("config-error", {"system/config-error": (1, "global batch 7 is not divisible by 8")}, {}),
    "rewards missing": (
        "reward-fault", {"reward/outage": 150, "reward/collapse": 152},
        {"reward/mean": "0.5~0.02x150 0.1~0.02x50"},
    ),
    "unit changed": ("reward-fault", {"reward/scale-shift": 150}, {"reward/mean": "0.5~0.02x150 1.5~0.06x50"}),
    "only the reward fell": (
        "reward-fault", {"reward/collapse": 150}, {"reward/mean": "0.2+0.002~0.02x150 0.02~0.01x50",
         "optim/update_ratio": "0.001%0.1x200"},
    ),
    "critic fails": (
        "critic-broken", {"value/critic-failure": 140, "reward/collapse": 160},
        {"value/explained_variance": "0.7~0.03x140 -0.5~0.1x60"},
    ),
    "estimator": ("kl-estimator", {"policy/kl-estimator": 150}, {}),
    "tool returns nothing": (
        "tool-broken", {"rollout/tool-collapse": 150},
        {"rollout/retrieved_frac": "0.4~0.02x145 0.02~0.01x55", "rollout/searches_mean": "2~0.1x150 0.1~0.05x50"},
    ),
    "data changed": ("data-shift", {"system/data-shift": 150}, {"reward/mean": "0.5~0.02x150 0.3~0.02x50"}),
    "optimizer state": ("optimizer-state", {"optim/optimizer-state": 150}, {}),
    # the reward rewards the wrong thing
    "hacked": (
        "reward-hackable", {"reward/hacking": 150},
        {"reward/mean": "0.3~0.02x150 0.3+0.01~0.02x50", "accuracy/val": "0.4~0.01x150 0.4+-0.004~0.01x50"},
    ),
    "padded": (
        "length-rewarded", {"rollout/length-explosion": 150, "reward/hacking": 160},
        {"rollout/length_mean": "200%0.03x150 200*1.03%0.03x50",
         "rollout/length_reward_corr": "0.1~0.05x150 0.7~0.05x50",
         "reward/mean": "0.3~0.02x150 0.3+0.01~0.02x50", "accuracy/val": "0.4~0.01x200"},
    ),
    "limit lowered": (
        "capped-length", {"rollout/truncation": 150},
        {"control/max_completion": "512x148 64x52", "rollout/truncated_frac": "0.02~0.01x150 0.6~0.05x50"},
    ),
    "limit lowered, nobody logs it": (
        "capped-length", {"rollout/truncation": 148, "reward/collapse": 150, "system/data-shift": 150},
        {"rollout/truncated_frac": "0.02~0.01x150 0.6~0.05x50", "rollout/length_mean": "200%0.03x150 150%0.03x50",
         "reward/mean": "0.2+0.002~0.02x150 0.1~0.01x50"},
    ),
    "limit reached": (
        "capped-length", {"rollout/truncation": 150},
        {"rollout/truncated_frac": "0.02~0.01x150 0.4~0.05x50"},
    ),
    # why a reward is flat
    "entropy used up": ("exploration-exhausted", FLAT, STANDS | {"policy/entropy": "1.0~0.02x30 0.1~0.01x170"}),
    "entropy collapsed": (
        "exploration-exhausted", {"policy/entropy-collapse": 60} | FLAT,
        STANDS | {"policy/entropy": "1.0~0.02x30 0.1~0.01x170"},
    ),
    "cooled": (
        "exploration-exhausted", {"policy/entropy-collapse": 150},
        {"control/temperature": "1x145 0.3x55", "policy/entropy": "1.0~0.02x145 0.1~0.01x55"},
    ),
    "dead groups": ("dead-groups", FLAT, STANDS | {"reward/zero_std_frac": "0.8~0.03x200"}),
    "all fail": (
        "prompts-too-hard", FLAT,
        STANDS | {"reward/zero_std_frac": "0.8~0.03x200", "reward/all_fail_frac": "0.75~0.03x200"},
    ),
    "all pass": (
        "saturated", FLAT,
        STANDS | {"reward/zero_std_frac": "0.8~0.03x200", "reward/all_pass_frac": "0.75~0.03x200"},
    ),
    "nearly full": (
        "saturated", {"reward/saturated": 60},
        {"reward/mean": "0.2+0.015~0.01x50 0.95~0.01x150", "policy/entropy": "1.0~0.02x30 0.1~0.01x170"},
    ),
    "flat at the half, and certain": (
        "exploration-exhausted", FLAT, STANDS | {"policy/entropy": "1.0~0.02x30 0.1~0.01x170"},
    ),
    "pinned": ("pinned-by-kl", FLAT, STANDS | {"control/beta": "0.5x200", "policy/kl_ref": "0.005%0.1x200"}),
    "a part that never pays": (
        "reward-fault", {"reward/hacking": 150},
        {f"reward/{name}mean": "0.1+0.004~0.02x200" for name in ("", "format/")} | {"reward/answer/mean": "0x200"},
    ),
    "paid for its penalty": (
        "pinned-by-kl", {"reward/collapse": 150},
        {"reward/mean": "0.6~0.02x150 0.3~0.02x50", "verl/critic/rewards/mean": "-0.2~0.02x150 0.1~0.02x50"},
    ),
    "small steps": ("lr-too-low", FLAT, STANDS | {"policy/kl_old": "2e-7%0.2x200", "policy/kl_ref": "0.001%0.1x200"}),
    "rate cut": ("lr-too-low", {"reward/plateau": 100}, STANDS | {"control/lr_scale": "1x60 0.02x140"}),
    "few prompts": ("batch-too-small", FLAT, STANDS | {"batch/prompts": "4x200"}),
    "warming up": ("still-warming-up", FLAT, STANDS | {"optim/lr": "1e-9+1e-9x200"}),
    "noisy reward": ("noise-floor", {"reward/noise-floor": 60}, STANDS | {"batch/prompts": "64x200"}),
    "noisy small batch": ("batch-too-small", {"reward/noise-floor": 60}, STANDS | {"batch/prompts": "4x200"}),
    "noise of one prompt": (
        "batch-too-small", FLAT | {"reward/noise-floor": 60},
        STANDS | {"batch/prompts": "1x200", "policy/entropy": "1.0~0.02x30 0.1~0.01x170"},
    ),
    "harder prompts": (
        "prompts-too-hard", {"reward/no-signal": 151, "reward/collapse": 151},
        {"reward/mean": "0.2+0.002~0.02x150 0.02~0.01x50", "rollout/length_mean": "200%0.03x150 250%0.03x50",
         "reward/zero_std_frac": "0.2~0.03x150 0.95~0.02x50"},
    ),
    "never a success": (
        "prompts-too-hard", {"reward/no-signal": 1},
        {"reward/mean": "0.0x200", "reward/all_fail_frac": "0.98~0.01x200"},
    ),
}  # fmt: skip
EVIDENCE = {
    "groups of one answer": {"metric": "batch/group_size", "metrics": ["batch/group_size"]},
    "advantages off": {"metric": "reward/advantage_center_error"},
    "program stopped": {"cause": "program-error"},
    "out of memory": {"cause": "out-of-memory"},
    "memory that ran out": {"cause": "out-of-memory"},
    "the engine kept old weights": {"metric": "rollout/sync_error"},
}
SHOWN = {"weights-frozen": 0.8, "reward-fault": 0.6, "dead-groups": 0.9}
CASES |= {f"first rows: {cause}": (cause, {"system/first-rows": 150}, {}) for cause in SHOWN}
EVIDENCE |= {
    f"first rows: {cause}": {"cause": cause, "confidence": sure, "facts": [""]} for cause, sure in SHOWN.items()
}
HANGS = {f"a hang: {kind}": kind for kind in STALLS}
CASES |= {name: (kind, {"system/stalled": 150}, {}) for name, kind in HANGS.items()}
EVIDENCE |= {name: {"cause": kind, "what": "it waits"} for name, kind in HANGS.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_likeliest_cause_is_the_true_one(name: str) -> None:
    cause, findings, series = CASES[name]
    found = told(findings, series, **EVIDENCE.get(name, {}))
    assert found[0].id == cause, found
    assert found[0].confidence >= ENOUGH and found[0].why


def test_every_cause_has_a_case_and_every_case_is_told_from_the_others() -> None:
    """Each cause leads where it is true and nowhere else: a rule that always fires leads somewhere it must not."""
    leading = {name: told(f, s, **EVIDENCE.get(name, {}))[0].id for name, (_, f, s) in CASES.items()}
    wrong = {name: (CASES[name][0], led) for name, led in leading.items() if led != CASES[name][0]}
    assert wrong == {}
    elsewhere = {"precision", "divided-by-spread"}  # tested below: a configuration, an incident of information
    assert set(CAUSES) - {cause for cause, *_ in CASES.values()} == elsewhere


UNDETERMINED = {
    "a plateau of which nothing else is known": (FLAT, {"reward/mean": STANDS["reward/mean"]}),
    "a collapse of which nothing else is known": (
        {"reward/collapse": 150},
        {"reward/mean": "0.2+0.002~0.02x150 0.4+-0.01~0.02x50"},
    ),
    "entropy that rises with no bonus paid": (ENTROPY_UP, BLOWS_UP),
    "a knob that was turned long before": (ENTROPY_UP, BLOWS_UP | {"control/entropy_coef": "0.005x20 0.009x180"}),
    "a rate that was lowered and warms up again": (
        ENTROPY_UP, BLOWS_UP | {"control/lr_scale": "1x120 0.25x20 0.25+0.0125x20 0.5x40"},
    ),
    "a knob that was turned long after": (ENTROPY_UP, BLOWS_UP | {"control/epsilon_high": "0.28x190 0.4x10"}),
    "a longer answer nobody was paid for": (
        {"rollout/length-explosion": 150},
        {"rollout/length_mean": "200%0.03x150 400%0.03x50"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDETERMINED)
def test_insufficient_evidence_is_undetermined(name: str) -> None:
    findings, series = UNDETERMINED[name]
    bare = {metric: "_x200" for metric in CALM if metric not in series and "nothing else" in name}
    found = told(findings, bare | series)
    assert found[0].id == "undetermined", found


NOT_CLAIMED = {
    "an anchor that is there": ("no-kl-anchor", DRIFT, BREAKS | {"control/beta": "0.01x200"}),
    "a slow fall": (
        "reward-fault", {"reward/collapse": 110},
        {"reward/mean": "0.5~0.01x110 0.5+-0.01~0.01x45 0.05~0.01x45", "optim/update_ratio": "0.001%0.1x200"},
    ),
    "memory that ran out": ("infrastructure", *CASES["out of memory"][1:]),
    "half of the entropy left": (
        "exploration-exhausted", FLAT,
        STANDS | {"policy/entropy": "1.0~0.02x30 0.5~0.02x170"},
    ),
    "a usual penalty": ("pinned-by-kl", FLAT, STANDS | {"control/beta": "0.01x200", "policy/kl_ref": "0.005%0.1x200"}),
    "a penalised reward that falls too": (
        "pinned-by-kl", {"reward/collapse": 150},
        {"reward/mean": "0.6~0.02x150 0.3~0.02x50", "verl/critic/rewards/mean": "0.5~0.02x150 0.2~0.02x50"},
    ),
    "usual steps": ("lr-too-low", FLAT, STANDS | {"policy/kl_old": "1e-3%0.2x200", "policy/kl_ref": "0.005%0.1x200"}),
    "some groups that pass": (
        "saturated", FLAT,
        STANDS | {"reward/all_pass_frac": "0.2~0.03x200", "batch/prompts": "4x200"},
    ),
    "a rate that creeps": ("still-warming-up", FLAT, STANDS | {"optim/lr": "1e-6+1e-10x200"}),
    "a mismatch that came last": (
        "engine-mismatch", DRIFT,
        BREAKS | {"policy/mismatch_kl": "0.0004%0.2x175 0.05%0.2x25"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_CLAIMED)
def test_an_excluded_cause_is_not_mentioned(name: str) -> None:
    cause, findings, series = NOT_CLAIMED[name]
    assert cause not in [found.id for found in told(findings, series, **EVIDENCE.get(name, {}))]


def test_a_warm_up_is_no_jump_of_the_learning_rate() -> None:
    doubling = {"optim/lr": "_x100 1e-14*1.6x50 1e-4x50"}
    assert "went from" not in told(DRIFT, BREAKS | doubling)[0].why
    creeping = {"optim/lr": "1e-6*1.01x200"}
    assert "went from" not in told(DRIFT, BREAKS | creeping)[0].why


def test_more_evidence_raises_confidence() -> None:
    tool = {"rollout/tool-collapse": 150}
    read = {"rollout/retrieved_frac": "0.4~0.02x145 0.02~0.01x55"}
    invalid = {"rollout/invalid_calls_frac": "0.02~0.01x145 0.5~0.05x55"}
    sure = [told(tool, series)[0].confidence for series in ({}, read, read | invalid)]
    assert sure[0] < sure[1] < sure[2]
    aged = CASES["engine changed"][2] | {"rollout/staleness": "0x130 16x70"}
    assert "excludes old weights" not in told(CASES["engine changed"][1], aged)[0].why


@pytest.mark.parametrize(
    ("config", "findings", "leads"),
    [({"fp16": True}, {"numerics/non-finite": 150}, "precision"),
     ({"precision": "float16"}, {"numerics/non-finite": 150}, "precision"),
     ({"precision": "bfloat16"}, {"numerics/non-finite": 150}, "numeric-overflow"),
     ({"precision": "bfloat16"}, {"optim/no-update": 20}, "precision"),
     ({"precision": "float32"}, {"optim/no-update": 20}, "weights-frozen")],
)  # fmt: skip
def test_low_precision_is_a_cause_only_where_it_is_configured(config: dict, findings: dict, leads: str) -> None:
    found = told(findings, {"optim/update_ratio": "1e-8%0.1x200"}, about={"config": config})
    assert found[0].id == leads, found


def test_restoring_an_undeclared_change_is_the_first_advice() -> None:
    knobs = {"control/lr_scale": "1x200", "control/beta": "0.01x148 0.3x52"}
    cause = [Cause("pinned-by-kl", 0.9, "")]
    first = advise(cause, history(CALM | knobs).view(), ONSET)[0]
    assert (first.id, first.change) == ("restore-setting", {"control/beta": (0.3, 0.01)})
    declared = history(CALM | knobs, events=[(148, "schedule-change")]).view()
    assert "restore-setting" not in [advice.id for advice in advise(cause, declared, ONSET)]


def test_a_non_finite_reward_is_a_reward_fault() -> None:
    found = told({"numerics/non-finite": 150}, {}, metric="reward/mean", metrics=["reward/mean"])
    assert found[0].id == "reward-fault"


@pytest.mark.parametrize("metric", ["rollout/sync_error", "policy/ratio_first_error", "reward/advantage_center_error"])
def test_a_broken_invariant_names_the_cause(metric: str) -> None:
    expected = {"rollout/sync_error": "stale-weights", "policy/ratio_first_error": "engine-mismatch"}
    found = told({"system/invariant": 150}, {}, metric=metric)
    assert found[0].id == expected.get(metric, "wrong-groups")


def test_the_leading_metric_is_named_with_its_lead() -> None:
    why = told(*CASES["engine changed"][1:])[0].why
    assert "policy/mismatch_kl left its trend first (step 13" in why and "steps later" in why
    assert "excludes old weights" in why


def test_the_first_move_counts_more_than_the_largest() -> None:
    """With the mismatch moving last, the same findings are a step too large whose damage the engine shows."""
    late = BREAKS | {"policy/mismatch_kl": "0.0004%0.2x175 0.05%0.2x25"}
    assert told(DRIFT, late)[0].id == "lr-too-high"
    early = told(DRIFT, CASES["engine changed"][2])
    assert early[0].id == "engine-mismatch" and early[0].confidence > next(
        (cause.confidence for cause in early if cause.id == "lr-too-high"), 0
    )


def test_a_plateau_names_what_the_numbers_exclude() -> None:
    why = told(FLAT, CASES["few prompts"][2] | {"reward/zero_std_frac": "0.2~0.02x200", "control/beta": "0x200"})[0].why
    for words in ("4 prompts per update", "excludes lost exploration", "a missing signal", "beta = 0 excludes"):
        assert words in why, why


def test_a_small_batch_is_known_from_the_configuration_of_another_trainer() -> None:
    def first(mini: int, trainer: str = "easyr1") -> str:
        batch = {"data": {"rollout_batch_size": 32}, "worker": {"actor": {"global_batch_size": mini}}}
        return told({"reward/noise-floor": 60}, STANDS, {"trainer": trainer, "config": batch})[0].id

    assert first(8) == "batch-too-small" and first(32) == "noise-floor"
    assert first(8, "another") == "noise-floor", "the meaning of its keys is unknown"
    assert told({"reward/noise-floor": 60}, STANDS, {"trainer": "easyr1", "config": {}})[0].id == "noise-floor"


def test_a_resume_or_a_data_stage_near_the_onset_is_evidence() -> None:
    plain = told({"optim/optimizer-state": 150}, {})[0]
    resumed = told({"optim/optimizer-state": 150}, {}, events=[(147, "resume")])[0]
    assert resumed.confidence > plain.confidence and "resumed at step" in resumed.why
    staged = told({"reward/no-signal": 150}, {"reward/mean": "0.5~0.02x150 0.3~0.02x50"}, events=[(148, "data-stage")])
    assert staged[0].id == "data-shift"


def test_reasons_contain_numbers() -> None:
    for name, (_, findings, series) in CASES.items():
        first = told(findings, series, **EVIDENCE.get(name, {}))[0]
        assert not series or any(letter.isdigit() for letter in first.why), (name, first.why)


def test_a_run_without_numbers_breaks_no_rule() -> None:
    from stabilizer.detectors import DETECTORS
    from stabilizer.incidents.diagnosis.graph import _STAGE_OF

    for id in {detector.id for detector in DETECTORS} | set(_STAGE_OF):
        for view in (History().view(0), history({"reward/mean": "0.5x3 nanx3"}).view()):
            found = causes([Finding(id, "warn", "x", 1, 1, 1)], view)
            assert found and all(0 <= cause.confidence <= 1 for cause in found)


def test_every_finding_has_its_place_in_the_order_and_is_known_to_a_rule() -> None:
    from stabilizer.detectors import DETECTORS
    from stabilizer.incidents.diagnosis.graph import _STAGE_OF

    ids = {detector.id for detector in DETECTORS}
    assert ids <= set(_STAGE_OF)
    rules = Path(stabilizer.__file__).parent / "incidents" / "diagnosis" / "rules"
    text = "".join(path.read_text() for path in rules.glob("*.py"))
    unknown = {id for id in ids if f'"{id}"' not in text}
    assert unknown == {"system/first-rows"}, "its findings bring their cause along"


def test_every_cause_has_advice_that_can_be_followed() -> None:
    run = history(CALM)
    for cause in CAUSES:
        told = [*for_cause(cause)]
        assert told, cause
        assert all(remedy.why and remedy.expects for remedy in told)
        assert any(remedy.by_hand or remedy.safety != "advice" or cause == "lr-too-low" for remedy in told), cause
        said = advise([Cause(cause, 0.9, "")], run.view())
        assert all(len(advice.how) > 20 for advice in said if advice.id != "raise-lr"), (cause, said)


def test_changed_prompts_do_not_lead_to_a_smaller_step() -> None:
    changed = told({"system/data-shift": 148} | DRIFT, BREAKS)
    assert changed[0].id == "data-shift" and "the prompts changed at step 148" in changed[1].why
    learned = told({"system/data-shift": 148} | DRIFT, BREAKS, gap=0.4)
    assert "lr-too-high" in [cause.id for cause in learned if cause.confidence >= ENOUGH]


def test_skipped_updates_do_not_lead_to_a_rollback() -> None:
    lost = CALM | {"policy/loss": "0.1~0.01x150 nanx50"}
    cause = [Cause("numeric-overflow", 0.6, "")]
    assert "roll-back" in [advice.id for advice in advise(cause, history(lost).view())]
    partly = history(lost | {"optim/skipped": "0x180 1x20"})
    assert "roll-back" in [advice.id for advice in advise(cause, partly.view())]
    guarded = history(lost | {"optim/skipped": "0x150 1x50"})
    assert [advice.id for advice in advise(cause, guarded.view())] == ["lower-lr", "clip-updates", "more-bits"]


def test_an_incident_is_explained_again_after_more_rows() -> None:
    """When an incident opens little of what moved has shown; ten and thirty rows later it is explained anew."""
    from stabilizer.analysis.watching import new_watch
    from stabilizer.detectors.base import Detector

    class Collapses(Detector):
        id, needs = "reward/collapse", ()

        def check(self, view):
            return self.finding(view, "critical", 150, "fell at 150") if view.step >= 150 else None

    watch, led = new_watch((Collapses(),)), []
    late = history(CALM | BREAKS | {"policy/kl_old": "0.002%0.2x154 0.08%0.3x46", "optim/update_ratio": "0.001x200"})
    for step in range(1, 201):
        changed = watch.tick(late.view(step))
        led += [(step, finding.causes[0].id) for finding in changed]
    assert led[0] == (152, "undetermined") and led[-1][1] == "lr-too-high"
    assert len(led) <= 3, "told again only when the answer is another"


def test_a_rescaled_gradient_is_a_reward_fault_and_no_large_step() -> None:
    series = {"optim/grad_norm": "0.5%0.2x150 8%0.2x50", "optim/update_ratio": "0.001%0.1x200"}
    assert told({"optim/grad-explosion": 150}, series, rescaled=True)[0].id == "reward-fault"
    moves = series | {"optim/update_ratio": "0.001%0.1x150 0.004%0.1x50"}
    assert told({"optim/grad-explosion": 150}, moves)[0].id != "reward-fault"


def test_updates_skipped_for_nan_are_no_frozen_weights() -> None:
    found = told({"numerics/non-finite": 150, "optim/no-update": 150}, {"optim/grad_norm": "0.5%0.2x150 nanx50"})
    assert found[0].id == "numeric-overflow"


def test_a_failed_probe_means_stale_weights() -> None:
    metrics = ["policy/ratio_first_error", "rollout/sync_error"]
    found = told({"system/invariant": 150}, {}, metric="policy/ratio_first_error", metrics=metrics)
    assert found[0].id == "stale-weights"


@pytest.mark.parametrize("beta", [10**400, float("inf"), float("nan"), True, "0.1", None])
def test_a_malformed_setting_does_not_stop_the_advice(beta):
    run = history(CALM)
    run.about = {"config": {"beta": beta}}
    assert advise([Cause("no-kl-anchor", 0.9, "")], run.view())


def test_a_norm_that_creeps_while_rewards_come_closer_is_blamed_on_the_division_by_their_spread() -> None:
    climbs = {"optim/grad_norm": "1.3*1.005%0.2x200", "control/beta": "0x200"}
    narrows, stays = {"reward/std_group": "0.2%0.1x100 0.05%0.1x100"}, {"reward/std_group": "0.2%0.1x200"}

    def first(series: dict, about=None, **evidence) -> str:
        run = history(CALM | climbs | series, about=about)
        found = Finding("optim/grad-explosion", "info", "it climbs", 150, 153, run.step, evidence=evidence)
        return causes([found], run.view())[0].id

    assert first(narrows, crept=True) == "divided-by-spread"
    assert first(stays, crept=True) == "undetermined"
    silent = {"reward/zero_std_frac": "0.02~0.01x100 0.4~0.05x100"}
    batch = {"reward/std": "0.25%0.05x100 0.16%0.05x100"}  # TRL from 0.27 on logs no spread within groups
    assert first(batch | silent, crept=True) == "divided-by-spread"
    assert first(batch, crept=True) == "undetermined"
    assert first({"reward/std": "0.25%0.05x200"} | silent, crept=True) == "undetermined"
    assert first(narrows) == "no-kl-anchor", "a norm that left its trend has another cause"
    undivided = {"config": {"policy": {"advantage": "group_mean"}}}
    assert first(narrows, undivided, crept=True) == "undetermined"


def test_a_jump_of_entropy_makes_other_sampling_as_likely_as_other_prompts() -> None:
    shifted = {"reward/mean": "0.5~0.02x150 0.3~0.02x50"}
    hotter = told({"system/data-shift": 150}, shifted | {"policy/entropy": "1~0.02x150 2.8~0.1x50"})[0]
    assert hotter.doubt and "sampling temperature" in hotter.why
    assert not told({"system/data-shift": 150}, shifted | {"policy/entropy": "1~0.02x150 1.3~0.05x50"})[0].doubt


@pytest.mark.parametrize(("pace", "faster"), [(1, False), (2, False), (6, True)])
def test_larger_steps_show_in_the_pace_of_the_root_of_the_kl(pace, faster) -> None:
    way = [0.01 * (row + (pace - 1) * min(max(row - 15, 0), 12)) for row in range(60)]  # faster for 12 rows
    run = history({"policy/kl_ref": " ".join(f"{far**2:.6f}x1" for far in way)})
    case = Case([Finding("policy/kl-runaway", "critical", "", 15, 20, 60)], run.view())
    assert bool(case.hastened) == faster


def test_a_critic_that_never_learned_from_batches_that_hide_progress_is_not_the_first_cause() -> None:
    series = {"reward/mean": "0.2~0.12x200", "batch/prompts": "12x200", "optim/updates": "2x200"}
    both = {"reward/noise-floor": 1, "value/critic-failure": 1}
    assert told(both, series, baseline=0.0)[0].id == "batch-too-small"
    assert told(both, series, baseline=0.6)[0].id == "critic-broken", "it had learned before"
    assert told({"value/critic-failure": 1}, series, baseline=0.0)[0].id == "critic-broken"


def test_silent_rows_of_one_group_are_the_share_of_their_mean():
    rows = {"reward/zero_std_frac": "1x191 0x1 1x2 0x1 1x2 0x1 1x2", "reward/mean": "0.5x200"}
    assert Case([], history(rows).view()).recent("reward/zero_std_frac") == pytest.approx(0.85)
    assert Case([], history({"policy/entropy": "1x189 3x11"}).view()).recent("policy/entropy") == 3.0
