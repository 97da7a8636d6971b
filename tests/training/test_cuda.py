"""On a GPU: the numbers of the CPU, training in every precision, and states that can be resumed."""

import math

import pytest
import torch

from stabilizer.training.head import stats_of_logits, token_stats
from tests.training.test_loop import weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

ON_GPU = ("device=cuda", "optim.lr=1e-3", "policy.beta=0.005")


def drawn(dtype):
    generator = torch.Generator().manual_seed(0)
    hidden_NH = torch.randn(500, 64, generator=generator).to("cuda", dtype).requires_grad_()
    weight_VH = torch.randn(3_000, 64, generator=generator).to("cuda", dtype).requires_grad_()
    return hidden_NH, weight_VH, torch.randint(3_000, (500,), generator=generator).cuda()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-5)], ids=str)
def test_log_probabilities_are_as_exact_as_their_inputs(dtype, tolerance):
    hidden_NH, weight_VH, target_N = drawn(dtype)
    logp_N, entropy_N = token_stats(hidden_NH, weight_VH, None, target_N, 0.7)
    exact = stats_of_logits(hidden_NH.double() @ weight_VH.double().T, target_N, 0.7)
    assert logp_N.dtype is torch.float32
    torch.testing.assert_close(logp_N.double(), exact[0], rtol=tolerance, atol=20 * tolerance)
    torch.testing.assert_close(entropy_N.double(), exact[1], rtol=tolerance, atol=20 * tolerance)


@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 1e-5), (torch.bfloat16, 0.01)], ids=str)
def test_gradients_of_the_head_are_those_of_autograd(dtype, share, monkeypatch):
    monkeypatch.setattr("stabilizer.training.head.CHUNK_CUDA", 100 * 3_000)
    hidden_NH, weight_VH, target_N = drawn(dtype)
    token_stats(hidden_NH, weight_VH, None, target_N, 1.0)[0].sum().backward()
    wide = [t.detach().double().requires_grad_() for t in (hidden_NH, weight_VH)]
    stats_of_logits(wide[0] @ wide[1].T, target_N, 1.0)[0].sum().backward()
    for mine, exact in zip((hidden_NH, weight_VH), wide, strict=True):
        assert (mine.grad.double() - exact.grad).norm() <= share * exact.grad.norm()


@pytest.mark.parametrize("precision", ["float32", "mixed", "bfloat16"])
@pytest.mark.parametrize("more", [(), ("algorithm=ppo",), ("lora.rank=4",), ("optim.micro_tokens=64",)], ids=str)
def test_training_steps_are_finite_and_change_the_weights(trainer, precision, more):
    run = trainer(*ON_GPU, f"precision={precision}", *more)
    before = weights(run).clone()
    for _ in range(3):
        metrics = run.train_step().metrics
        assert all(math.isfinite(value) for value in metrics.values())
        assert metrics["policy/ratio_first_error"] < (1e-3 if precision == "float32" else 0.3)
    assert not torch.equal(weights(run), before)


def test_a_step_on_the_gpu_measures_what_the_cpu_measures(trainer):
    rollouts = trainer("device=cpu", folder="cpu"), trainer("device=cuda", folder="gpu")
    mine = [run.validate()["accuracy/val"] for run in rollouts]
    assert mine[0] == pytest.approx(mine[1], abs=0.1)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_state_of_the_gpu_is_resumed(trainer, precision):
    settings = (*ON_GPU, f"precision={precision}", "checkpoint.every=0")
    first = trainer(*settings)
    first.train_step()
    first.save_checkpoint()
    second = trainer(*settings)
    assert second.resume().step == 1
    assert torch.equal(weights(first), weights(second))
    mine, other = first.train_step().metrics, second.train_step().metrics
    assert mine["reward/mean"] == pytest.approx(other["reward/mean"], abs=0.2)
    torch.testing.assert_close(weights(first), weights(second), rtol=0, atol=2e-2)
