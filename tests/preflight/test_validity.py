"""The validity rules say what the trainers say: against recorded verdicts of the real ones, and worked examples."""

from __future__ import annotations

import json

import pytest

from stabilizer.configs.config import parse_version
from stabilizer.trainers.constraints import divisors, near_multiple
from stabilizer.trainers.validity import TRAINERS, newest_version, trainer_name, violations
from tests.preflight import agreement


def rules(trainer, version, config, **machines):
    return [violation.rule for violation in violations(trainer, version, config, **machines)]


# --- against the trainers themselves --------------------------------------------------------------------------------


def recorded(trainer, version):
    return json.loads((agreement.RECORDED / f"{trainer}-{version}.json").read_text())


@pytest.mark.parametrize(("trainer", "version"), agreement.RECORDS)
def test_the_rules_agree_with_the_recorded_verdicts_of_the_real_trainer(trainer, version):
    record = recorded(trainer, version)
    asked = agreement.cases(trainer, version, record["configs"])
    assert agreement.digest(asked) == record["digest"], "the generator changed: run agreement.py --record again"
    accepted = agreement.unpack(record["verdicts"])
    assert len(accepted) == len(asked) >= 5000
    assert 0.2 < sum(accepted) / len(asked) < 0.8  # both verdicts are well represented
    found = agreement.ours(trainer, version, asked)
    wrong = agreement.disagreements(found, accepted)
    assert not wrong, f"{len(wrong)} of {len(asked)}; the first: {asked[wrong[0]]} {found[wrong[0]]}"


@pytest.mark.parametrize(("trainer", "version"), agreement.RECORDS)
def test_half_of_the_recorded_configurations_lie_one_step_from_a_valid_one(trainer, version):
    """Every second case: undoing one move by one makes our rules (which agree with the trainer's) accept it."""
    cases = agreement.cases(trainer, version, 400)

    def undone(case):
        processes, config = case
        numbers = [key for key, value in config.items() if type(value) is int]
        moved = [{**config, key: config[key] + step} for key in numbers for step in (-1, 1)]
        return any(not rules for rules in agreement.ours(trainer, version, [(processes, each) for each in moved]))

    assert all(undone(case) for case in cases[1::2])


@pytest.mark.parametrize(("trainer", "version"), agreement.RECORDS)
def test_what_is_checked_elsewhere_is_listed_with_its_reason(trainer, version):
    record = recorded(trainer, version)
    assert set(record["checked_elsewhere"]) <= set(agreement.ELSEWHERE)
    assert record["disagreements"] == 0


def test_every_listed_exception_occurs_in_a_record():
    """So that the table of disagreements can't grow stale."""
    occurring = {rule for each in agreement.RECORDS for rule in recorded(*each)["checked_elsewhere"]}
    assert occurring == set(agreement.ELSEWHERE)


@pytest.mark.parametrize(("trainer", "version"), [each for each in agreement.RECORDS if each[0].startswith("trl")])
def test_the_planners_plans_are_the_ones_the_real_config_accepted(trainer, version):
    record = recorded(trainer, version)
    assert record["plans"] == 400 and record["plans_refused"] == 0
    assert agreement.digest(agreement.plan_cases(trainer, version)) == record["plans_digest"], (
        "run agreement.py --record"
    )


def test_a_wrong_rule_would_be_noticed():
    """The comparison itself: a rule that calls everything valid disagrees with the record thousands of times."""
    record = recorded("trl", "1.16.0")
    accepted = agreement.unpack(record["verdicts"])
    assert len(agreement.disagreements([[]] * len(accepted), accepted)) == len(accepted) - record["accepted"] > 1000


@pytest.mark.slow
def test_the_rules_agree_with_the_newest_trl_asked_now():
    version = newest_version("trl")
    result = agreement.compare("trl", version, agreement.environment("trl", version))
    assert result["disagreements"] == 0 and result["plans_refused"] == 0
    assert result["verdicts"] == recorded("trl", version)["verdicts"]


# --- TRL, by version ------------------------------------------------------------------------------------------------

OPEN_R1 = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "num_generations": 8}


def test_seven_processes_with_one_completion_each_hold_no_group_of_eight_in_early_2025():
    (found,) = violations("trl", "0.16.1", OPEN_R1, processes=7)
    assert found.rule == "trl/generations-divide-batch"
    assert "7 x 1 = 7" in found.message and "accumulation does not count" in found.message
    assert "num_generations 7" in found.expected and "per_device_train_batch_size 8" in found.expected


def test_from_017_accumulation_counts_so_the_same_seven_processes_are_fine():
    assert rules("trl", "0.17.0", OPEN_R1, processes=7) == []  # 7 x 1 x 8 = 56 = 7 groups of 8
    assert rules("open-r1", None, OPEN_R1, processes=7) == []


def test_a_vllm_server_takes_one_of_the_gpus():
    served = {**OPEN_R1, "gradient_accumulation_steps": 1, "use_vllm": True}
    assert rules("open-r1", None, served, gpus=8) == ["trl/generations-divide-batch"]  # 8 - 1 = 7
    assert rules("open-r1", None, {**served, "vllm_mode": "colocate"}, gpus=8) == []  # 8


@pytest.mark.parametrize("version", ["0.15.2", "0.17.0", "0.18.0", "0.20.0", "1.0.0", "1.16.0"])
def test_one_is_never_a_valid_number_of_generations(version):
    assert "trl/generations-min" in rules("trl", version, {"num_generations": 1}, processes=7)


def test_014_has_no_rule_because_each_device_makes_whole_groups():
    assert rules("trl", "0.14.0", {"per_device_train_batch_size": 1, "num_generations": 8}, processes=7) == []


def test_the_two_ways_to_set_the_generation_batch_exclude_each_other():
    both = {"generation_batch_size": 32, "steps_per_generation": 4}
    assert rules("trl", "1.16.0", both, processes=1) == ["trl/generation-batch-both"]


def test_the_early_check_of_the_generation_batch_had_a_slip_of_precedence():
    """12 is no multiple of 4 x 2 = 8, but 0.18.0 and 0.19.0 computed (12 % 4) * 2 = 0."""
    config = {"per_device_train_batch_size": 4, "generation_batch_size": 12, "num_generations": 4}
    assert rules("trl", "0.18.0", config, processes=2) == rules("trl", "0.19.0", config, processes=2) == []
    assert rules("trl", "0.19.1", config, processes=2) == ["trl/generation-batch-global"]


def test_evaluation_has_its_own_batch_and_later_its_own_group():
    config = {"num_generations": 8, "eval_strategy": "steps", "per_device_eval_batch_size": 3}
    assert rules("trl", "0.19.1", config, processes=2) == ["trl/eval-generations-divide-batch"]  # 6 % 8
    assert rules("trl", "0.21.0", config, processes=2) == []  # 0.20 and 0.21 do not look
    assert rules("trl", "0.26.2", {**config, "num_generations_eval": 3}, processes=2) == []  # 6 % 3 = 0
    assert rules("trl", "0.25.1", {**config, "num_generations_eval": 3}, processes=2) != []
    assert rules("trl", "0.19.1", {**config, "eval_strategy": "no"}, processes=2) == []


def test_a_reference_can_not_be_synchronised_where_there_is_none():
    config = {"sync_ref_model": True}
    assert rules("trl", "1.16.0", config, processes=1) == ["trl/sync-without-reference"]
    assert rules("trl", "1.16.0", {**config, "beta": 0.001}, processes=1) == []
    assert rules("trl", "0.27.2", config, processes=1) == []


def test_vllm_on_the_training_gpus_must_divide_them():
    config = {"use_vllm": True, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 2}
    assert rules("trl", "1.16.0", config, processes=7) == ["trl/generations-divide-batch"] * 0 + [
        "trl/vllm-tensor-parallel"
    ]
    assert rules("trl", "1.16.0", config, processes=8) == []


def test_each_reward_function_needs_its_weight():
    config = {"reward_funcs": ["accuracy", "format"], "reward_weights": [1.0]}
    assert rules("open-r1", None, config, processes=8) == ["trl/reward-weights"]
    assert rules("open-r1", None, {**config, "reward_weights": [1.0, 0.5]}, processes=8) == []


def test_rloo_takes_pairs_by_default():
    assert rules("trl-rloo", "1.16.0", {"per_device_train_batch_size": 1}, processes=3) == [
        "trl/generations-divide-batch"
    ]
    assert rules("trl-rloo", "1.16.0", {"per_device_train_batch_size": 2}, processes=3) == []


def test_old_ppo_counts_in_mini_batches():
    assert rules("trl-ppo", "0.11.4", {"batch_size": 100, "mini_batch_size": 16}) == ["trl/ppo-backward-batch"]
    config = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 3, "num_mini_batches": 5}
    assert rules("trl-ppo", "1.12.0", config) == ["trl/mini-batches"]  # 24 % 5


def test_values_that_can_not_be_known_are_not_judged():
    assert rules("trl", "1.16.0", {"per_device_train_batch_size": "auto", "num_generations": 7}, processes=8) == []
    assert rules("trl", "1.16.0", {"num_generations": 7}) == []  # how many processes?
    assert rules("trl", "1.16.0", {"num_generations": "7"}, processes=1) == ["trl/generations-divide-batch"]  # 8 % 7


# --- the others, from their documented rules ------------------------------------------------------------------------

VERL = {
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.n": 5,
    "algorithm.adv_estimator": "grpo",
}


def test_verl_accepts_its_example_and_refuses_a_rollout_smaller_than_a_mini_batch():
    assert rules("verl", None, VERL, gpus=8) == []
    assert rules("verl", None, {**VERL, "data.train_batch_size": 128}, gpus=8) == ["verl/mini-over-train"]  # 128 < 256


def test_verl_needs_a_micro_batch_and_only_one_kind_of_it():
    assert rules("verl", None, {"algorithm.adv_estimator": "grpo"}, gpus=8) == ["verl/micro-batch-missing"] * 2
    both = {**VERL, "actor_rollout_ref.actor.ppo_micro_batch_size": 64}
    assert rules("verl", None, both, gpus=8) == ["verl/micro-batch-both"]
    assert rules("verl", None, {"actor_rollout_ref.actor.use_dynamic_bsz": True}, gpus=8) == []


def test_verl_clips_twice_only_above_one():
    assert rules("verl", None, {**VERL, "actor_rollout_ref.actor.clip_ratio_c": 1.0}, gpus=8) == ["verl/dual-clip"]
    assert rules("verl", None, {**VERL, "actor_rollout_ref.actor.clip_ratio_c": 3.0}, gpus=8) == []


def test_a_search_r1_micro_batch_is_a_total_over_the_gpus():
    ppo = {"data.train_batch_size": 512, "critic.ppo_micro_batch_size": 8}
    assert rules("search-r1", None, ppo) == []
    halved = {**ppo, "critic.ppo_micro_batch_size": 4}
    assert rules("search-r1", None, halved) == ["search-r1/micro-under-gpus"]  # 4 // 8 = 0 a rank
    odd = {**ppo, "actor_rollout_ref.actor.ppo_micro_batch_size": 48}
    assert rules("search-r1", None, odd) == ["search-r1/micro-divides-mini"]  # 256 / 8 = 32, 48 / 8 = 6


def test_halving_every_batch_of_search_r1_is_allowed():
    """The case study: what it changes is the optimisation, which no validity rule looks at."""
    halved = {
        "data.train_batch_size": 256,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 128,
        "actor_rollout_ref.actor.ppo_micro_batch_size": 32,
        "critic.ppo_micro_batch_size": 8,
    }
    assert rules("search-r1", None, halved) == []


def test_easyr1_wants_whole_global_batches_and_groups():
    config = {"data.rollout_batch_size": 32, "worker.actor.global_batch_size": 8, "worker.rollout.n": 8}
    assert rules("easyr1", None, config) == []  # the case study is valid, only unwise: 8 x 8 // 8 = 8, and 8 % 4 = 0
    assert rules("easyr1", None, {**config, "worker.actor.global_batch_size": 12}) == ["easyr1/rollout-batch-global"]
    assert "easyr1/group-size" in rules("easyr1", None, {**config, "worker.rollout.n": 1})
    long = {**config, "data.max_prompt_length": 4096, "data.max_response_length": 8192}
    assert rules("easyr1", None, long) == ["easyr1/batched-tokens"]  # 12288 > 8192
    assert rules("easyr1", None, {**long, "worker.rollout.max_num_batched_tokens": 12288}) == []
    micro = {**config, "worker.actor.micro_batch_size_per_device_for_update": 3}
    assert rules("easyr1", None, micro) == ["easyr1/update-micro-batch"]  # 8 % 3


def test_openrlhf_takes_its_old_flags_too():
    assert rules("openrlhf", None, {"advantage_estimator": "rloo"}, gpus=8) == ["openrlhf/group-size"]
    assert rules("openrlhf", None, {"advantage_estimator": "rloo", "n_samples_per_prompt": 8}, gpus=8) == []
    assert rules("openrlhf", None, {"train_batch_size": 100}, gpus=8) == ["openrlhf/train-batch-ranks"]  # 100 % 8
    assert rules("openrlhf", None, {"actor.dual_clip": 0.9}, gpus=8) == ["openrlhf/dual-clip"]


def test_skyrl_divides_samples_not_prompts():
    assert rules("skyrl", None, {}, gpus=8) == []  # 256 x 5 // 8 = 160 a GPU
    assert rules("skyrl", None, {"trainer.policy_mini_batch_size": 100}, gpus=8) == ["skyrl/mini-divides-train"]
    micro = {"trainer.micro_train_batch_size_per_gpu": 3}
    assert rules("skyrl", None, micro, gpus=8) == ["skyrl/micro-divides-mini"]  # 160 % 3
    assert rules("skyrl", None, {"trainer.algorithm.use_kl_in_reward": True}, gpus=8) == ["skyrl/kl-twice"]
    assert rules("skyrl", None, {"trainer.algorithm.advantage_estimator": "gae"}, gpus=8) == ["skyrl/critic-path"]


def test_nemo_rl_wants_whole_global_batches_in_a_step():
    assert rules("nemo-rl", None, {}, gpus=8) == []  # 32 x 16 = 512
    assert rules("nemo-rl", None, {"grpo.num_prompts_per_step": 33}, gpus=8) == ["nemo-rl/global-divides-step"]
    assert rules("nemo-rl", None, {"policy.train_micro_batch_size": 3}, gpus=8) == ["nemo-rl/micro-divides-rank"]
    gspo = {"loss_fn.sequence_level_importance_ratios": True}
    assert rules("nemo-rl", None, gspo, gpus=8) == ["nemo-rl/sequence-ratios"]
    assert rules("nemo-rl", None, {**gspo, "loss_fn.token_level_loss": False}, gpus=8) == []


def test_prime_rl_counts_rollouts_and_wants_whole_groups():
    assert rules("prime-rl", None, {"orchestrator.group_size": 8}) == []  # 128 % 8
    assert rules("prime-rl", None, {"orchestrator.group_size": 7}) == ["prime-rl/whole-groups"]
    assert rules("prime-rl", None, {"batch_size": 128, "token_batch_size": 65536}) == ["prime-rl/batch-both"]
    assert rules("prime-rl", None, {"batch_size": 128, "rollouts_per_example": 7}) == ["prime-rl/whole-groups"]


@pytest.mark.parametrize(("most", "broken"), [(128, ["prime-rl/no-room-for-prompt"]), (96, [])])
def test_prime_rl_leaves_room_for_the_prompt(most, broken):
    assert rules("prime-rl", None, {"rollouts_per_example": 8, "seq_len": 128, "sampling.max_tokens": most}) == broken


# --- the door -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_violation_says_what_would_do_and_where_it_is_checked(trainer):
    config = {
        "num_generations": 1,
        "rloo_k": 5,
        "num_mini_batches": 3,
        "data.train_batch_size": 100,
        "data.rollout_batch_size": 100,
        "trainer.train_batch_size": 100,
        "rollout.n_samples_per_prompt": 1,
        "algo.advantage.estimator": "rloo",
        "policy.train_global_batch_size": 100,
        "orchestrator.group_size": 7,
        "rlhf_type": "grpo",
        "stage": "ppo",
        "rollout-temperature": 0.0,
        "total_train_epochs": 0,
        "prompt_length": 512,
    }
    found = violations(trainer, None, config, processes=7, gpus=7)
    assert found
    for violation in found:
        assert violation.rule.split("/")[0] in (trainer, trainer.split("-")[0], "trl")
        assert violation.message and violation.expected and violation.source and violation.key


def test_trainers_are_known_by_other_spellings_and_unknown_ones_are_listed():
    assert trainer_name("Open_R1") == "open-r1" and trainer_name("trl-grpo") == "trl"
    with pytest.raises(ValueError, match="no trainer 'vrel'; known are trl,"):
        violations("vrel", None, {})


def test_versions_and_machines_must_make_sense():
    assert parse_version("v0.18.0.dev0") == (0, 18, 0) and parse_version("1.16") == (1, 16, 0)
    with pytest.raises(ValueError, match="version 'latest': write it as numbers"):
        violations("trl", "latest", {})
    with pytest.raises(ValueError, match="processes is 0"):
        violations("trl", None, {}, processes=0)


def test_the_arithmetic_of_suggestions():
    assert divisors(56, 2) == [2, 4, 7, 8, 14, 28, 56]
    assert [near_multiple(wanted, 8) for wanted in (1, 11, 12, 13)] == [8, 8, 16, 16]
