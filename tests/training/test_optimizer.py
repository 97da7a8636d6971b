"""Weights in bfloat16 follow the small updates that their copies in float32 collect."""

import pytest
import torch

from stabilizer.training import optimizer
from stabilizer.training.loop import Trainer
from stabilizer.training.optimizer import COPY, build_optimizer
from tests.training.test_loop import weights, without_time
from tests.training.test_resume import run_steps

LR, STEPS = 1e-6, 200
"""The usual rate for large models, and enough updates to move a weight of 0.02 by one spacing of bfloat16."""


def moved_by(dtype):
    torch.manual_seed(0)
    start = (0.02 * torch.randn(20_000)).to(dtype)
    parameter = torch.nn.Parameter(start.clone())
    adamw = build_optimizer([{"params": [parameter]}, {"params": []}], betas=(0.9, 0.99), weight_decay=0.0)
    adamw.param_groups[0]["lr"] = LR
    for _ in range(STEPS):
        parameter.grad = torch.ones_like(parameter)
        adamw.step()
    return (parameter.detach().float() - start.float()).mean().item()


def test_small_updates_are_not_lost_to_rounding():
    assert moved_by(torch.float32) == pytest.approx(-LR * STEPS, rel=1e-3)
    assert moved_by(torch.bfloat16) == pytest.approx(-LR * STEPS, rel=0.1)


def test_float32_weights_use_the_optimizer_of_torch():
    parameter = torch.nn.Parameter(torch.zeros(3))
    adamw = build_optimizer([{"params": [parameter]}], betas=(0.9, 0.99), weight_decay=0.0)
    assert type(adamw) is torch.optim.AdamW


def test_the_model_holds_the_rounded_copy(trainer):
    run = trainer("precision=bfloat16")
    run.train_step()
    for parameter in run.learner.parameters:
        assert parameter.dtype is torch.bfloat16
        assert torch.equal(run.learner.optimizer.state[parameter][COPY].bfloat16(), parameter)


def test_resuming_in_bfloat16_is_bit_identical(trainer):
    settings = ("precision=bfloat16", "checkpoint.every=0", "optim.lr=1e-5")
    whole, first = trainer(*settings, folder="whole"), trainer(*settings)
    expected = run_steps(whole, 4)
    assert run_steps(first, 2) == expected[:2]
    first.save_checkpoint()
    second = trainer(*settings)
    assert second.resume().step == 2
    assert run_steps(second, 2) == expected[2:]
    assert torch.equal(weights(second), weights(whole))


def test_a_reset_keeps_the_weights_and_forgets_the_averages(trainer):
    run = trainer("precision=bfloat16", "optim.lr=1e-5")
    run.train_step()
    before = weights(run).clone()
    run.reset_optimizer()
    assert torch.equal(weights(run), before)
    assert without_time(run.train_step().metrics)["batch/updates"] > 0


def test_adapters_of_a_bfloat16_model_are_float32(trainer):
    run = trainer("precision=bfloat16", "lora.rank=4")
    assert {p.dtype for p in run.learner.parameters} == {torch.float32}
    assert {p.dtype for p in run.policy.model.parameters() if not p.requires_grad} == {torch.bfloat16}
    assert run.train_step().metrics["batch/updates"] > 0


def test_moments_in_8_bits_are_refused_in_words_without_their_package(trainer, monkeypatch):
    monkeypatch.setattr(optimizer, "find_spec", lambda name: None)
    monkeypatch.setattr(Trainer, "_load_policy", lambda self: pytest.fail("the weights were loaded first"))
    with pytest.raises(ValueError, match="optim.kind = 'adamw_8bit' needs bitsandbytes.*pip install"):
        trainer("optim.kind=adamw_8bit")


@pytest.mark.parametrize("other", ["precision=bfloat16", "sharding=full"])
def test_moments_in_8_bits_are_refused_where_they_cannot_work(small, other):
    with pytest.raises(ValueError, match="optim.kind = 'adamw_8bit': must be adamw with"):
        small("optim.kind=adamw_8bit", other)


def test_moments_in_8_bits_take_a_quarter_and_resume_to_the_bit(trainer):
    pytest.importorskip("bitsandbytes")
    run, plain = trainer("optim.kind=adamw_8bit"), trainer(folder="plain")
    for _ in range(2):
        run.train_step(), plain.train_step()
    assert len(run.state()["optimizer.safetensors"]) < 0.35 * len(plain.state()["optimizer.safetensors"])
    saved = run.save_checkpoint()
    expected = run.train_step().metrics
    again = trainer("optim.kind=adamw_8bit")
    assert again.resume() == saved
    assert without_time(again.train_step().metrics) == without_time(expected)
    assert torch.equal(weights(again), weights(run))
