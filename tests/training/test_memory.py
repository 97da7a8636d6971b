"""The predicted need of memory follows the settings, and equals what training takes."""

import json

import pytest

from stabilizer.cli import main
from stabilizer.training.config import load_config
from stabilizer.training.memory import needed

WEIGHTS = 4 * 110_016
"""Bytes of the built-in model in float32."""


def need(*overrides, processes=1):
    return needed(load_config("addition", ["policy.beta=0", *overrides]), prompt_tokens=8, processes=processes)


def test_parts_that_do_not_depend_on_a_pass_are_exact(trainer):
    found = need()
    run = trainer("policy.beta=0")
    run.train_step()
    state = [value for held in run.learner.optimizer.state.values() for value in held.values()]
    assert found.weights == found.gradients == WEIGHTS == sum(4 * p.numel() for p in run.policy.model.parameters())
    assert found.optimizer == sum(4 * value.numel() for value in state)
    assert found.reference == found.critic == 0


def test_a_reference_takes_its_precision_and_nothing_where_it_is_no_second_model():
    assert need("policy.beta=0.01").reference == WEIGHTS
    assert need("policy.beta=0.01", "policy.reference_dtype=bfloat16").reference == WEIGHTS / 2
    assert need("policy.beta=0.01", "lora.rank=4").reference == 0


def test_adapters_are_counted_as_training_makes_them(trainer):
    run = trainer("lora.rank=4", "policy.beta=0")
    learns = sum(p.numel() for p in run.policy.model.parameters() if p.requires_grad)
    found = need("lora.rank=4")
    assert found.gradients == 4 * learns and found.optimizer == pytest.approx(8 * learns, rel=0.01)


def test_smaller_passes_and_recomputed_activations_need_less():
    plain = need("fast=off")
    assert need("fast=off", "optim.micro_batch=16").update < plain.update / 4
    assert need("fast=off", "gradient_checkpointing=true").update < plain.update
    assert need().update < plain.update, "prompts are shared"


def test_shared_weights_are_divided_between_processes():
    alone, shared = need(), need("sharding=full", processes=4)
    assert shared.optimizer == alone.optimizer // 4 and shared.gradients == alone.gradients // 4
    assert shared.weights == alone.weights, "generation gathers them"


def test_asynchronous_generation_needs_a_copy_of_the_weights_and_room_beside_the_update():
    plain, ahead = need(), need("rollout.asynchronous=true")
    assert ahead.generation == plain.generation + WEIGHTS
    assert ahead.peak - ahead.process == plain.peak - plain.process + WEIGHTS + min(plain.update, plain.generation)


def test_a_separate_critic_learns_too():
    assert need("algorithm=ppo").critic == pytest.approx(4 * WEIGHTS, rel=0.01)


def test_moments_in_8_bits_are_counted():
    assert need("optim.kind=adamw_8bit").optimizer < 0.35 * need().optimizer


def test_the_command_prints_a_table_and_json(capsys):
    assert main(["preflight", "addition", "--memory", "--prompt-length", "8", "--set", "policy.beta=0"]) == 0
    shown = capsys.readouterr().out
    assert "peak" in shown and "generation" in shown
    assert main(["preflight", "addition", "--memory", "--json", "--prompt-length", "8", "--set", "policy.beta=0"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"]["weights"] == WEIGHTS
