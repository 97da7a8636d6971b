"""KL estimators against the exact KL of small distributions and its exact gradient, by summing over all outcomes."""

import math

import pytest
import torch

from stabilizer.training.kl import k3, kl_penalty

LOGITS = torch.tensor([0.9, -0.4, 0.1, -1.3], dtype=torch.float64)
REF = torch.tensor([0.2, 0.5, -0.8, -0.1], dtype=torch.float64).log_softmax(0)
OLD = torch.tensor([0.3, 0.3, -0.2, -0.6], dtype=torch.float64).log_softmax(0)
KINDS = ("k1", "k2", "k3", "k3_k2grad", "k3_is")


def exact(direction="reverse"):
    """KL(policy, reference) (or the other way round) and its gradient to the logits, from the definition."""
    logits = LOGITS.clone().requires_grad_()
    logp = logits.log_softmax(0)
    kl = (logp.exp() * (logp - REF)).sum() if direction == "reverse" else (REF.exp() * (REF - logp)).sum()
    return kl.item(), torch.autograd.grad(kl, logits)[0]


def expected(kind, sampled_from=None):
    """Expectation of an estimator's value and gradient over the distribution that is sampled, all outcomes summed."""
    logits = LOGITS.clone().requires_grad_()
    logp = logits.log_softmax(0)
    old = logp.detach() if sampled_from is None else sampled_from
    value = (old.exp() * kl_penalty(kind, logp[None], REF[None], old[None])[0]).sum()
    return value.item(), torch.autograd.grad(value, logits)[0]


def far(a, b):
    return (a - b).abs().max() > 0.02


def test_each_kind_by_hand():
    # p = 0.5, p_ref = 0.25: x = log(1/2) = -0.6931
    # k1 = 0.6931;  k2 = 0.6931^2 / 2 = 0.2402;  k3 = 1/2 - 1 + 0.6931 = 0.1931
    # k3_is with p_old = 0.4: 0.5 / 0.4 * 0.1931 = 0.2414
    logp, ref, old = (torch.tensor([[p]], dtype=torch.float64).log() for p in (0.5, 0.25, 0.4))
    ln2 = math.log(2)
    by_hand = (ln2, ln2**2 / 2, ln2 - 0.5, ln2 - 0.5, 1.25 * (ln2 - 0.5))
    for kind, value in zip(KINDS, by_hand, strict=True):
        assert kl_penalty(kind, logp, ref, old).item() == pytest.approx(value, rel=1e-12), kind


def test_each_gradient_by_hand():
    # with respect to log p, at the same numbers: k1: 1;  k2: log p - log p_ref = 0.6931;  k3: 1 - p_ref / p = 1/2
    # k3_k2grad: as k2;  k3_is: 1.25 * (k3 + 1/2) = 1.25 * 0.6931
    ln2 = math.log(2)
    for kind, slope in zip(KINDS, (1, ln2, 0.5, ln2, 1.25 * ln2), strict=True):
        logp = torch.tensor([[0.5]], dtype=torch.float64).log().requires_grad_()
        kl_penalty(kind, logp, torch.full_like(logp, math.log(0.25)), torch.full_like(logp, math.log(0.4))).backward()
        assert logp.grad.item() == pytest.approx(slope, rel=1e-12), kind


@pytest.mark.parametrize("kind", ["k1", "k3", "k3_k2grad", "k3_is"])
def test_value_is_unbiased_on_policy(kind):
    assert expected(kind)[0] == pytest.approx(exact()[0], rel=1e-12)


def test_k2_value_is_biased():
    # 0.3131 instead of 0.3313
    assert abs(expected("k2")[0] - exact()[0]) > 0.01


@pytest.mark.parametrize("kind", ["k2", "k3_k2grad", "k3_is"])
def test_gradient_is_exact_on_policy(kind):
    assert torch.allclose(expected(kind)[1], exact()[1], rtol=1e-12, atol=1e-15)


def test_k1_in_a_loss_pulls_nowhere():
    assert expected("k1")[1].abs().max() < 1e-15


def test_k3_in_a_loss_follows_the_other_direction():
    assert torch.allclose(expected("k3")[1], exact("forward")[1], rtol=1e-12, atol=1e-15)
    assert far(expected("k3")[1], exact()[1])


def test_only_the_weighted_kind_stays_right_off_policy():
    kl, gradient = exact()
    for kind in KINDS:
        value, slope = expected(kind, sampled_from=OLD)
        right = value == pytest.approx(kl, rel=1e-12) and torch.allclose(slope, gradient, rtol=1e-12, atol=1e-15)
        assert right == (kind == "k3_is"), kind
        assert right or far(slope, gradient), kind


def test_only_k1_in_the_reward_sees_what_earlier_tokens_lead_to():
    # Two tokens of three choices, the second distribution depending on the first token; the KL is of the pair.
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((3,), (3, 3)))
    ref_first, ref_second = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((3,), (3, 3)))
    first.requires_grad_()
    logp_a, logp_b = first.log_softmax(0)[:, None].expand(3, 3), second.log_softmax(1)
    ref_a, ref_b = ref_first.log_softmax(0)[:, None].expand(3, 3), ref_second.log_softmax(1)
    logp, ref = (torch.stack(pair, -1).view(9, 2) for pair in ((logp_a, logp_b), (ref_a, ref_b)))
    p_B = logp.sum(1).exp()

    def gradient(value):
        return torch.autograd.grad(value, first, retain_graph=True)[0]

    exactly = gradient((p_B * (logp - ref).sum(1)).sum())
    k1_B = kl_penalty("k1", logp, ref).sum(1).detach()
    in_reward = gradient((p_B.detach() * k1_B * logp.sum(1)).sum())
    in_loss = gradient((p_B.detach() * kl_penalty("k3_is", logp, ref, logp.detach()).sum(1)).sum())
    assert torch.allclose(in_reward, exactly, rtol=1e-12, atol=1e-15)
    assert far(in_loss, exactly)


def test_k3_by_hand():
    # x = 1: e - 1 - 1 = 0.71828; x = -1: 1/e - 1 + 1 = 0.36788; x = 0: 0
    assert k3(torch.tensor([1.0, -1.0, 0.0])).tolist() == pytest.approx([math.e - 2, 1 / math.e, 0.0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_what_is_masked_has_no_value_and_no_gradient(kind, poison):
    logp = torch.tensor([[-1.0, -1.0, poison]], requires_grad=True)
    ref, old = torch.tensor([[-2.0, poison, 0.0]]), torch.tensor([[-1.5, poison, poison]])
    mask = torch.tensor([[True, False, False]])
    value = kl_penalty(kind, logp, ref, old, mask)
    value.sum().backward()
    assert value[0, 1:].tolist() == [0, 0] and logp.grad[0, 1:].tolist() == [0, 0]
    assert value[0, 0] != 0 and logp.grad[0, 0] != 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_nan_at_a_token_stays_visible(kind):
    nan = torch.tensor([[math.nan]])
    assert kl_penalty(kind, nan, torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([[True]])).isnan().all()


def test_an_unknown_kind_is_named_with_its_alternatives():
    with pytest.raises(ValueError, match="'k4'.*k1, k2, k3"):
        kl_penalty("k4", torch.zeros(1, 1), torch.zeros(1, 1))
