"""What keeps a run on the rails, each seen to do its work in the loop and not only in its own formula."""

import itertools
import math

import pytest
import torch

from stabilizer.core.algorithms import ALGORITHMS
from stabilizer.training.adaptive import AdaptiveClip
from stabilizer.training.metrics import judged, reward_metrics
from stabilizer.training.tasks import Score
from tests.training.test_loop import weights, without_time


def steps(run, count):
    return [without_time(run.train_step().metrics) for _ in range(count)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_trains_and_reports_finite_numbers(trainer, algorithm):
    run = trainer(f"algorithm={algorithm}", "policy.beta=0.01", "rollout.prompts=8", task="sorting")
    before = weights(run)
    for metrics in steps(run, 2):
        assert all(math.isfinite(value) for value in metrics.values()), metrics
        assert metrics["policy/ratio_first_error"] < 1e-4 and metrics["optim/update_ratio"] > 0
    assert not torch.equal(weights(run), before)


def test_a_minibatch_in_pieces_is_the_minibatch(trainer):
    """Gradients of micro-batches add up, whatever the average, and metrics are those of the whole."""
    for average in ("token", "sequence", "constant"):
        options = (f"policy.average={average}", "policy.entropy_coef=0.01", "policy.beta=0.05", "optim.lr=1e-3")
        whole = trainer(*options, folder=f"{average}-whole", task="length")
        pieces = trainer(*options, "optim.micro_batch=3", folder=f"{average}-pieces", task="length")
        for run in (whole, pieces):
            run.policy.model.double()  # so that another order of summation can't be mistaken for another sum
        for one, other in zip(steps(whole, 2), steps(pieces, 2), strict=True):
            assert one == pytest.approx(other, rel=1e-4, abs=1e-6), average


def test_recomputing_activations_changes_no_gradient(trainer):
    plain = trainer(folder="plain", task="length")
    thrifty = trainer("gradient_checkpointing=true", folder="thrifty", task="length")
    for one, other in zip(steps(plain, 2), steps(thrifty, 2), strict=True):
        # the thrifty one is computed by transformers, in another order of sums
        assert one == pytest.approx(other, rel=1e-4, abs=5e-6)


def test_activations_are_recomputed_when_asked_for(trainer):
    """Each layer of policy and critic runs once for its gradients, and once more in the backward pass."""
    for wanted, times in (("false", 1), ("true", 2)):
        run = trainer("algorithm=ppo", "policy.minibatches=1", f"gradient_checkpointing={wanted}", folder=wanted)
        layers = [layer.self_attn for model in (run.policy.model, run.critic.trunk) for layer in model.model.layers]
        runs = dict.fromkeys(layers, 0)

        def count(layer, arguments, runs=runs):
            runs[layer] += torch.is_grad_enabled()

        for layer in layers:
            layer.register_forward_pre_hook(count)
        run.train_step()
        assert list(runs.values()) == [times] * 4, wanted  # of two layers each


def test_an_update_that_is_not_finite_is_left_out(trainer, monkeypatch):
    run = trainer()
    run.train_step()
    before = weights(run)
    head = run.policy.model.get_output_embeddings().weight
    kept = head.detach().clone()
    with torch.no_grad():
        head.fill_(math.nan)
    metrics = run.train_step().metrics
    assert metrics["optim/skipped"] == 2 and metrics["batch/updates"] == 0 and math.isnan(metrics["policy/loss"])
    with torch.no_grad():
        head.copy_(kept)
    assert torch.equal(weights(run), before)


def test_a_failed_reward_masks_its_completion_and_nothing_else(trainer, monkeypatch):
    run = trainer("policy.minibatches=1")
    score_all = run.task.score_all

    def with_failures(problems, texts):
        scores = score_all(problems, texts)
        return [Score(math.nan, False, {}, failed="judge timed out"), *scores[1:]]

    monkeypatch.setattr(run.task, "score_all", with_failures)
    metrics = run.train_step().metrics
    assert metrics["reward/failed_frac"] == 1 / 16 and math.isfinite(metrics["reward/mean"])
    assert math.isfinite(metrics["policy/loss"]) and metrics["batch/updates"] == 1
    monkeypatch.setattr(
        run.task, "score_all", lambda problems, texts: [Score(math.nan, False, {}, failed="down")] * len(texts)
    )
    before = weights(run)
    metrics = run.train_step().metrics
    assert metrics["reward/failed_frac"] == 1 and "reward/mean" not in metrics and torch.equal(weights(run), before)


def test_silent_groups_can_be_left_out_or_replaced(trainer):
    options = ("rollout.prompts=8", "rollout.group_size=4")
    kept, dropped = trainer(*options, folder="kept"), trainer(*options, "policy.filter_groups=drop", folder="dropped")
    resampled = trainer(*options, "policy.filter_groups=resample", "policy.resample_batches=6", folder="resampled")
    one, two, three = (run.train_step().metrics for run in (kept, dropped, resampled))
    silent = round(one["reward/zero_std_frac"] * 8)
    assert 0 < silent < 8 and one["batch/prompts"] == 8
    assert two["batch/prompts"] == 8 - silent and two["batch/prompts_drawn"] == 8
    # as many groups as were asked for, all of them with something to teach, out of more prompts
    assert three["batch/prompts"] == 8 and three["batch/prompts_drawn"] > 8 and three["batch/prompts_drawn"] % 8 == 0
    assert resampled._progress.cursor == three["batch/prompts_drawn"]


def test_resampling_gives_up_after_its_last_batch(trainer, monkeypatch):
    run = trainer("policy.filter_groups=resample", "policy.resample_batches=3")
    monkeypatch.setattr(run.task, "score", lambda problem, text: Score(0.0, False, {"exact": 0.0}))
    metrics = run.train_step().metrics
    assert metrics["batch/prompts_drawn"] == 12 and metrics["batch/prompts"] == 0 and "policy/loss" not in metrics


def test_resampling_ends_as_soon_as_all_batches_together_teach_enough(trainer, monkeypatch):
    run = trainer("rollout.prompts=8", "policy.filter_groups=resample", "policy.resample_batches=6")
    answers = itertools.count()

    def half_of_the_groups_differ(problem, text):
        number = next(answers)
        right = number % 2 == 1 and number // 4 % 2 == 1
        return Score(float(right), right, {"exact": float(right)})

    monkeypatch.setattr(run.task, "score", half_of_the_groups_differ)
    metrics = run.train_step().metrics
    assert metrics["batch/prompts_drawn"] == 16 and metrics["batch/prompts"] == 8


def test_an_adaptive_coefficient_follows_the_kl(trainer):
    run = trainer("policy.beta=0.01", "policy.kl_target=1e-4", "policy.kl_horizon=1", "optim.lr=2e-3")
    seen = [metrics["policy/beta"] for metrics in steps(run, 5)]
    # before the first update the KL is 0, and from then on far above the target
    assert seen[0] == 0.01 and seen[1] < seen[0] and seen[4] > seen[3] > seen[2] > seen[1]
    assert run.controls.get("control/beta") == 0.01  # what people set stays what they set


def test_the_bonus_grows_while_the_entropy_is_below_its_target(trainer):
    run = trainer("policy.entropy_target=3.0")
    seen = [metrics["policy/entropy_coef"] for metrics in steps(run, 3)]
    assert seen == pytest.approx([0.0, 0.005, 0.01])
    run.controls.set("control/entropy_target", 0.0)
    run.train_step()
    assert run.train_step().metrics["policy/entropy_coef"] == 0


def test_adaptive_clipping_learns_a_limit_from_its_own_norms(trainer):
    run = trainer("optim.adaptive_clip=1.5", "policy.minibatches=4", "rollout.prompts=8")
    seen = steps(run, 4)
    assert seen[0]["optim/clip_limit"] == 1.0  # the ceiling, as long as there are few norms
    assert seen[-1]["optim/clip_limit"] <= 1.0 and len(run._progress.norms) == 16


def test_gradients_are_scaled_down_to_the_adaptive_limit(trainer, monkeypatch):
    run = trainer("optim.adaptive_clip=1.5", "policy.minibatches=1")
    monkeypatch.setattr(AdaptiveClip, "step", lambda self, norms, norm, ceiling: (norms, 1e-3))
    metrics = run.train_step().metrics
    left = torch.nn.utils.get_total_norm([parameter.grad for parameter in run.learner.parameters]).item()
    assert metrics["optim/grad_norm"] > 1e-2 and left == pytest.approx(1e-3, rel=1e-3)


def test_gradients_below_their_limit_stay_as_they_are(trainer):
    run = trainer("optim.max_grad_norm=1000", "policy.minibatches=1")
    metrics = run.train_step().metrics
    left = torch.nn.utils.get_total_norm([parameter.grad for parameter in run.learner.parameters]).item()
    assert left == pytest.approx(metrics["optim/grad_norm"], rel=1e-5)


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_while_only_the_critic_learns_the_adaptive_limit_learns_nothing(trainer, kind):
    run = trainer("algorithm=ppo", f"critic.kind={kind}", "critic.warmup_steps=12", "optim.adaptive_clip=2")
    seen = steps(run, 13)
    assert all(metrics["optim/grad_norm"] == 0 and "optim/clip_limit" not in metrics for metrics in seen[:12])
    assert seen[12]["optim/grad_norm"] > 0 and seen[12]["optim/clip_limit"] > 0 and seen[12]["optim/update_ratio"] > 0
    assert min(run._progress.norms) > 0


def test_a_stretch_without_any_gradient_sets_no_limit_of_nothing(trainer, monkeypatch):
    run = trainer("optim.adaptive_clip=2", "policy.beta=0", "policy.minibatches=4")
    with monkeypatch.context() as patch:
        patch.setattr(run.task, "score", lambda problem, text: Score(0.0, False, {"exact": 0.0}))
        assert all(metrics["optim/grad_norm"] == 0 for metrics in steps(run, 4))
    answers = itertools.count()
    monkeypatch.setattr(run.task, "score", lambda *_: Score(float(next(answers) % 2), False, {"exact": 0.0}))
    metrics = run.train_step().metrics
    assert metrics["optim/grad_norm"] > 0 and metrics["optim/clip_limit"] > 0 and metrics["optim/update_ratio"] > 0


def test_what_is_said_of_the_policy_is_said_of_all_completions_not_of_those_that_teach(trainer):
    every, chosen = (trainer(f"policy.filter_groups={how}", folder=how) for how in ("off", "drop"))
    every, chosen = every.train_step().metrics, chosen.train_step().metrics
    assert 0 < chosen["batch/prompts"] < every["batch/prompts"]
    for name in ("policy/entropy", "policy/kl_ref", "optim/lr"):
        assert chosen[name] == every[name], name


def test_a_step_in_which_nothing_teaches_still_tells_entropy_kl_and_rate(trainer, monkeypatch):
    run = trainer("policy.filter_groups=drop", "optim.lr=2e-3")
    run.train_step()
    monkeypatch.setattr(run.task, "score", lambda problem, text: Score(0.0, False, {"exact": 0.0}))
    metrics = run.train_step().metrics
    assert metrics["batch/updates"] == 0 and "policy/loss" not in metrics
    assert metrics["policy/entropy"] > 0 and metrics["policy/kl_ref"] > 0 and metrics["optim/lr"] > 0


def test_at_beta_0_no_reference_is_loaded_to_be_refreshed(trainer):
    run = trainer("policy.beta=0", "policy.reference_every=1")
    steps(run, 2)
    assert not run._progress.reference and run.reference.weights is None


def test_groups_are_left_out_with_a_critic_too_where_it_is_asked_for(trainer):
    run = trainer("algorithm=ppo", "policy.filter_groups=drop")
    metrics = run.train_step().metrics
    alike = round(4 * metrics["reward/zero_std_frac"])
    assert alike and metrics["batch/prompts"] == 4 - alike
    with pytest.raises(ValueError, match=r"off with rollout.group_size = 1"):
        trainer("algorithm=ppo", "policy.filter_groups=drop", "rollout.group_size=1", "rollout.prompts=8")


def test_one_answer_a_prompt_is_compared_with_nothing_and_left_out_for_nothing(trainer):
    run = trainer("algorithm=ppo", "policy.filter_groups=resample")
    run.controls.set("control/group_size", 1)
    metrics = run.train_step().metrics
    assert metrics["batch/prompts_drawn"] == metrics["batch/prompts"] == 4


def test_gradient_norms_are_told_by_block_on_request(trainer):
    metrics = trainer("optim.block_norms=true", "policy.minibatches=1").train_step().metrics
    parts = [value for name, value in metrics.items() if name.startswith("optim/grad_norm/")]
    assert len(parts) == 3  # two blocks, and what is outside of them
    assert math.hypot(*parts) == pytest.approx(metrics["optim/grad_norm"], rel=1e-4)


# --- bounds within the objective: on the same completions, with and without -------------------------------------------

FAR = ("policy.minibatches=4", "policy.inner_epochs=2", "optim.lr=5e-3", "optim.warmup_steps=0", "rollout.prompts=8")
"""Updates large enough that later minibatches of a step find another policy than the one that wrote them."""


@pytest.mark.parametrize(
    ("option", "off", "share", "setting"),
    [
        ("policy.dual_clip=1.01", 0, "policy/dual_clip_frac", ()),
        ("policy.ratio_guard=1.01", 0, "policy/guarded_frac", ()),
        ("policy.off_policy_mask=0.001", 0, "policy/off_policy_masked_frac", ()),
        ("policy.epsilon_low=0.01", 1, "policy/clip_frac_low", ("policy.epsilon_high=10",)),
        ("policy.epsilon_high=0.01", 10, "policy/clip_frac_high", ("policy.epsilon_low=1",)),
        ("critic.clip_range=0.001", 0, "value/clip_frac", ("algorithm=ppo",)),
    ],
)
def test_a_bound_changes_the_update_of_those_that_are_beyond_it(trainer, option, off, share, setting):
    bound = trainer(*FAR, *setting, option, folder="bound")
    free = trainer(*FAR, *setting, f"{option.split('=')[0]}={off}", folder="free")
    metrics, without = bound.train_step().metrics, free.train_step().metrics
    assert 0 < metrics[share] < 1 and without.get(share, 0) == 0
    bound_to, free_to = (
        torch.cat([weights(run), *(p.detach().view(-1) for p in (run.critic.parameters() if run.critic else ()))])
        for run in (bound, free)
    )
    assert not torch.equal(bound_to, free_to)


def test_advantages_are_held_within_their_bound(trainer):
    options = ("samples.every=1", "policy.minibatches=1")
    free, bound = trainer(*options, folder="free"), trainer(*options, "policy.advantage_clip=0.6", folder="bound")
    (before, free_samples), (after, bound_samples) = ((weights(run), run.train_step().samples) for run in (free, bound))
    assert torch.equal(before, after)
    given = [sample.advantage for sample in free_samples]
    assert max(given) > 0.6 and any(0 < abs(advantage) < 0.6 for advantage in given)
    assert [sample.advantage for sample in bound_samples] == pytest.approx([max(-0.6, min(0.6, a)) for a in given])
    assert not torch.equal(weights(bound), weights(free))


def test_a_bonus_keeps_entropy_up_and_a_penalty_takes_it_down(trainer):
    last = {}
    for coef in (-0.1, 0, 0.1):
        options = (f"policy.entropy_coef={coef}", "policy.beta=0", "optim.lr=2e-3", "optim.warmup_steps=0")
        last[coef] = steps(trainer(*options, folder=str(coef)), 5)[-1]["policy/entropy"]
    assert last[-0.1] + 0.1 < last[0] < last[0.1] - 0.1


# --- the optimizer ----------------------------------------------------------------------------------------------------


def test_decay_takes_its_share_of_every_matrix_and_changes_nothing_else(trainer):
    options = ("optim.lr=1e-2", "optim.warmup_steps=0", "policy.minibatches=1")
    plain, decayed = trainer(*options, folder="plain"), trainer(*options, "optim.weight_decay=0.5", folder="decayed")
    before = weights(plain)
    plain.train_step(), decayed.train_step()
    # lr x weight_decay = 0.005 of what each weight was, beside the same step; biases and norms keep theirs
    matrix = torch.cat([torch.full([p.numel()], p.dim() > 1) for p in plain.learner.parameters])
    torch.testing.assert_close(weights(plain) - weights(decayed), 0.005 * before * matrix, rtol=0, atol=5e-7)
    assert before[matrix].abs().max() > 0.1 and before[~matrix].abs().max() > 0.1


def test_averages_of_the_gradient_decay_as_configured(trainer):
    run = trainer("optim.betas=[0.8,0.95]", "policy.minibatches=1", "algorithm=ppo")
    run.train_step()
    moved = [*run.learner.parameters, *run.critic.parameters()]
    assert max(parameter.grad.abs().max() for parameter in moved) > 1e-3
    for parameter in moved:
        # after one update: (1 - 0.8) of the gradient, (1 - 0.95) of its square
        state, gradient = run.learner.optimizer.state[parameter], parameter.grad
        torch.testing.assert_close(state["exp_avg"], 0.2 * gradient, rtol=1e-5, atol=1e-12)
        torch.testing.assert_close(state["exp_avg_sq"], 0.05 * gradient.square(), rtol=1e-5, atol=1e-12)


# --- precision, adapters, critic ------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["mixed", "bfloat16"])
def test_low_precision_trains_and_the_mismatch_is_measured(trainer, precision):
    run = trainer(f"precision={precision}", "optim.lr=1e-3", task="length")
    for metrics in steps(run, 2):
        assert all(math.isfinite(value) for value in metrics.values())
        # the sampler's arithmetic is not the learner's to the last bit, so a pass of the learner stands in for it
        assert metrics["policy/mismatch_kl"] > 0 and "policy/mismatch_ratio_max" in metrics
        assert metrics["policy/ratio_first_error"] < 0.2
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    assert next(run.policy.model.parameters()).dtype == dtype


@pytest.mark.parametrize("kind", ["tis_token", "tis_sequence", "mask_token", "mask_sequence"])
def test_mismatch_can_be_corrected_for(trainer, kind):
    run = trainer("precision=bfloat16", f"policy.mismatch={kind}", "policy.mismatch_cap=1.001", "policy.minibatches=1")
    plain = trainer("precision=bfloat16", "policy.minibatches=1", folder="plain")
    corrected, uncorrected = run.train_step().metrics, plain.train_step().metrics
    assert corrected["policy/loss"] != uncorrected["policy/loss"]
    assert (corrected["policy/mismatch_masked_frac"] > 0) == kind.startswith("mask")


def test_the_head_in_float32_is_closer_to_the_truth(trainer):
    run = trainer("precision=bfloat16", "head_float32=false", task="length")
    coarse = run.train_step().metrics["policy/mismatch_kl"]
    run.controls.set("control/head_float32", "on")
    fine = run.train_step().metrics["policy/mismatch_kl"]
    assert coarse > 0 and fine != coarse


def test_adapters_train_alone_and_the_reference_is_the_model_without_them(trainer, tmp_path):
    peft = pytest.importorskip("peft")
    assert peft
    run = trainer("lora.rank=4", "policy.beta=0.01", "policy.minibatches=1", "optim.lr=5e-3")
    model = run.policy.model
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    assert frozen and sum(p.numel() for p in model.parameters() if p.requires_grad) < 30_000
    first, second, third = steps(run, 3)
    assert first["policy/kl_ref"] == pytest.approx(0, abs=1e-6) and third["policy/kl_ref"] > 1e-6
    assert first["policy/ratio_first_error"] < 1e-4 and third["policy/ratio_first_error"] < 1e-4
    assert all(torch.equal(p, frozen[n]) for n, p in model.named_parameters() if n in frozen)
    assert run.reference._model is None  # no second model was ever loaded
    run.controls.reset_reference()
    assert run.train_step().metrics["policy/kl_ref"] == pytest.approx(0, abs=1e-6)

    saved = run.save_checkpoint()
    size = (saved.path / "model.safetensors").stat().st_size
    assert size < 4 * 40_000  # adapters only
    other = trainer("lora.rank=4", "policy.beta=0.01", "policy.minibatches=1", "optim.lr=5e-3")
    other.resume()
    assert steps(other, 1) == steps(run, 1)


@pytest.mark.parametrize(
    ("targets", "adapted"),
    [
        ("q_proj, down_proj", {"q_proj", "down_proj"}),
        ("v_proj", {"v_proj"}),
        ("all-linear", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
    ],
)
def test_only_the_layers_that_are_named_get_adapters(trainer, targets, adapted):
    pytest.importorskip("peft")
    run = trainer("lora.rank=2", f"lora.targets={targets}")
    learning = [name for name, parameter in run.policy.model.named_parameters() if parameter.requires_grad]
    assert {name.split(".lora_")[0].split(".")[-1] for name in learning} == adapted
    assert len(learning) == 2 * 2 * len(adapted)  # A and B, in both blocks
    assert run.train_step().metrics["optim/update_ratio"] > 0


def test_exported_adapters_are_merged_and_say_the_same(trainer, tmp_path):
    pytest.importorskip("peft")
    run = trainer("lora.rank=4", "optim.lr=5e-3")
    steps(run, 2)
    run.save_pretrained(tmp_path / "out")
    from stabilizer.training.model import load_policy

    plain = load_policy(str(tmp_path / "out"), "addition", torch.device("cpu"))
    ids = torch.tensor([run.policy.tokenizer("37+58=")["input_ids"]])
    assert torch.allclose(plain.model(ids).logits, run.policy.model(ids).logits, atol=1e-5)


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_while_the_critic_warms_up_the_policy_stays(trainer, kind):
    run = trainer("algorithm=ppo", f"critic.kind={kind}", "critic.warmup_steps=2")
    before = weights(run)
    for metrics in steps(run, 2):
        assert metrics["value/grad_norm"] > 0 and metrics["optim/update_ratio"] == 0
    assert torch.equal(weights(run), before)
    run.train_step()
    assert not torch.equal(weights(run), before)


def test_a_critic_learns_what_to_expect(trainer):
    run = trainer("algorithm=ppo", "critic.warmup_steps=40", "rollout.prompts=16", "critic.lr=2e-3", task="length")
    seen = steps(run, 40)
    assert seen[0]["value/explained_variance"] == pytest.approx(0, abs=0.05) and seen[0]["value/mean"] > -2
    assert seen[-1]["value/loss"] < 0.5 * seen[0]["value/loss"]  # the head starts at 0, and rewards are around -9
    assert seen[-1]["value/mean"] == pytest.approx(seen[-1]["reward/mean"], abs=3)


# --- validation, best, early end ------------------------------------------------------------------------------------


def test_pass_at_k_is_at_least_pass_at_1(trainer):
    metrics = trainer("validation.samples=4", "validation.problems=64", task="sorting").validate()
    assert 0 <= metrics["accuracy/val_pass1"] < metrics["accuracy/val_passk"] <= 1


def test_the_best_state_is_saved_and_outlives_the_thinning(trainer):
    run = trainer("validation.every=1", "checkpoint.every=0", "checkpoint.keep=2")
    seen = iter([0.5, 0.1, 0.1, 0.1, 0.1])
    run.validate = lambda: {"accuracy/val": next(seen)}
    due = []
    for _ in range(5):
        run.train_step()
        due.append(run.checkpoint_due)
        run.save_checkpoint()
    assert due == [True, False, False, False, False]
    assert 1 in [checkpoint.step for checkpoint in run.checkpoints()]


def test_a_run_ends_when_validation_has_stopped_improving(trainer):
    run = trainer("validation.every=1", "validation.patience=2")
    seen = iter([0.5, 0.4, 0.3])
    run.validate = lambda: {"accuracy/val": next(seen)}
    run.train_step(), run.train_step()
    assert run.finished is None
    run.train_step()
    assert "50.0% (step 1)" in run.finished


def test_reward_metrics_of_a_group_of_one():
    scores = [Score(1.0, True, {"exact": 1.0})] * 3
    one = reward_metrics(scores, judged(scores), torch.ones(3, 1))
    assert "reward/std_group" not in one and one["reward/zero_std_frac"] == 1


def test_the_weight_of_the_value_loss_scales_the_critics_gradient(trainer):
    norms = []
    for coef in (0.5, 2.0):
        run = trainer("algorithm=ppo", "policy.minibatches=1", f"critic.coef={coef}", task="sorting")
        norms.append(run.train_step().metrics["value/grad_norm"])
    assert norms[1] == pytest.approx(4 * norms[0], rel=1e-4)  # 2.0 / 0.5


def test_the_critics_gradient_is_clipped_by_itself(trainer):
    run = trainer("algorithm=ppo", "policy.minibatches=1", "optim.max_grad_norm=1e-3", task="sorting")
    assert run.train_step().metrics["value/grad_norm"] > 0.01  # what is reported is the norm before
    averages = [run.learner.optimizer.state[parameter]["exp_avg"] for parameter in run.critic.parameters()]
    # after one update Adam's average is (1 - 0.9) times the gradient
    assert torch.nn.utils.get_total_norm(averages).item() == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_the_critics_rate_follows_the_schedule_and_no_knob(trainer):
    run = trainer("algorithm=ppo", "optim.lr=4e-4", "optim.warmup_steps=3", "critic.lr=1e-2")
    run.controls.set("control/lr_scale", 0.5)
    run.train_step()
    rates = [group["lr"] for group in run.learner.optimizer.param_groups]
    assert rates == pytest.approx([4e-4 / 4 * 0.5, 1e-2 / 4])  # the first of 3 + 1 steps of warm-up
