"""A handful of rows shows facts, each with what usually makes it; healthy rows show none, and long logs are judged."""

import math

import numpy as np
import pytest

from stabilizer.analysis.signs import FEW, SIGNS, signs
from stabilizer.runs.history import History
from tests.analysis.test_changes import view

HEALTHY = {
    "reward__mean": [0.4, 0.42, 0.41], "reward__zero_std_frac": [0.2, 0.25, 0.2], "policy__loss": [0.01, 0.0, 0.02],
    "policy__kl_ref": [0.001, 0.002, 0.002], "policy__kl_old": [0.001, 0.002, 0.001], "policy__clip_frac": [0.01] * 3,
    "policy__entropy": [0.6, 0.6, 0.59], "policy__mismatch_kl": [2e-4] * 3, "optim__grad_norm": [0.4, 0.5, 0.4],
    "optim__lr": [1e-6] * 3, "rollout__length_mean": [410.5, 420.1, 405.0], "rollout__length_max": [1024.0] * 3,
    "rollout__truncated_frac": [0.02, 0.03, 0.02], "time__step_s": [40.0, 41.0, 40.0], "time__rollout_s": [20.0] * 3,
    "value__explained_variance": [0.6, 0.7, 0.7], "value__loss": [0.1] * 3, "eval_loss": [1.2, 1.1, 1.12],
    "ent_coef": [0.4, 0.3, 0.3],
}  # fmt: skip
CASES = {
    "not-a-number": {"policy__kl_ref": [0.0, math.nan]},
    "answers-cut": {"rollout__truncated_frac": [0.62], "rollout__length_max": [2048.0]},
    "lengths-equal": {"rollout__length_mean": [200.0, 200.0, 200.0]},
    "updates-far": {"policy__kl_old": [0.63], "policy__clip_frac": [0.71], "optim__lr": [0.01]},
    "loss-gone": {"trl__loss": [1.2, 1.1, 0.0], "optim__grad_norm": [0.4, 0.3, 0.0]},
    "reward-constant": {"reward__mean": [-200.0, -200.0, -200.0]},
    "part-silent": {
        "reward__mean": [0.1, 0.2, 0.3, 0.4, 0.5],
        "reward__accuracy__mean": [0.0, 0.0, 0.004, 0.0, 0.0],
        "reward__format__mean": [0.1, 0.2, 0.3, 0.4, 0.5],
    },
    "reward-drops-alone": {
        "reward__mean": [0.7, 0.71, 0.05, 0.04],
        "policy__entropy": [0.41] * 4,
        "rollout__length_mean": [310.0, 312, 311, 309],
    },
    "reference-left": {"policy__kl_ref": [0.2 * row for row in range(30)]},
    "reward-falls": {
        "reward__mean": [0.62, 0.61, 0.6, 0.58, 0.55, 0.52, 0.5, 0.47, 0.44, 0.42, 0.41, 0.4],
        "policy__entropy": [0.5, 0.55, 0.6, 0.7, 0.8, 0.85, 0.9, 1.0, 1.1, 1.15, 1.2, 1.3],
        "optim__lr": [5e-6] * 12,
    },
    "ratios-far": {
        "trl__sampling__importance_sampling_ratio__mean": [41.0],
        "trl__sampling__sampling_logp_difference__mean": [0.0125],
        "rollout__length_mean": [105.5],
    },
    "length-with-score": {
        "reward__mean": [0.5, 0.7, 0.8, 1.0, 1.2, 1.4, 1.5, 1.7, 1.9, 2.0],
        "rollout__length_mean": [210.0, 230, 240, 300, 320, 350, 400, 430, 480, 520],
    },
    "critic-outgrown": {
        "value__loss": [4.0, 4.1, 4.4, 4.9, 5.5, 5.8, 6.2, 6.6, 7.0, 7.5],
        "reward__mean": [3.0, 3.1, 3.2, 3.4, 3.5, 3.6, 3.8, 3.9, 4.1, 4.2],
    },
    "ratio-leaves-one": {"policy__clip_frac": [0.008], "policy__kl_old": [0.003]},
    "samples-stale": {"sample_staleness__avg": [12.3]},
    "rewards-slow": {"time__step_s": [390.0], "verl__timing_s__reward": [312.0]},
    "drifted": {"policy__kl_ref": [0.9]},
    "entropy-random": {"policy__entropy": [6.2]},
    "entropy-spent": {"policy__entropy": [0.0001]},
    "rate-high": {"optim__lr": [1e-4], "reward__mean": [0.2]},
    "rate-low": {"optim__lr": [1e-8] * 30},
    "critic-blind": {"value__explained_variance": [-1.0], "value__loss": [10.0]},
    "losses-large": {"critic_loss": [3.1e5], "ent_coef": [45.2]},
    "validation-rises": {"eval_loss": [2.31, 2.92, 3.40], "train_loss": [0.1, 0.01, 0.001]},
    "never-ends": {"trl__val__num_eos_tokens": [0.0]},
    "engine-apart": {"policy__mismatch_kl": [0.08]},
    "signal-rare": {"reward__zero_std_frac": [0.9], "reward__mean": [0.03]},
    "generation-rules": {"time__step_s": [530.0], "time__rollout_s": [420.0]},
    "step-slow": {"time__step_s": [284.0], "rollout__length_mean": [820.0]},
    "pairs-separated": {"trl__rewards__accuracies": [1.0], "trl__rewards__margins": [13.5]},
    "both-fall": {"trl__rewards__chosen": [-12.4], "trl__rewards__margins": [13.5]},
}


ONE_UPDATE = {
    "data.train_batch_size": 256, "actor_rollout_ref.actor.ppo_mini_batch_size": 256,
    "actor_rollout_ref.actor.ppo_epochs": 1, "algorithm.adv_estimator": "grpo", "actor_rollout_ref.rollout.n": 8,
}  # fmt: skip


def shown(name):
    """The rows of a case, and the settings that it needs."""
    made = view(**CASES[name])
    if name != "ratio-leaves-one":
        return made
    return with_settings(ONE_UPDATE, **CASES[name])


def with_settings(config, **series):
    told = History({"run": "made", "trainer": "verl", "config": config})
    told.append(1, {name.replace("__", "/"): values[-1] for name, values in series.items()})
    return told.view()


@pytest.mark.parametrize("name", CASES)
def test_the_fact_is_told_with_its_numbers_and_what_to_look_at(name):
    found = {sign.id: sign for sign in signs(shown(name))}
    assert name in found and found[name].look
    assert name == "not-a-number" or any(character.isdigit() for character in found[name].what)


def test_every_sign_has_a_case():
    assert CASES.keys() == {name for name, _, _ in SIGNS}


def test_healthy_rows_show_no_sign():
    assert signs(view(**HEALTHY)) == []


def test_a_long_log_is_left_to_the_detectors():
    rows = np.full(FEW + 1, 0.9)
    assert signs(view(policy__kl_ref=rows)) == [] != signs(view(policy__kl_ref=rows[:FEW]))


def test_a_reward_function_that_never_pays_is_named_in_a_long_log_too():
    longer = {name: np.tile(values, 20) for name, values in CASES["part-silent"].items()}
    assert [sign.id for sign in signs(view(**longer))] == ["part-silent"]
    assert signs(view(**longer | {"reward__accuracy__mean": np.tile([0.0, 0.0, 0.1, 0.0, 0.0], 20)})) == []


def test_parts_that_cancel_are_not_silent():
    parts = {"reward__format__mean": [1.0] * 6, "reward__penalty__mean": [-0.99] * 6}
    assert "part-silent" not in {sign.id for sign in signs(view(reward__mean=[0.01, 0.011] * 3, **parts))}


def test_a_part_that_takes_the_same_from_every_answer_is_silent_unless_it_is_a_penalty():
    right = {"reward__mean": [0.1, 0.2, 0.3] * 3, "reward__accuracy__mean": [1.1, 1.2, 1.3] * 3}
    (sign,) = [sign for sign in signs(view(reward__format__mean=[-1.0] * 9, **right)) if sign.id == "part-silent"]
    assert "-1 to every answer" in sign.what
    for other in ({"reward__length_penalty__mean": [-1.0] * 9}, {"reward__format__mean": [-1.0, -0.9, -1.0] * 3}):
        assert "part-silent" not in {sign.id for sign in signs(view(**other, **right))}


def test_what_a_finding_names_is_not_repeated():
    cut = view(**CASES["answers-cut"])
    assert signs(cut) and signs(cut, {"capped-length"}) == []


def test_engines_are_compared_by_log_probabilities_too():
    assert [sign.id for sign in signs(view(train_rollout_logprob_abs_diff=[0.072]))] == ["engine-apart"]
    assert signs(view(train_rollout_logprob_abs_diff=[0.012])) == []


@pytest.mark.parametrize(("factor", "apart"), [(38.4, True), (1.02, False)])
def test_engines_are_compared_by_a_factor_of_probabilities_too(factor, apart):
    assert ([sign.id for sign in signs(view(train__token_mult_prob_error=[factor]))] == ["engine-apart"]) is apart


def test_a_reward_that_falls_with_the_policy_is_no_fault_of_its_judge():
    fell = {"reward__mean": [0.7, 0.71, 0.05, 0.04], "policy__entropy": [0.41, 0.4, 0.2, 0.1]}
    assert "reward-drops-alone" not in {sign.id for sign in signs(view(**fell))}


def test_a_reward_that_changes_its_unit_is_no_progress_and_a_rise_of_the_policy_is():
    unit = {"reward__mean": [0.4, 0.41] * 20 + [40.0, 41.0] * 20, "policy__kl_ref": [0.01] * 80}
    (sign,) = [sign for sign in signs(view(**unit)) if sign.id == "reward-drops-alone"]
    assert "rose from 0.41 to 40" in sign.what and "unit" in sign.look
    moved = unit | {"policy__kl_ref": [0.01] * 40 + [0.2] * 40}
    grown = unit | {"reward__mean": [0.2, 0.21] * 20 + [0.6, 0.7] * 20}
    for other in (moved, grown):
        assert "reward-drops-alone" not in {sign.id for sign in signs(view(**other))}


def test_a_long_log_that_left_its_reference_says_so_though_the_reward_rises():
    rises = {"reward__mean": list(np.linspace(0.3, 0.4, 60)), "policy__kl_ref": list(np.geomspace(0.01, 6.6, 60))}
    assert "reference-left" in {sign.id for sign in signs(view(**rises))}
    assert not signs(view(**rises | {"policy__kl_ref": list(np.linspace(0.01, 1.0, 60))}))


def test_a_reward_that_falls_for_its_penalty_is_blamed_on_the_penalty():
    reward = {"reward__mean": CASES["reward-falls"]["reward__mean"]}
    (sign,) = signs(view(**reward, verl__critic__rewards__mean=[-0.3 + 0.05 * row for row in range(12)]))
    assert sign.id == "reward-falls" and "kl_coef" in sign.look and "rose from -0.2" in sign.what
    (sign,) = signs(view(**reward, verl__critic__rewards__mean=[0.6 - 0.03 * row for row in range(12)]))
    assert "kl_coef" not in sign.look


def test_answers_that_grow_with_a_verified_reward_are_no_sign():
    grows = CASES["length-with-score"]
    assert signs(view(**grows | {"reward__mean": [value / 4 for value in grows["reward__mean"]]})) == []
    assert signs(view(**grows | {"rollout__length_mean": [210.0, 230, 205, 222, 240, 218, 231, 209, 236, 228]})) == []


def test_ratios_of_several_updates_and_of_rounding_leave_one():
    far = CASES["ratio-leaves-one"]
    several = ONE_UPDATE | {"actor_rollout_ref.actor.ppo_mini_batch_size": 64}
    assert signs(with_settings(several, **far)) == signs(view(**far)) == []
    assert signs(with_settings(ONE_UPDATE, policy__clip_frac=[0.0], policy__kl_old=[4e-5])) == []


def test_a_reward_within_its_noise_does_not_fall():
    reward = [0.5, 0.41, 0.47, 0.52, 0.4, 0.46, 0.5, 0.44]
    assert signs(view(reward__mean=reward, policy__entropy=[0.5] * 8)) == []


def test_ratios_and_ages_near_the_usual_are_no_sign():
    near = view(trl__sampling__importance_sampling_ratio__mean=[0.97], sample_staleness__avg=[1.2])
    assert signs(near) == []


def test_a_critic_that_follows_its_rewards_is_no_sign():
    assert signs(view(value__loss=[4.0, 3.1, 2.2, 1.9], reward__mean=[3.0, 3.5, 4.2, 4.8])) == []


def test_a_kl_beyond_any_text_is_called_an_estimate_of_few_tokens():
    (sign,) = signs(view(policy__kl_ref=[1.6e6]))
    assert sign.id == "drifted" and "k3 estimate" in sign.look
    (answer,) = signs(view(ppo__objective__kl=[62.0]))
    assert answer.id == "drifted" and "62 nats an answer" in answer.what


def test_a_trainer_with_an_engine_is_not_told_to_use_one():
    slow = {"time/step_s": 78.0, "rollout/length_mean": 3110.0}
    for trainer in ("prime_rl", "nemo_rl", "verl"):
        told = History({"run": "made", "trainer": trainer})
        told.append(1, slow)
        assert signs(told.view()) == [], trainer


def test_games_have_rates_and_entropies_of_their_own():
    assert signs(view(fps=[800.0], optim__lr=[3e-4], reward__mean=[-150.0], policy__entropy=[4.2])) == []
    assert [sign.id for sign in signs(view(fps=[800.0], optim__lr=[0.01], entropy_loss=[-0.001]))] == [
        "entropy-spent", "rate-high",
    ]  # fmt: skip


def test_a_rate_that_still_warms_up_is_not_low():
    assert signs(view(optim__lr=[1e-9 * step for step in range(1, 20)])) == []
    assert signs(view(optim__lr=[5e-7] * 20)) == []
