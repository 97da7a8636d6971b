"""What separates one cause from another that looks alike: each kind of evidence, beside the run that lacks it.

A run is what the series say, with the onset at step 150; the rival is the same run but for the piece of evidence.
"""

from __future__ import annotations

import pytest

from stabilizer.core.records import Finding
from stabilizer.incidents.diagnosis import causes
from tests.incidents.test_causes import BREAKS, CALM, DRIFT, STANDS, told
from tests.series import history

FELL = {"reward/mean": "0.4~0.03x150 0.4+-0.01~0.03x30 0.1~0.03x20"}
"""A reward that was lost in thirty rows."""
EDGE = {"reward/mean": "0.5~0.03x150 0.02~0.01x50", "optim/update_ratio": "0.001%0.1x200"}
"""A reward that was lost in one row, while the weights change as before."""
USUAL = {"optim/update_ratio": "0.001%0.1x200", "policy/kl_ref": "0.05%0.1x200"}
SPIKES = "0.5%0.1x120 8x1 0.5%0.1x19 8x1 0.5%0.1x19 8x1 0.5%0.1x19 8x1 0.5%0.1x19"
NEW_PART = {
    "reward/mean": "0.3~0.05x150 2.3~0.1x50", "reward/correct/mean": "0.3~0.05x200",
    "reward/style/mean": "_x150 2~0.1x50", "rollout/length_reward_corr": "0~0.1x200",
}  # fmt: skip

SEPARATED = {
    # name: (findings, series, cause, what the rival run has instead, cause that leads there)
    "more updates than before": (
        DRIFT, BREAKS | {"batch/updates": "2x150 8x50"}, "too-many-epochs", {"batch/updates": "2x200"}, "lr-too-high",
    ),
    "steps that grew because there are more of them": (
        {"optim/optimizer-state": 150}, {"batch/updates": "2x150 8x50"}, "too-many-epochs",
        {"batch/updates": "2x200"}, "optimizer-state",
    ),
    "a tool that is asked and gives less": (
        {"reward/collapse": 150}, FELL | USUAL | {"rollout/searches_mean": "1~0.05x200",
                                                  "accuracy/val": "0.8~0.01x150 0.3~0.01x50"}, "tool-broken",
        {"rollout/searches_mean": "0x200"}, "undetermined",
    ),
    "spikes in rows that are as any other": (
        {"optim/grad-spike": 121}, {"optim/grad_norm": SPIKES}, "reward-fault",
        {"policy/kl_old": SPIKES.replace("0.5%0.1", "0.002%0.2").replace("8x1", "0.05x1")}, "undetermined",
    ),
    "two parts told since a step, one of which is what was paid before": (
        {"policy/entropy-collapse": 165}, NEW_PART | {"reward/correct/mean": "_x150 0.3~0.05x50"}, "reward-hackable",
        {"reward/style/mean": "_x200"}, "exploration-exhausted",
    ),
    "a part that is newly paid": (
        {"reward/scale-shift": 150}, NEW_PART, "reward-hackable",
        {"reward/style/mean": "0~0.01x200", "reward/correct/mean": "0.3~0.05x150 2.3~0.1x50"}, "reward-fault",
    ),
    "a gradient on another scale while the policy grows certain": (
        {"optim/grad-explosion": 150}, USUAL | {"optim/grad_norm": "0.5%0.1x150 5%0.1x50",
                                                "policy/entropy": "1.0+-0.003~0.02x200"}, "reward-fault",
        {"optim/update_ratio": "0.001%0.1x150 0.01%0.1x50"}, "undetermined",
    ),
    "what is paid is no longer what is solved": (
        {"policy/entropy-collapse": 150},
        {"reward/mean": "0.3~0.02x200", "accuracy/train": "0.3~0.02x150 0.02~0.01x50"}, "reward-hackable",
        {"accuracy/train": "0.3~0.02x200"}, "exploration-exhausted",
    ),
    "a judge that fails everything, held-out answers too": (
        {"reward/collapse": 150}, EDGE | {"policy/kl_ref": "0.05%0.1x200", "accuracy/val": "0.5~0.02x150 0x50"},
        "reward-fault", {"policy/kl_ref": "0.05%0.1x148 2%0.1x52"}, "undetermined",
    ),
    "a sampler that is off by little": (
        {"system/invariant": 150}, {"rollout/staleness": "0x200"}, "engine-mismatch", {}, "wrong-groups",
    ),
    "a gradient on another scale that harms nothing": (
        {"optim/grad-explosion": 150}, USUAL | {"optim/grad_norm": "0.5%0.1x150 2%0.1x50"}, "reward-fault",
        {"optim/update_ratio": "0.001%0.1x150 0.003%0.1x50"}, "undetermined",
    ),
}  # fmt: skip
EVIDENCE = {
    "a sampler that is off by little": ({"metric": "policy/mismatch_kl"}, {"metric": "reward/advantage_center_error"})
}


@pytest.mark.parametrize("name", SEPARATED)
def test_a_cause_leads_only_with_its_evidence(name: str) -> None:
    findings, series, cause, instead, other = SEPARATED[name]
    evidence, without = EVIDENCE.get(name, ({}, {}))
    found = told(findings, series, **evidence)
    assert found[0].id == cause, found
    rival = told(findings, series | instead, **without)
    assert rival[0].id == other, rival


def test_a_much_later_finding_is_no_cause() -> None:
    late = {"reward/collapse": 110, "optim/optimizer-state": 190}
    falls = {"reward/mean": "0.5~0.03x110 0.5+-0.01~0.03x30 0.2~0.03x60"}
    assert told(late, falls)[0].id != "optimizer-state"
    assert told(late | {"optim/optimizer-state": 112}, falls)[0].id == "optimizer-state"


def test_answers_that_shrink_after_an_outage_were_not_rewarded_for_it() -> None:
    shrank = {
        "rollout/length_mean": "200%0.03x150 100%0.03x50",
        "rollout/length_reward_corr": "0.1~0.02x150 -0.4~0.02x50",
    }
    assert told({"rollout/length-collapse": 150}, shrank)[0].id == "length-rewarded"
    assert told({"rollout/length-collapse": 150, "reward/outage": 148}, shrank)[0].id == "reward-fault"


def test_groups_silent_after_the_fall_are_no_cause() -> None:
    silent = {"reward/zero_std_frac": "0.2~0.03x150 0.8~0.03x50"} | FELL
    found = {"policy/template-collapse": 150, "reward/collapse": 152}
    assert "dead-groups" != told(found, silent)[0].id
    assert told(found, silent | {"reward/zero_std_frac": "0.8~0.03x200"})[0].id == "dead-groups"


def test_an_info_gradient_finding_is_no_policy_move() -> None:
    run = history(CALM | FELL)
    calm, fell = (Finding(id, severity, "x", at, at + 3, run.step) for id, severity, at in
                  (("optim/grad-explosion", "info", 130), ("reward/collapse", "warn", 152)))  # fmt: skip
    assert "lr-too-high" not in [cause.id for cause in causes([calm, fell], run.view()) if cause.confidence >= 0.4]


def test_an_early_plateau_does_not_override_exact_evidence() -> None:
    stands = {"reward/mean": "0.3~0.03x200"}
    assert told({"optim/optimizer-state": 150, "reward/plateau": 30}, stands)[0].id == "optimizer-state"


def test_a_rate_that_fell_well_before_a_plateau_is_dated_explains_it() -> None:
    fell = {"reward/mean": "0.1+0.001~0.02x170 0.27~0.02x330", "optim/lr": "1e-5x170 1e-6x330"}
    assert told({"reward/plateau": 290}, fell)[0].id == "lr-too-low"
    assert told({"reward/plateau": 290}, fell | {"optim/lr": "1e-5x500"})[0].id != "lr-too-low"


def test_failing_groups_with_another_reward_are_not_hard_prompts() -> None:
    fails = {"reward/mean": "0.2+0.004~0.02x200"}
    assert told({"reward/no-signal": 20}, fails)[0].id == "prompts-too-hard"
    assert told({"reward/no-signal": 20, "reward/component-dominance": 25}, fails)[0].id == "reward-hackable"


def test_kl_spikes_during_an_outage_are_its_consequence() -> None:
    assert told({"policy/kl-estimator": 150}, {})[0].id == "kl-estimator"
    found = told({"policy/kl-estimator": 150, "reward/outage": 150}, {})
    assert found[0].id == "reward-fault" and found[1].confidence < 0.4


def test_a_sudden_fall_is_not_explained_by_an_old_entropy_loss() -> None:
    fell = {
        "reward/mean": "0.2+0.005~0.02x150 0.3~0.02x50", "policy/entropy": "1.0*0.99~0.01x130 0.27~0.01x70",
        "optim/update_ratio": "0.001%0.1x200",
    }  # fmt: skip
    assert told({"reward/collapse": 150, "policy/entropy-collapse": 40}, fell)[0].id == "reward-fault"
    slowly = fell | {"reward/mean": "0.2+0.005~0.02x150 0.9+-0.02~0.02x30 0.3~0.02x20"}
    assert told({"reward/collapse": 150, "policy/entropy-collapse": 40}, slowly)[0].id == "exploration-exhausted"


def test_a_fall_on_some_prompts_is_no_verifier_fault() -> None:
    fell = EDGE | {"reward/mean": "0.9~0.02x150 0.5~0.02x50", "accuracy/val": "0.9~0.01x200"}
    by_prompt = {"reward/std_group": "0.1~0.01x150 0.05~0.01x50", "reward/std": "0.14~0.01x150 0.4~0.02x50"}
    by_answer = {"reward/std_group": "0.1~0.01x150 0.4~0.02x50", "reward/std": "0.14~0.01x150 0.45~0.02x50"}
    assert told({"reward/collapse": 150}, fell | by_prompt)[0].id == "undetermined"
    assert told({"reward/collapse": 150}, fell | by_answer)[0].id == "reward-fault"


def test_a_fall_with_truncation_is_no_reward_fault() -> None:
    cut = EDGE | {"rollout/truncated_frac": "0x150 0.5~0.02x50"}
    assert told({"reward/collapse": 150}, cut)[0].id == "reward-fault"
    assert told({"reward/collapse": 150, "rollout/truncation": 150}, cut)[0].id == "capped-length"


def test_a_failing_verifier_is_not_mistaken_for_hard_prompts() -> None:
    gone = EDGE | {
        "reward/std": "0.5~0.01x150 0.14~0.01x50", "reward/std_group": "0.45~0.02x150 0.03~0.01x50",
        "accuracy/train": "0.5~0.03x150 0.02~0.005x50", "batch/group_size": "8x200",
        "reward/zero_std_frac": "0.1~0.03x150 0.9~0.03x50",
    }  # fmt: skip
    assert told({"reward/collapse": 150}, gone)[0].id == "reward-fault"


def test_an_early_policy_move_alone_is_no_large_step() -> None:
    order = {"policy/kl_ref": BREAKS["policy/kl_ref"], "reward/mean": BREAKS["reward/mean"]}
    unmeasured = order | {"policy/kl_old": "_x200", "optim/update_ratio": "_x200"}
    assert told(DRIFT, unmeasured)[0].id == "lr-too-high" and told(DRIFT, unmeasured)[0].doubt
    assert told(DRIFT, unmeasured, about={"config": {"beta": 0.0}})[0].id == "no-kl-anchor"
    assert told(DRIFT, order)[0].id == "undetermined", "steps that were measured, and are small"
    large = told(DRIFT, order | {"policy/kl_old": BREAKS["policy/kl_old"]})[0]
    assert large.id == "lr-too-high" and not large.doubt


def test_groups_with_equal_rewards_may_not_have_failed() -> None:
    silent = {"reward/no-signal": 100}
    assert told(silent, STANDS)[0].id == "prompts-too-hard"
    assert "prompts-too-hard" not in [cause.id for cause in told(silent, STANDS, alike=True)]


def test_groups_silent_after_an_entropy_loss_are_no_prompt_problem() -> None:
    series = STANDS | {"policy/entropy": "1.0~0.02x90 1.0*0.8~0.01x12 0.03~0.005x98"}
    found = told({"policy/entropy-collapse": 92, "reward/no-signal": 120}, series)
    assert found[0].id == "exploration-exhausted"
    assert all(cause.confidence < 0.4 for cause in found if cause.id == "prompts-too-hard")


def test_a_plateau_from_lost_entropy_is_not_called_solved() -> None:
    solved = {"reward/mean": "0.2+0.016~0.02x50 1.0x150", "policy/entropy": "1.0~0.02x90 0.03~0.005x110"}
    assert told({"reward/plateau": 60, "reward/saturated": 70}, solved)[0].id == "saturated"
    with_entropy = told({"policy/entropy-collapse": 92, "reward/plateau": 60, "reward/saturated": 70}, solved)
    assert with_entropy[0].id == "exploration-exhausted"
