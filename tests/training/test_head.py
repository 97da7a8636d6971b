"""The fused head gives the numbers and gradients of the plain definition, in chunks as in one piece."""

import math

import pytest
import torch

from stabilizer.training import head
from stabilizer.training.head import stats_of_logits, token_stats

N, H, V = 11, 5, 9


def inputs(bias=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden_NH = torch.randn(N, H, generator=generator, dtype=torch.float64).requires_grad_()
    weight_VH = torch.randn(V, H, generator=generator, dtype=torch.float64).requires_grad_()
    bias_V = torch.randn(V, generator=generator, dtype=torch.float64).requires_grad_() if bias else None
    return hidden_NH, weight_VH, bias_V, torch.randint(V, (N,), generator=generator)


@pytest.fixture(params=[1, 4, 100], ids=["rows one by one", "chunks of four", "one piece"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(head, "CHUNK", request.param * V)


@pytest.mark.parametrize("entropy_grad", [False, True], ids=["", "with the entropy's gradient"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_numbers_and_gradients_equal_autograd(chunk, temperature, bias, entropy_grad):
    hidden_NH, weight_VH, bias_V, target_N = inputs(bias)
    variables = [v for v in (hidden_NH, weight_VH, bias_V) if v is not None]
    pull = torch.randn(2, N, dtype=torch.float64)

    def gradients(logp_N, entropy_N):
        loss = (pull[0] * logp_N).sum() + ((pull[1] * entropy_N).sum() if entropy_grad else 0.0)
        return [logp_N, entropy_N, *torch.autograd.grad(loss, variables)]

    ours = gradients(*token_stats(hidden_NH, weight_VH, bias_V, target_N, temperature, entropy_grad=entropy_grad))
    logits = torch.nn.functional.linear(hidden_NH, weight_VH, bias_V)
    plain = gradients(*stats_of_logits(logits, target_N, temperature, entropy_grad=entropy_grad))
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_worked_numbers():
    # logits (0, ln 3) over two tokens: p = (1/4, 3/4); H = 1/4 ln 4 + 3/4 ln(4/3) = 0.34657 + 0.21576
    hidden_NH, weight_VH = torch.ones(1, 1), torch.tensor([[0.0], [math.log(3)]]).requires_grad_()
    logp_N, entropy_N = token_stats(hidden_NH, weight_VH, None, torch.tensor([1]), 1.0)
    assert logp_N.item() == pytest.approx(math.log(0.75)) and entropy_N.item() == pytest.approx(0.56233, abs=1e-5)
    logp_N.sum().backward()  # onehot - p = (0 - 1/4, 1 - 3/4)
    assert weight_VH.grad.flatten().tolist() == pytest.approx([-0.25, 0.25])


def test_tied_weights_add_up_the_gradients_of_both_uses(chunk):
    _, weight_VH, _, target_N = inputs()
    ids = torch.randint(V, (N,), generator=torch.Generator().manual_seed(1))

    def gradient(stats):
        logp_N, _ = stats(torch.nn.functional.embedding(ids, weight_VH).tanh())
        return torch.autograd.grad(logp_N.square().sum(), weight_VH)[0]

    ours = gradient(lambda hidden: token_stats(hidden, weight_VH, None, target_N, 1.0))
    plain = gradient(lambda hidden: stats_of_logits(hidden @ weight_VH.T, target_N, 1.0))
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_tokens_that_pull_at_nothing_get_no_gradient_and_disturb_none(chunk):
    hidden_NH, weight_VH, bias_V, target_N = inputs()
    pull = torch.arange(N, dtype=torch.float64) % 3  # every third token pulls at nothing
    logp_N, _ = token_stats(hidden_NH, weight_VH, bias_V, target_N, 1.0)
    ours = torch.autograd.grad((pull * logp_N).sum(), (hidden_NH, weight_VH, bias_V))
    logits = torch.nn.functional.linear(hidden_NH, weight_VH, bias_V)
    plain = torch.autograd.grad(
        (pull * stats_of_logits(logits, target_N, 1.0)[0]).sum(), (hidden_NH, weight_VH, bias_V)
    )
    assert (ours[0][pull == 0] == 0).all()
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_forbidden_token_has_no_entropy_and_no_gradient(chunk):
    hidden_NH, weight_VH, bias_V, target_N = inputs()
    with torch.no_grad():
        bias_V[3] = -math.inf
    logp_N, entropy_N = token_stats(
        hidden_NH, weight_VH, bias_V, target_N.masked_fill(target_N == 3, 0), 1.0, entropy_grad=True
    )
    assert logp_N.isfinite().all() and entropy_N.isfinite().all()
    gradients = torch.autograd.grad((logp_N + entropy_N).sum(), (hidden_NH, weight_VH))
    assert all(gradient.isfinite().all() for gradient in gradients) and (gradients[1][3] == 0).all()


def test_nan_stays_nan_in_its_own_row(chunk):
    hidden_NH, weight_VH, bias_V, target_N = inputs()
    with torch.no_grad():
        hidden_NH[2] = math.nan
    logp_N, entropy_N = token_stats(hidden_NH, weight_VH, bias_V, target_N, 1.0)
    assert logp_N.isnan().tolist() == entropy_N.isnan().tolist() == [row == 2 for row in range(N)]


def test_no_tokens_at_all_are_no_error():
    _, weight_VH, bias_V, _ = inputs()
    hidden_NH = torch.zeros(0, H, dtype=torch.float64, requires_grad=True)
    logp_N, entropy_N = token_stats(hidden_NH, weight_VH, bias_V, torch.zeros(0, dtype=torch.long), 1.0)
    assert logp_N.shape == entropy_N.shape == (0,)
    logp_N.sum().backward()


def test_bfloat16_weights_give_float32_numbers():
    hidden_NH, weight_VH, _, target_N = (v if v is None or v.dtype is torch.long else v.bfloat16() for v in inputs())
    logp_N, entropy_N = token_stats(hidden_NH, weight_VH, None, target_N, 0.9)
    plain = stats_of_logits(hidden_NH @ weight_VH.T, target_N, 0.9)
    assert logp_N.dtype is entropy_N.dtype is torch.float32
    torch.testing.assert_close(logp_N, plain[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy_N, plain[1], rtol=1e-5, atol=1e-5)
