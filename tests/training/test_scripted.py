"""What torch runs without Python is what Python would run: to the last bit, and there is nothing it can't translate."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor

from stabilizer.training.fast import decoder, scripted
from stabilizer.training.fast.forward import completion_states, hidden_states
from stabilizer.training.fast.writing import read_prompts, write_on
from stabilizer.training.model import Policy
from stabilizer.training.rollout.logprobs import completion_logps, completion_stats
from tests.training.test_decoder import MODELS, PROMPTS, TOKENIZER, generate, policy, qwen2

__all__ = ["policy"]

FUNCTIONS = (completion_states, completion_stats, hidden_states, read_prompts, write_on)


@pytest.fixture
def untranslated(monkeypatch):
    """As on a Python for which torch translates nothing."""
    monkeypatch.setattr(scripted, "translation", lambda function: None)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_function_is_translated(function):
    assert scripted.translation(function) is not None
    assert scripted.unlocked()


def everything(policy, prompts):
    """Rollouts, what the learner says of them, and its gradients."""
    policy.model.zero_grad()
    rollouts = generate(policy, prompts)
    stats = completion_logps(policy.model, rollouts, 0.8, entropy_grad=True)
    (stats.logp_BT.sum() + stats.entropy_BT.square().sum()).backward()
    gradients = [p.grad for p in policy.model.parameters()]
    return [rollouts.completion_ids_BT, rollouts.logp_BT, rollouts.entropy_BT, *stats[:2], *gradients]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_translated_or_not_the_numbers_are_the_same(policy, prompts, dtype, monkeypatch):
    policy.model.to(dtype)
    assert decoder.refusal(policy.model, training=True) is None
    translated = [everything(policy, prompts) for _ in range(3)]  # nothing depends on how often one is called
    monkeypatch.setattr(scripted, "translation", lambda function: None)
    plain = everything(policy, prompts)
    for values in zip(plain, *translated, strict=True):
        assert all(torch.equal(value, values[0]) for value in values[1:])


def test_what_cannot_be_translated_runs_as_it_is():
    def odd(x: Tensor, *rest: object) -> Tensor:
        return x + len(rest)

    assert scripted.translation(odd) is None
    assert scripted.run_scripted(odd, torch.ones(1), "a", None).item() == 3


def test_without_translation_rows_are_not_shared_out(untranslated):
    from stabilizer.training.fast.threads import parts_for, threads_for

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads_for(MODELS["llama"](), 64):
            assert parts_for(8, 64) == 1
    finally:
        torch.set_num_threads(before)


def test_a_call_leaves_no_type_behind():
    policy = Policy(qwen2().eval(), TOKENIZER)

    def types():
        return sum(
            isinstance(value, type) and value.__name__ in ("Stretch", "Weights", "Layout") for value in gc.get_objects()
        )

    gc.disable()
    try:
        generate(policy, PROMPTS["padded"])
        completion_logps(policy.model, generate(policy, PROMPTS["padded"]), 0.8)
        before = types()
        for _ in range(3):
            completion_logps(policy.model, generate(policy, PROMPTS["padded"]), 0.8)
        assert types() == before
    finally:
        gc.enable()


def test_what_is_told_of_some_tokens_together_is_true_of_each():
    policy = Policy(qwen2(vocab_size=3000).eval().double(), TOKENIZER)
    rollouts = generate(policy, PROMPTS["padded"], group_size=64, max_completion=9)  # two tokens' logits at a time
    stats = completion_logps(policy.model, rollouts, 0.8)
    torch.testing.assert_close(rollouts.logp_BT, stats.logp_BT.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rollouts.entropy_BT, stats.entropy_BT, rtol=1e-9, atol=1e-9)
