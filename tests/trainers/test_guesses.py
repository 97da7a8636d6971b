"""Names of numbers in logs of scripts that nobody knows: what people call them, and what must not be taken for them."""

from __future__ import annotations

import json

import pytest

from stabilizer.trainers.other.guesses import guessed
from stabilizer.trainers.reading import load

SPELLED = {
    "reward/mean": """
        avg_total_reward r_mean reward/avg train_reward mean_return episode/reward mean_episode_reward
        rollout/reward rollout/rewards/mean objective/scores env/reward metrics/reward reward_per_step avg_score
        total_reward_mean ep_return returns avg_train_reward mean_r train/mean_reward running_reward reward_ema
        moving_avg_reward batch_reward_mean rewards/total reward/total_mean mean_rewards reward_raw_mean
        raw_reward Reward AvgReward meanReward episodeReward Episode_Reward reward_batch_mean
        rollout_reward_mean train/reward/mean critic/score/mean critic/rewards/mean reward_score score_mean
        group_reward_mean reward_total average_return avg_return AverageEpRet avg_episode_reward avg_ep_reward
        final_reward ema_reward smoothed_reward total_return
    """,
    "reward/std": """
        reward/std std_reward reward_stdev rewards_std group_reward_std reward_std_mean rew_std
    """,
    "policy/kl_ref": """
        kl kl_div kl_loss mean_kl avg_kl kl/mean objective/kl actor/kl_loss kl_to_ref ref_kl KL
        kl_divergence_mean approx_kl_ref
    """,
    "policy/entropy": """
        entropy mean_entropy actor/entropy policy/entropy_mean entropy_mean token_entropy avg_entropy Entropy
        policy_entropy entropy_per_token action_entropy
    """,
    "accuracy/train": """
        acc accuracy success_rate solve_rate pass_rate train_acc train/accuracy correct_rate batch_accuracy
        mean_accuracy avg_accuracy acc_mean win_rate solved_frac success pass@1 exact_match correctness_rate
        task_success
    """,
    "rollout/length_mean": """
        completion_length mean_completion_length response_length avg_response_len response_len
        mean_response_length gen_len avg_gen_tokens completion_tokens mean_len avg_completion_len
        response_tokens completions/mean_length avg_output_tokens length/mean seq_len_mean
    """,
    "optim/grad_norm": """
        grad_norm gradnorm global_grad_norm grad/norm gradient_norm total_norm actor/grad_norm policy/grad_norm
        gnorm grad_norm_mean
    """,
    "optim/lr": """
        lr learning_rate actor/lr train/learning_rate current_lr opt/lr
    """,
    "rollout/truncated_frac": """
        clip_ratio_len truncated_rate truncation_rate clipped_ratio frac_truncated completion_clip_ratio
        completions/clipped_ratio truncated_ratio pct_truncated max_len_frac overlong_ratio hit_max_frac
        response_length/clip_ratio
    """,
    "reward/zero_std_frac": """
        frac_reward_zero_std zero_std_ratio zero_adv_frac degenerate_groups frac_zero_std_groups
        zero_variance_frac uniform_groups_frac dead_group_frac all_same_frac
    """,
    "policy/clip_frac": """
        clipfrac clip_frac clip_ratio clip_fraction pg_clipfrac clipped_frac ratio_clipped_frac
    """,
    "policy/loss": """
        policy_loss pg_loss actor_loss actor/pg_loss loss/policy grpo_loss loss_pi
    """,
}  # fmt: skip
"""Our metric -> what people call it in their own scripts."""
OTHERS = """
    reward/min reward_max reward_median kl_coef kl_penalty kl_coef_loss entropy_loss entropy_coef num_tokens
    total_tokens global_step epoch lr_scale critic/lr clip_range grad_clip critic/grad_norm max_length
    min_length prompt_length advantage_mean step_time batch_size group_size time_per_step length_penalty
    reward_weight token_reward_std format_rate num_correct train_loss eval_loss vf_clip_frac max_grad_norm
    total_steps loss kl_target entropy_target success_count reward_count val_reward eval_reward/mean
"""
"""Names that share words with a metric and are another quantity."""


def guess(name: str) -> str:
    """What a number of this name is taken for, in a log of a policy's training."""
    rows = [(row, {name: 0.3 + 0.01 * row, "rollout_id": float(row)}) for row in range(5)]
    return guessed(rows, [name, "rollout_id"], {})[0][name]


@pytest.mark.parametrize("ours", SPELLED)
def test_what_people_call_a_metric_is_recognised(ours):
    assert {name: guess(name) for name in SPELLED[ours].split()} == dict.fromkeys(SPELLED[ours].split(), ours)


def test_other_quantities_keep_their_names():
    assert {name: guess(name) for name in OTHERS.split()} == {name: name for name in OTHERS.split()}


def script_of_its_own(tmp_path, **names: float):
    """A log with one name of TRL and others of a script's own."""
    log = tmp_path / "metrics.jsonl"
    rows = [
        {"step": row, "frac_reward_zero_std": 0.2, **{k: v + row / 100 for k, v in names.items()}} for row in range(30)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load(log)


def test_a_script_that_kept_one_name_of_a_trainer_has_its_reward_read(tmp_path):
    run = script_of_its_own(tmp_path, mean_reward=0.3, avg_gen_tokens=200.0)
    view = run.history.view()
    assert view.latest("reward/mean") == pytest.approx(0.59)
    assert view.latest("rollout/length_mean") == pytest.approx(200.29)
    assert any("mean_reward as reward/mean" in note for note in run.source.notes)
    assert view.about("metrics")["reward/mean"]["source"] == "mean_reward"


def test_a_log_of_the_trainer_itself_is_not_guessed_at(tmp_path):
    run = script_of_its_own(tmp_path, reward=0.3, mean_reward=9.0, avg_gen_tokens=200.0)
    assert run.history.view().latest("reward/mean") == pytest.approx(0.59)
    assert "rollout/length_mean" not in run.history.names()
    assert not any("guessed" in note for note in run.source.notes)


def test_a_name_of_ours_is_kept_beside_one_that_is_guessed():
    row = {"reward/all_fail_frac": 0.5, "reward": 1.0}
    assert guessed([(1, row)], row, {})[0] == {"reward/all_fail_frac": "reward/all_fail_frac", "reward": "reward/mean"}


def test_reward_functions_of_a_loop_written_by_hand_are_parts_of_the_reward():
    rows = [
        (
            1,
            {
                "format_reward": -1.0,
                "reward_correctness": 0.2,
                "avg_reward": -0.8,
                "running_reward": 0.1,
                "episode_reward": 0.2,
            },
        )
    ]
    names, _ = guessed(rows, rows[0][1], {})
    assert names["format_reward"] == "reward/format/mean" and names["reward_correctness"] == "reward/correctness/mean"
    assert not any(names[key].count("/") == 2 for key in ("avg_reward", "running_reward", "episode_reward"))


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("Epoch:[{epoch}/2]({row}/50), Reward: {value}, KL_ref: 0.01", (1, 100)),
        ("Epoch [{epoch}/2] Step [{row}/50] reward: {value} kl: 0.01", (1, 50)),
        ("Epoch [{epoch}/2] reward: {value} kl: 0.01", (1, 100)),  # many rows of one epoch are counted
        ("Episode: {all}, reward: {value}, kl: 0.01", (1, 100)),
        ("Episode {all} | reward: {value} | kl: 0.01", (1, 100)),
    ],
)
def test_the_clock_of_a_printed_line(tmp_path, line, steps):
    text = "\n".join(
        line.format(epoch=1 + row // 50, row=1 + row % 50, all=1 + row, value=0.3 + 0.01 * (row % 7))
        for row in range(100)
    )
    (tmp_path / "train.log").write_text(text)
    run = load(tmp_path / "train.log")
    found = [history.view().series("reward/mean").steps for history in run.histories.values()]
    assert (min(int(one[0]) for one in found), max(int(one[-1]) for one in found)) == steps
