"""Everything that may be turned is turned in the middle of a run, and seen to act on the very next step."""

import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from stabilizer.core.knobs import KNOBS
from stabilizer.core.metrics import VOCABULARY
from stabilizer.training.config import load_config
from stabilizer.training.knobs import Knobs, initial_knobs, read
from stabilizer.training.model import build_tokenizer
from tests.training.test_loop import weights


def turned(run, name, value):
    """Metrics of the step before and of the step after one knob was turned."""
    before = run.train_step().metrics
    run.controls.set(name, value)
    return before, run.train_step().metrics


def test_every_knob_of_a_run_is_read_and_recorded_at_every_step(trainer):
    run = trainer()
    assert set(run.controls.values()) == set(KNOBS) - {"control/actor_frozen"}  # there is no critic to wait for
    assert {f"control/{name}" for name in Knobs._fields} == set(KNOBS)
    metrics = run.train_step().metrics
    assert {name: metrics[name] for name in run.controls.values()} == run.controls.values()
    assert all(name in VOCABULARY for name in KNOBS)


def test_each_knob_changes_the_run_it_is_turned_in(trainer):
    """No knob is a dummy: from the same state, the next two steps differ from those of a run left alone."""
    settings = ("policy.beta=0.05", "policy.minibatches=2", "policy.overlong_factor=0.5", "rollout.max_completion=4")
    changes = {
        "control/lr_scale": 0.5, "control/beta": 0.5, "control/kl_kind": "k1", "control/epsilon_low": 0.0002,
        "control/epsilon_high": 0.0002, "control/temperature": 0.7, "control/max_grad_norm": 0.01,
        "control/entropy_coef": 0.05, "control/entropy_target": 5.0, "control/prompts": 6, "control/group_size": 6,
        "control/inner_epochs": 2, "control/minibatches": 1, "control/max_completion": 2,
        "control/overlong_buffer": 0.9, "control/validate_every": 1, "control/advantage": "group_mean",
        "control/filter_groups": "drop", "control/mask_truncated": "on", "control/average": "constant",
    }  # fmt: skip
    # The engine and the learner agree in float32, so that a correction of mismatch and the head's precision change
    # nothing here; the next test turns them.
    assert set(changes) == set(KNOBS) - {"control/mismatch", "control/head_float32", "control/actor_frozen"}

    def two_steps(name=None):
        run = trainer(*settings, folder=name or "alone")
        run.train_step()
        run.train_step()  # the policy has left the reference, so that the KL has a gradient
        if name:
            run.controls.set(name, changes[name])
        seen = [run.train_step().metrics for _ in range(3)]
        return [{k: v for k, v in m.items() if not k.startswith(("time/", "control/"))} for m in seen], weights(run)

    alone, left = two_steps()
    for name in changes:
        metrics, moved = two_steps(name)
        assert metrics != alone, name
        if name != "control/validate_every":
            assert not torch.equal(moved, left), name


@pytest.mark.parametrize(("name", "setting"), [("control/mismatch", "tis_token"), ("control/head_float32", "off")])
def test_in_low_precision_the_correction_of_mismatch_and_the_head_can_be_turned(trainer, name, setting):
    def third_step(folder, turn):
        run = trainer("precision=bfloat16", "policy.mismatch_cap=1", folder=folder)
        run.train_step()
        run.train_step()  # the first step has shown that sampler and learner disagree; this one is corrected for it
        if turn:
            run.controls.set(name, setting)
        run.train_step()
        return weights(run)

    assert torch.equal(third_step("alone", False), third_step("again", False))
    assert not torch.equal(third_step("alone-too", False), third_step("turned", True))


def test_the_head_is_a_knob_where_the_model_has_one_that_can_be_turned(trainer, tmp_path):
    gpt2 = GPT2Config(vocab_size=44, n_embd=32, n_layer=1, n_head=2, n_positions=64, eos_token_id=2)
    GPT2LMHeadModel(gpt2).save_pretrained(tmp_path / "gpt2")
    build_tokenizer().save_pretrained(tmp_path / "gpt2")

    def seen(folder, setting):
        run = trainer(f"model={tmp_path / 'gpt2'}", "precision=bfloat16", f"head_float32={setting}", folder=folder)
        return run.train_step().metrics["policy/mismatch_kl"]

    assert seen("on", "true") != seen("off", "false")
    pytest.importorskip("peft")
    adapted = trainer("lora.rank=2", "lora.targets=lm_head", folder="adapted")
    assert "control/head_float32" not in adapted.controls
    assert "control/head_float32" not in adapted.train_step().metrics


def test_the_batch_grows_and_shrinks_without_a_restart(trainer):
    run = trainer()
    _, after = turned(run, "control/prompts", 7)
    assert (after["batch/prompts"], after["batch/group_size"]) == (7, 4)
    _, after = turned(run, "control/group_size", 9)
    assert (after["batch/prompts"], after["batch/group_size"]) == (7, 9)
    _, after = turned(run, "control/prompts", 1)
    assert after["batch/prompts"] == 1


def test_minibatches_and_epochs_change_the_number_of_updates(trainer):
    run = trainer()
    before, after = turned(run, "control/inner_epochs", 3)
    assert (before["batch/updates"], after["batch/updates"]) == (2, 6)
    _, after = turned(run, "control/minibatches", 4)
    assert after["batch/updates"] == 12


def test_a_temperature_turned_is_the_learners_too(trainer):
    _, after = turned(trainer(task="length"), "control/temperature", 0.5)
    assert after["policy/ratio_first_error"] < 1e-4


def test_a_shorter_limit_cuts_and_masking_takes_the_cut_ones_out(trainer):
    run = trainer(task="length")
    _, after = turned(run, "control/max_completion", 8)
    assert after["rollout/length_max"] == 8 and after["rollout/truncated_frac"] > 0.3
    # of the same groups the completions that ran into the limit teach nothing now
    run.controls.set("control/max_completion", 5)
    everything = run.train_step().metrics
    assert everything["rollout/truncated_frac"] > 0.5
    run.controls.set("control/mask_truncated", "on")
    run.controls.set("control/max_completion", 1)
    nothing = run.train_step().metrics
    assert nothing["rollout/truncated_frac"] == 1 and nothing["batch/prompts"] == 0
    assert "policy/loss" not in nothing  # no completion was left, so nothing was updated
    assert math.isfinite(nothing["reward/mean"])


def test_beta_turned_up_loads_the_reference_and_measures_the_drift(trainer):
    run = trainer("policy.beta=0")
    before, after = turned(run, "control/beta", 0.1)
    assert "policy/kl_ref" not in before and after["policy/kl_ref"] > 0 and after["policy/beta"] == 0.1


def test_switches_take_names_and_refuse_others(trainer):
    controls = trainer().controls
    assert controls.set("control/kl_kind", "k1") == (2, 0) and controls.choice("control/kl_kind") == "k1"
    assert controls.set("control/filter_groups", 2) == (0, 2) and controls.choice("control/filter_groups") == "resample"
    with pytest.raises(ValueError, match="one of k1, k2, k3"):
        controls.set("control/kl_kind", "k9")
    with pytest.raises(ValueError, match="a number"):
        controls.set("control/beta", "high")
    with pytest.raises(ValueError, match="between 0 and 2"):
        controls.set("control/filter_groups", 3)


@pytest.mark.parametrize(
    ("algorithm", "absent"),
    [
        ("grpo", {"actor_frozen"}),  # has no critic
        ("ppo", {"advantage", "filter_groups", "kl_kind"}),  # compares no groups, and pays k1
        ("rloo", {"actor_frozen", "kl_kind", "epsilon_low", "epsilon_high"}),  # has no ratio to clip
        ("cispo", {"actor_frozen"}),
        ("sapo", {"actor_frozen", "epsilon_low", "epsilon_high"}),
    ],
)
def test_a_knob_that_could_not_act_is_not_there_to_be_turned(trainer, algorithm, absent):
    run = trainer(f"algorithm={algorithm}")
    assert set(KNOBS) - set(run.controls.values()) == {f"control/{name}" for name in absent}
    for name in absent:
        with pytest.raises(ValueError, match="this run has no knob"):
            run.controls.set(f"control/{name}", KNOBS[f"control/{name}"].low)
    run.train_step()


def test_a_frozen_actor_stays_as_it_is_while_the_critic_learns(trainer):
    run = trainer("algorithm=ppo")
    run.train_step()
    run.controls.set("control/actor_frozen", "on")
    before, critic = weights(run), [p.detach().clone() for p in run.critic.parameters()]
    run.train_step()
    assert all(torch.equal(old, new) for old, new in zip(before, weights(run), strict=True))
    assert not all(torch.equal(old, new) for old, new in zip(critic, run.critic.parameters(), strict=True))


def test_knobs_reads_switches_as_words(trainer):
    run = trainer("policy.filter_groups=drop", "policy.mask_truncated=true")
    knobs = read(run.controls, run.config.policy)
    assert (knobs.filter_groups, knobs.mask_truncated, knobs.advantage) == ("drop", True, "group_std")


# --- what is done rather than set ------------------------------------------------------------------------------------


def test_a_skipped_update_is_measured_and_not_made(trainer):
    run = trainer()
    run.train_step()
    before = weights(run)
    run.controls.skip_update()
    metrics = run.train_step().metrics
    assert torch.equal(weights(run), before) and metrics["batch/updates"] == 0 and metrics["optim/update_ratio"] == 0
    assert metrics["optim/grad_norm"] > 0
    assert run.train_step().metrics["batch/updates"] == 2


def test_resetting_the_optimizer_forgets_its_averages(trainer):
    run = trainer()
    run.train_step()
    assert run.learner.optimizer.state
    run.controls.reset_optimizer()
    assert not run.learner.optimizer.state
    assert run.train_step().metrics["batch/updates"] == 2


def test_resetting_the_reference_measures_the_kl_from_here(trainer):
    run = trainer("policy.beta=0.01", "policy.minibatches=1", "optim.lr=2e-3")
    for _ in range(4):
        drifted = run.train_step().metrics["policy/kl_ref"]
    run.controls.reset_reference()
    assert drifted > 1e-3
    assert run.train_step().metrics["policy/kl_ref"] == pytest.approx(0, abs=1e-6)  # measured before the update
    assert run.train_step().metrics["policy/kl_ref"] > 1e-6


def test_the_reference_is_refreshed_by_schedule(trainer):
    run = trainer("policy.beta=0.01", "policy.minibatches=1", "policy.reference_every=2", "optim.lr=2e-3")
    seen = [run.train_step().metrics["policy/kl_ref"] for _ in range(5)]
    # refreshed after steps 2 and 4, and measured before the update: exactly 0 at steps 1, 3 and 5
    assert [value > 1e-6 for value in seen] == [False, True, False, True, False]


def test_a_refreshed_reference_may_be_a_mean_of_what_it_was_and_the_policy(trainer):
    run = trainer("policy.beta=0.01", "policy.reference_every=1", "policy.reference_share=0.6", "optim.lr=2e-3")
    expected = weights(run)
    for _ in range(2):
        run.train_step()
        expected = 0.4 * expected + 0.6 * weights(run)
    with run.reference.model() as model:
        torch.testing.assert_close(torch.cat([parameter.flatten() for parameter in model.parameters()]), expected)
    with pytest.raises(ValueError, match="policy.reference_share = 0.6: must be 1 with lora.rank"):
        trainer("policy.reference_share=0.6", "lora.rank=2")


def test_yaml_may_set_every_knob(tmp_path):
    config = load_config("addition", ["policy.filter_groups=drop", "policy.mask_truncated=true", "policy.kl_kind=k2"])
    assert initial_knobs(config)["control/kl_kind"] == "k2"


def test_a_knob_is_refused_where_the_configuration_would_be(trainer):
    grouped, critic = trainer(), trainer("algorithm=ppo")
    with pytest.raises(ValueError, match="group_size = 1: must be at least 2"):
        grouped.controls.set("control/group_size", 1)  # every advantage would be 0
    with pytest.raises(ValueError, match="filter_groups"):
        critic.controls.set("control/filter_groups", "drop")  # there are no groups to filter
    assert grouped.controls.get("control/group_size") == 4 and "control/filter_groups" not in critic.controls
    assert critic.controls.set("control/group_size", 1) == (4, 1)


def test_a_reference_in_bfloat16_off_the_device_measures_the_kl_to_rounding(trainer):
    wanted = "policy.beta=0.01", "policy.reference_every=2", "policy.reference_share=0.6", "optim.lr=1e-3"
    plain = trainer(*wanted, folder="plain")
    small = trainer(*wanted, "policy.reference_dtype=bfloat16", "policy.reference_offload=true")
    for _ in range(4):
        expected, found = plain.train_step().metrics["policy/kl_ref"], small.train_step().metrics["policy/kl_ref"]
        assert found == pytest.approx(expected, rel=0.1, abs=1e-4)
    (first, *_) = small.reference.weights.values()
    assert first.dtype is torch.bfloat16 and first.device.type == "cpu"


def test_a_refreshed_reference_is_held_once(trainer):
    run = trainer("policy.beta=0.01", "policy.reference_every=1")
    run.train_step()
    with run.reference.model() as model:
        assert all(run.reference.weights[name] is p for name, p in model.named_parameters())


@pytest.mark.parametrize("other", ["lora.rank=4", "sharding=full"])
def test_a_reference_that_is_no_second_model_is_not_moved(small, other):
    with pytest.raises(ValueError, match="policy.reference_offload = True: must be false"):
        small("policy.reference_offload=true", other)
