"""The loop, in short seeded runs of the built-in model."""

import math
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch

from stabilizer.core.metrics import VOCABULARY
from stabilizer.core.schedule import KINDS, learning_rate, shares_of_peak
from stabilizer.training import credit, loop
from stabilizer.training.advantages import sequence_advantages
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer
from stabilizer.training.moved import Moved
from stabilizer.training.settings import OptimConfig

ELSEWHERE = {
    "time/monitor_s",
    "policy/router_shift",
    "rollout/language_frac",
    "rollout/weight_version",
}  # the monitor's, or other trainers'
ELSEWHERE |= {name for name in VOCABULARY if name.startswith("system/")}  # the machine, measured beside the training
WITH_A_CRITIC = {name for name in VOCABULARY if name.startswith("value/")} | {"control/actor_frozen"}
WHEN_CONFIGURED = {
    "optim/clip_limit", "policy/dual_clip_frac", "policy/guarded_frac", "policy/off_policy_masked_frac",
    "policy/mismatch_k1", "policy/mismatch_ratio_max", "policy/mismatch_masked_frac", "reward/overlong/mean",
    "policy/unselected_frac", "policy/router_aux", "reward/greedy/mean", "reward/raw/mean",
    "accuracy/val_pass1", "accuracy/val_passk", "rollout/sync_error", "rollout/sync_retries", "time/sync_s",
}  # fmt: skip
OF_EPISODES = {
    "rollout/turns_mean", "rollout/searches_mean", "rollout/retrieved_frac", "rollout/invalid_calls_frac",
}  # fmt: skip


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(trainer.policy.model.parameters()).detach().clone()


def without_time(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


# --- what a step reports ----------------------------------------------------------------------------------------------


def test_a_step_reports_the_whole_vocabulary_and_nothing_else(trainer):
    run = trainer("validation.every=1", "rollout.prompts=16")
    result = run.train_step()
    assert set(result.metrics) == set(VOCABULARY) - ELSEWHERE - WITH_A_CRITIC - WHEN_CONFIGURED - OF_EPISODES
    assert result.step == run.step == 1
    assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in result.metrics.values())


def test_a_step_that_cannot_be_measured_reports_what_training_computed(trainer, monkeypatch):
    def broken(*args):
        raise ArithmeticError("no figures")

    whole = trainer(folder="whole").train_step().metrics
    monkeypatch.setattr(loop, "_measured", broken)
    run = trainer(folder="broken")
    result = run.train_step()
    assert str(result.failure) == "no figures" and run.whole and run.step == 1
    assert "reward/mean" in whole and "reward/mean" not in result.metrics
    assert without_time(result.metrics).items() <= without_time(whole).items()


def test_fractions_are_fractions_and_counts_are_whole(trainer):
    run = trainer("policy.inner_epochs=2", "validation.every=1")
    for _ in range(3):
        for name, value in run.train_step().metrics.items():
            if VOCABULARY[name].kind == "fraction":
                assert 0 <= value <= 1, name
            if VOCABULARY[name].kind == "count":
                assert value == int(value), name
            if VOCABULARY[name].kind == "positive":
                assert value >= -1e-9, name


def test_on_policy_the_first_ratio_is_1(trainer):
    run = trainer(task="length")
    for _ in range(3):
        metrics = run.train_step().metrics
        assert metrics["policy/ratio_first_error"] < 1e-4
        assert abs(metrics["policy/mismatch_kl"]) < 1e-6
        assert metrics["reward/advantage_center_error"] < 1e-12


def test_a_batch_used_once_is_never_clipped(trainer):
    metrics = trainer("policy.minibatches=1", "rollout.prompts=8").train_step().metrics
    assert metrics["policy/clip_frac"] == 0 and metrics["batch/updates"] == 1
    assert metrics["policy/kl_old"] == pytest.approx(0, abs=1e-6)


def test_the_first_step_is_still_the_reference(trainer):
    # the one metric in which sampler, learner and reference meet before any update
    assert trainer("policy.minibatches=1").train_step().metrics["policy/kl_ref"] == pytest.approx(0, abs=1e-6)


def test_validation_and_samples_come_when_due(trainer):
    run = trainer("validation.every=2", "samples.every=2", "samples.count=3")
    first, second = run.train_step(), run.train_step()
    assert "accuracy/val" not in first.metrics and first.samples == []
    assert 0 <= second.metrics["accuracy/val"] <= 1
    assert len(second.samples) == 3 * 4 and {sample.group for sample in second.samples} == {0, 1, 2}
    one = second.samples[0]
    assert one.step == 2 and one.prompt.endswith("=") and one.rewards == {"exact": one.reward}
    assert one.solved is (one.reward == 1) and one.tokens == ()


@pytest.mark.parametrize(("every", "validated"), [(2, [2, 4, 5]), (100, [5]), (0, [])])
def test_the_last_step_is_validated_too_unless_none_is(trainer, every, validated):
    run = trainer(f"validation.every={every}", "steps=5")
    assert [step for step in range(1, 6) if "accuracy/val" in run.train_step().metrics] == validated


def test_completions_beyond_the_positions_of_the_model_are_warned_of(trainer):
    assert trainer("rollout.max_completion=256").notes == ()
    (note,) = trainer("rollout.max_completion=5000").notes
    assert "5,000" in note and "256 positions" in note


def test_tokens_are_kept_with_their_likelihood_when_asked_for(trainer):
    run = trainer("samples.every=1", "samples.tokens=true")
    for sample in run.train_step().samples:
        assert len(sample.tokens) == len(sample.logps) == sample.length
        assert "".join(sample.tokens).startswith(sample.completion) and all(logp <= 0 for logp in sample.logps)


def test_validation_changes_nothing(trainer):
    with_it, without = trainer("validation.every=1", folder="a"), trainer(folder="b")
    with_it.validate()
    for _ in range(3):
        seen, plain = without_time(with_it.train_step().metrics), without_time(without.train_step().metrics)
        assert "accuracy/val" in seen and "accuracy/val" not in plain
        assert {name: seen[name] for name in plain if name != "control/validate_every"} == {
            name: value for name, value in plain.items() if name != "control/validate_every"
        }


def test_tokens_are_counted(trainer):
    run = trainer("rollout.prompts=2", "rollout.group_size=2")
    metrics = run.train_step().metrics
    # 2 x 2 rows of <bos> and 6 characters, and what was written
    assert metrics["tokens/total"] == 4 * 7 + 4 * metrics["rollout/length_mean"]
    assert run.train_step().metrics["tokens/total"] > metrics["tokens/total"]


# --- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1], ids=["as it is", "flipped advantage"])
def test_reward_improves_and_would_not_with_the_sign_flipped(trainer, monkeypatch, sign):
    monkeypatch.setattr(credit, "sequence_advantages", lambda *args: sign * sequence_advantages(*args))
    run = trainer("rollout.prompts=16", "rollout.group_size=8", "optim.lr=1.2e-3", task="sorting")
    rewards = [run.train_step().metrics["reward/mean"] for _ in range(40)]
    improved = np.mean(rewards[-10:]) > np.mean(rewards[:10]) + 0.05  # 0.15 to 0.22 with other seeds
    assert improved == (sign == 1)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "wanted"), [("addition", 0.85), ("sorting", 0.8), ("length", 0.9)])
def test_the_defaults_learn_their_task(tmp_path, task, wanted):
    config = load_config(task, ["device=cpu", "validation.problems=512"])
    run = Trainer(config, checkpoints=tmp_path)
    start = run.validate()["accuracy/val"]
    for _ in range(config.steps):
        run.train_step()
    assert start < 0.35 and run.validate()["accuracy/val"] > wanted


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_unstable_variant_destroys_the_policy_and_half_its_learning_rate_does_not(tmp_path, seed):
    reward = {}
    for scale in (1.0, 0.5):
        run = Trainer(load_config("addition", ["device=cpu"], variant="unstable", seed=seed), checkpoints=tmp_path)
        run.controls.set("control/lr_scale", scale)
        steps = [run.train_step().metrics["reward/mean"] for _ in range(80)]
        reward[scale] = np.mean(steps[:10]), np.mean(steps[-10:])
    assert reward[1.0][1] < 0.2 * reward[1.0][0]
    assert reward[0.5][1] > 1.1 * reward[0.5][0]


def test_the_update_ratio_is_how_far_the_step_moved_the_weights_wherever_they_came_from(trainer):
    run = trainer()
    run.learner.moved = Moved(run.learner.parameters, limit=10**9)

    def moved() -> tuple[float, float]:
        before = weights(run)
        measured = run.train_step().metrics["optim/update_ratio"]
        return measured, ((weights(run) - before).norm() / before.norm()).item()

    snapshot = run.controls.snapshot()
    for go_back in (False, False, True):
        if go_back:
            run.controls.restore(snapshot)
        measured, real = moved()
        assert measured == pytest.approx(real, rel=1e-4) and real > 0


# --- knobs ------------------------------------------------------------------------------------------------------------


def test_every_control_is_logged_as_it_was_for_the_step(trainer):
    run = trainer()
    run.controls.set("control/beta", 0.02)
    assert run.train_step().metrics.items() >= run.controls.values().items()


@pytest.mark.parametrize(
    ("knob", "value", "seen"),
    [
        ("control/lr_scale", 0.5, lambda before, after: after["optim/lr"] == pytest.approx(before["optim/lr"] / 2)),
        ("control/prompts", 6, lambda before, after: after["batch/prompts"] == 6),
        ("control/group_size", 3, lambda before, after: after["batch/group_size"] == 3),
        ("control/max_completion", 2, lambda before, after: after["rollout/length_max"] == 2),
        ("control/inner_epochs", 3, lambda before, after: after["batch/updates"] == 3 * before["batch/updates"]),
        ("control/minibatches", 4, lambda before, after: after["batch/updates"] == 2 * before["batch/updates"]),
        ("control/temperature", 0.1, lambda before, after: after["policy/entropy"] < before["policy/entropy"] / 2),
        ("control/max_grad_norm", 1e-3, lambda before, after: after["optim/grad_norm"] > 1e-3),  # pre-clip
    ],
)
def test_a_knob_takes_effect_at_the_next_step(trainer, knob, value, seen):
    run = trainer("optim.warmup_steps=0")
    before = run.train_step().metrics
    run.controls.set(knob, value)
    after = run.train_step().metrics
    assert seen(before, after) and after[knob] == value


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("control/epsilon_low", 0.01),
        ("control/epsilon_high", 0.01),
        ("control/beta", 0.9),
        ("control/entropy_coef", 0.1),
        ("control/max_grad_norm", 1e-3),
        ("control/lr_scale", 0.5),
    ],
)
def test_a_knob_of_the_update_changes_the_update(trainer, knob, value):
    settings = ("optim.lr=5e-3", "optim.warmup_steps=0", "policy.inner_epochs=4", "rollout.prompts=8")
    plain, turned = (trainer(*settings, folder=name, task="sorting") for name in "ab")
    for run in (plain, turned):
        run.train_step()
    assert torch.equal(weights(plain), weights(turned))
    turned.controls.set(knob, value)
    for run in (plain, turned):
        run.train_step()
    assert not torch.equal(weights(plain), weights(turned))


def test_more_minibatches_than_rows_are_as_many_as_rows(trainer):
    run = trainer("rollout.prompts=2", "rollout.group_size=2", "policy.minibatches=4")
    run.controls.set("control/prompts", 1)
    assert run.train_step().metrics["batch/updates"] == 2


def test_a_skipped_step_reports_and_leaves_the_weights(trainer):
    run = trainer()
    run.train_step()
    before = weights(run)
    run.controls.skip_update()
    metrics = run.train_step().metrics
    assert torch.equal(weights(run), before)
    assert metrics["optim/update_ratio"] == 0 and metrics["batch/updates"] == 0 and metrics["optim/grad_norm"] > 0
    assert run.train_step().metrics["batch/updates"] == 2


def test_learning_rate_schedules(small):
    optim = small("optim.lr=1.0", "optim.warmup_steps=4", "optim.schedule=linear").optim
    # 5 steps up to the peak in fifths, then from 1 down to 0.1 over the remaining 96
    assert [learning_rate(optim, step, 100) for step in (1, 4)] == pytest.approx([0.2, 0.8])
    assert learning_rate(optim, 52, 100) == pytest.approx(0.1 + 0.9 * 0.5)
    assert learning_rate(optim, 100, 100) == learning_rate(optim, 500, 100) == pytest.approx(0.1)
    cosine = small("optim.lr=1.0", "optim.warmup_steps=0", "optim.schedule=cosine").optim
    # a quarter of the way: 0.1 + 0.9 * (1 + cos(pi / 4)) / 2
    assert learning_rate(cosine, 25, 100) == pytest.approx(0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2)
    constant = small("optim.lr=1.0", "optim.warmup_steps=0").optim
    assert learning_rate(constant, 1, 100) == learning_rate(constant, 100, 100) == 1.0
    assert get_args(get_type_hints(OptimConfig)["schedule"]) == KINDS
    for kind in KINDS:  # the same for many steps at once
        config = small("optim.lr=1.0", "optim.warmup_steps=4", f"optim.schedule={kind}").optim
        steps = np.arange(1, 111)
        each = [learning_rate(config, int(step), 100) for step in steps]
        assert shares_of_peak(kind, 4, steps, 100).tolist() == pytest.approx(each)


# --- the reference ----------------------------------------------------------------------------------------------------


def test_the_reference_is_loaded_when_beta_leaves_0_and_is_the_starting_policy(trainer):
    always, late = trainer("policy.beta=1e-9", folder="a"), trainer("policy.beta=0", folder="b")
    for _ in range(3):
        always.train_step()
        assert "policy/kl_ref" not in late.train_step().metrics
    late.controls.set("control/beta", 1e-9)
    measured, wanted = late.train_step().metrics["policy/kl_ref"], always.train_step().metrics["policy/kl_ref"]
    assert measured == pytest.approx(wanted, rel=0.05) and measured > 1e-3  # the drift of four steps, not of one
    late.controls.set("control/beta", 0.0)
    assert "policy/kl_ref" in late.train_step().metrics


def test_a_high_beta_holds_the_policy(trainer):
    drift = {}
    for beta in (0.001, 1.0):
        run = trainer(f"policy.beta={beta}", "optim.lr=1e-3", "rollout.prompts=8", folder=str(beta))
        drift[beta] = np.mean([run.train_step().metrics["policy/kl_ref"] for _ in range(15)][-5:])
    assert drift[1.0] < drift[0.001] / 2


# --- what is not finite -----------------------------------------------------------------------------------------------


def test_a_nan_in_a_weight_is_reported_and_its_updates_are_skipped(trainer):
    run = trainer()
    run.train_step()
    with torch.no_grad():
        next(run.policy.model.parameters())[5, 3] = math.nan
    before = weights(run)
    metrics = run.train_step().metrics
    assert math.isnan(metrics["policy/loss"]) and math.isnan(metrics["optim/grad_norm"])
    assert math.isnan(metrics["policy/kl_old"]) and math.isnan(metrics["policy/ratio_max"])
    assert metrics["optim/skipped"] == 2 and metrics["batch/updates"] == 0
    assert torch.equal(weights(run).nan_to_num(7.0), before.nan_to_num(7.0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_bad_gradient_is_reported_and_only_its_update_is_skipped(trainer, bad):
    run = trainer()
    run.train_step()
    calls = []

    def spoil(gradient):
        calls.append(1)
        return gradient * bad if len(calls) == 1 else gradient

    hook = run.policy.model.model.norm.weight.register_hook(spoil)
    metrics = run.train_step().metrics
    hook.remove()
    assert not math.isfinite(metrics["optim/grad_norm"]) and not math.isfinite(metrics["optim/grad_norm_max"])
    assert math.isfinite(metrics["policy/loss"])
    assert metrics["optim/skipped"] == 1 and metrics["batch/updates"] == 1
    assert weights(run).isfinite().all() and run.train_step().metrics["optim/skipped"] == 0


def test_a_critic_whose_gradient_is_not_finite_is_not_updated(trainer):
    run = trainer("algorithm=ppo", "policy.minibatches=1")
    run.train_step()  # optimizer moments exist now, and would keep the NaN for good
    hook = run.critic.head.weight.register_hook(lambda gradient: gradient * math.nan)
    metrics = run.train_step().metrics
    hook.remove()
    assert math.isfinite(metrics["optim/grad_norm"]) and math.isnan(metrics["value/grad_norm"])
    assert metrics["optim/skipped"] == 1 and metrics["batch/updates"] == 0
    assert all(parameter.isfinite().all() for parameter in run.critic.parameters())
    assert run.train_step().metrics["optim/skipped"] == 0


# --- other models -----------------------------------------------------------------------------------------------------


def test_a_saved_model_trains_from_its_folder(trainer, tmp_path):
    trainer().save_pretrained(tmp_path / "mine")
    run = trainer(f"model={tmp_path / 'mine'}", task="sorting")
    for _ in range(2):
        assert math.isfinite(run.train_step().metrics["policy/loss"])
    by_name = trainer()
    by_folder = trainer(f"model={tmp_path / 'mine'}")
    assert without_time(by_folder.train_step().metrics) == without_time(by_name.train_step().metrics)


def test_a_model_that_is_not_there_is_a_clear_error(trainer, tmp_path):
    with pytest.raises(ValueError, match="model = .*no such folder"):
        trainer(f"model={tmp_path / 'nothing'}")
    with pytest.raises(ValueError, match="model = .*cannot be loaded"):
        trainer("model=nobody/nothing")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_asking_for_cuda_where_there_is_none_is_a_clear_error(trainer):
    with pytest.raises(ValueError, match="device=cpu or device=auto"):
        trainer("device=cuda")
