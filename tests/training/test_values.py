"""GAE against the naive sum, and the critic's loss against worked numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stabilizer.training.values import discounted_returns, explained_variance, gae, token_rewards, value_loss, whiten

YES, NO = True, False


def f64(rows):
    return torch.tensor(rows, dtype=torch.float64)


def approx(rows):
    return [pytest.approx(row, rel=1e-12, abs=1e-12) for row in rows]


# --- rewards ----------------------------------------------------------------------------------------------------------


def test_the_reward_falls_on_the_last_token_the_policy_chose_and_kl_on_each():
    # beta 0.1: -0.1 * kl at tokens, plus 5 (or 7) at the last one; a gap and padding get nothing; no token, no reward
    mask = torch.tensor([[YES, NO, YES, NO], [YES, YES, YES, YES], [NO] * 4])
    kl = f64([[1, math.nan, 2, math.inf], [0, 1, 0, 2], [9, 9, 9, 9]])
    reward_BT = token_rewards(f64([5, 7, 3]), kl, 0.1, mask)
    assert reward_BT.tolist() == approx([[-0.1, 0, 5 - 0.2, 0], [0, -0.1, 0, 7 - 0.2], [0, 0, 0, 0]])


def test_without_a_reference_only_the_reward_counts():
    mask = torch.tensor([[YES, YES, NO]])
    assert token_rewards(f64([2]), None, 0.1, mask).tolist() == [[0, 2, 0]]


def test_a_nan_reward_stays_visible():
    assert token_rewards(f64([math.nan]), None, 0.0, torch.tensor([[YES, YES]]))[0, 1].isnan()


# --- advantages and returns -------------------------------------------------------------------------------------------


def test_gae_by_hand():
    # gamma 0.5, lambda 0.5; r = (0, 1), V = (2, 4)
    # delta_1 = 1 - 4 = -3;  delta_0 = 0 + 0.5 * 4 - 2 = 0;  A_1 = -3;  A_0 = 0 + 0.25 * -3 = -0.75
    advantage, returns = gae(f64([[0, 1]]), f64([[2, 4]]), torch.tensor([[YES, YES]]), 0.5, 0.5)
    assert advantage.tolist() == [[-0.75, -3]]
    assert returns.tolist() == [[1.25, 1]]


def test_a_gap_takes_no_time_and_what_stands_in_it_has_no_say():
    # the same two tokens, with retrieved text between and padding after
    mask = torch.tensor([[YES, NO, NO, YES, NO]])
    reward, value = f64([[0, math.nan, 7, 1, math.inf]]), f64([[2, math.inf, 9, 4, math.nan]])
    advantage, returns = gae(reward, value, mask, 0.5, 0.5)
    assert advantage.tolist() == [[-0.75, 0, 0, -3, 0]]
    assert returns.tolist() == [[1.25, 0, 0, 1, 0]]


def test_lambda_1_is_return_minus_value_and_lambda_0_is_the_one_step_error():
    reward, value, mask = f64([[1, 2, 3]]), f64([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool)
    # gamma 1: returns (6, 5, 3);  errors 1 + 6 - 5, 2 + 7 - 6, 3 - 7
    assert gae(reward, value, mask, 1.0, 1.0)[0].tolist() == [[1, -1, -4]]
    assert gae(reward, value, mask, 1.0, 0.0)[0].tolist() == [[2, 3, -4]]


def naive_gae(reward, value, mask, gamma, lam):
    """A_t = sum over k of (gamma lam)^k delta_{t+k}, each sum written out, over the tokens alone."""
    advantage = [[0.0] * len(row) for row in mask]
    for b, row in enumerate(mask):
        tokens = [t for t, chosen in enumerate(row) if chosen]
        values = [value[b][t] for t in tokens] + [0.0]
        for i, t in enumerate(tokens):
            for k in range(len(tokens) - i):
                delta = reward[b][tokens[i + k]] + gamma * values[i + k + 1] - values[i + k]
                advantage[b][t] += (gamma * lam) ** k * delta
    return advantage


@st.composite
def episodes(draw):
    rows, width = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    numbers = st.lists(st.lists(st.floats(-5, 5), min_size=width, max_size=width), min_size=rows, max_size=rows)
    masks = st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=rows, max_size=rows)
    return draw(numbers), draw(numbers), draw(masks), draw(st.floats(0, 1)), draw(st.floats(0, 1))


@settings(max_examples=80, deadline=None)
@given(episodes())
def test_gae_equals_the_naive_sum(episode):
    reward, value, mask, gamma, lam = episode
    advantage, returns = gae(f64(reward), f64(value), torch.tensor(mask), gamma, lam)
    expected = f64(naive_gae(reward, value, mask, gamma, lam))
    assert torch.allclose(advantage, expected, rtol=1e-10, atol=1e-10)
    assert torch.allclose(returns, (expected + f64(value)) * torch.tensor(mask), rtol=1e-10, atol=1e-10)


def test_a_nan_value_reaches_the_tokens_before_it_and_no_other_row():
    value = f64([[0, math.nan, 0], [0, 0, 0]])
    advantage, _ = gae(torch.ones(2, 3).double(), value, torch.ones(2, 3).bool(), 1.0, 0.9)
    assert advantage.isnan().tolist() == [[True, True, False], [False] * 3]


def test_gae_carries_no_gradient():
    value = torch.ones(1, 2, requires_grad=True)
    assert not gae(torch.ones(1, 2), value, torch.ones(1, 2).bool(), 1.0, 1.0)[0].requires_grad


def test_discounted_returns_by_hand():
    # gamma 0.5: 4;  2 + 0.5 * 4 = 4;  1 + 0.5 * 4 = 3; the gap takes no time
    mask = torch.tensor([[YES, YES, NO, YES]])
    assert discounted_returns(f64([[1, 2, 99, 4]]), mask, 0.5).tolist() == [[3, 4, 0, 4]]


# --- whitening --------------------------------------------------------------------------------------------------------


def test_whitening_by_hand():
    # (1, 3, 5): mean 3, variance (4 + 0 + 4) / 2 = 4
    x, mask = f64([[1, 3, math.nan], [5, math.inf, 0]]), torch.tensor([[YES, YES, NO], [YES, NO, NO]])
    assert torch.allclose(whiten(x, mask), f64([[-1, 0, 0], [1, 0, 0]]), atol=1e-8)
    assert torch.allclose(whiten(x, mask, shift_mean=False), f64([[2, 3, 0], [4, 0, 0]]), atol=1e-8)


def test_whitening_what_is_all_equal_gives_zeros():
    assert whiten(torch.full((2, 2), 7.0), torch.ones(2, 2).bool()).tolist() == [[0, 0], [0, 0]]
    assert whiten(torch.full((2, 2), 7.0), torch.tensor([[YES, NO], [NO, NO]]))[0, 0] == 0


# --- the critic -------------------------------------------------------------------------------------------------------


def test_explained_variance_by_hand():
    # returns (0, 2, 4): variance 8/3;  errors (1, -1, 0): variance 2/3;  1 - 1/4
    mask = torch.tensor([[YES, YES, YES, NO]])
    returns = f64([[0, 2, 4, math.nan]])
    assert explained_variance(f64([[-1, 3, 4, 9]]), returns, mask).item() == pytest.approx(0.75)
    assert explained_variance(returns, returns, mask) == 1
    assert explained_variance(f64([[2, 2, 2, 2]]), returns, mask) == 0, "a constant explains nothing"
    assert explained_variance(-returns, returns, mask) < 0
    # an offset is no error of shape: errors all 5
    assert explained_variance(returns + 5, returns, mask) == 1


def test_explained_variance_of_equal_returns_is_unknown():
    assert explained_variance(f64([[1, 2]]), f64([[3, 3]]), torch.tensor([[YES, YES]])).isnan()
    assert explained_variance(f64([[3, 3]]), f64([[3, 3]]), torch.tensor([[YES, YES]])).isnan()


def test_value_loss_takes_the_larger_of_two_errors():
    # range 0.5, old value 1 everywhere
    #   V = 2, return 3:  held at 1.5: max(1, 2.25) = 2.25, no gradient
    #   V = 2, return 0:  held at 1.5: max(4, 2.25) = 4
    #   V = 1.2, return 1: inside: 0.04
    # loss (2.25 + 4 + 0.04) / 3 / 2
    value = f64([[2, 2, 1.2, math.nan]]).requires_grad_()
    old, returns = f64([[1, 1, 1, math.inf]]), f64([[3, 0, 1, math.nan]])
    mask = torch.tensor([[YES, YES, YES, NO]])
    loss, metrics = value_loss(value, old, returns, mask, 0.5)
    loss.backward()
    assert loss.item() == pytest.approx(6.29 / 6) and metrics["value/loss"] == loss.detach()
    assert metrics["value/clip_frac"].item() == pytest.approx(1 / 3)
    assert metrics["value/mean"].item() == pytest.approx(5.2 / 3)
    # the gradient of half a squared error: (V - return) / 3
    assert value.grad.tolist() == approx([[0, 2 / 3, 0.2 / 3, 0]])


def test_a_value_within_the_range_is_not_clipped_by_rounding():
    generator = torch.Generator().manual_seed(0)
    old, moved, returns = (torch.randn(64, 8, generator=generator) for _ in range(3))
    mask = torch.ones(64, 8).bool()
    value = old + 0.01 * moved.clamp(-2, 2)
    loss, metrics = value_loss(value, old, returns, mask, 0.2)
    plain, _ = value_loss(value, old, returns, mask, None)
    assert metrics["value/clip_frac"] == 0 and loss == plain
    assert value_loss(value, old, returns, mask, 0.005)[1]["value/clip_frac"] > 0


def test_value_loss_without_a_range_is_half_the_squared_error():
    loss, metrics = value_loss(f64([[2, 5]]), f64([[1, 1]]), f64([[3, 3]]), torch.tensor([[YES, YES]]), None)
    assert loss == 1.25 and metrics["value/clip_frac"] == 0  # (1 + 4) / 2 / 2


def test_explained_variance_is_of_what_the_critic_said_before():
    returns, mask = f64([[0, 2]]), torch.tensor([[YES, YES]])
    _, metrics = value_loss(returns, f64([[1, 1]]), returns, mask, None)
    assert metrics["value/explained_variance"] == 0


@pytest.mark.parametrize(("average", "expected"), [("token", 12 / 8), ("sequence", 10 / 4), ("constant", 12 / 20)])
def test_value_loss_is_averaged_like_the_others(average, expected):
    # squared errors (1, 1, 1) and (9): 12 / 4 tokens;  (1 + 9) / 2 completions;  12 / (2 * 5); each halved
    mask = torch.tensor([[YES] * 3, [YES, NO, NO]])
    value = f64([[1, 1, 1], [3, 3, 3]])
    loss, _ = value_loss(value, value, torch.zeros(2, 3).double(), mask, None, average, max_completion=5)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("clip_range", [None, 0.3])
@pytest.mark.parametrize("average", ["token", "sequence", "constant"])
def test_value_loss_and_gradient_equal_the_slow_version(average, clip_range):
    generator = torch.Generator().manual_seed(0)
    value, old, returns = (torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(5, 4, generator=generator) < 0.6
    mask[2] = False

    def slow(value):
        rows = []
        for b in range(5):
            terms = []
            for t in range(4):
                if mask[b, t]:
                    error = (value[b, t] - returns[b, t]) ** 2
                    if clip_range is not None:
                        shift = value[b, t] - old[b, t]
                        shift = shift if abs(shift.item()) < clip_range else math.copysign(clip_range, shift.item())
                        near = (old[b, t] + shift - returns[b, t]) ** 2
                        error = error if error.item() >= near.item() else near
                    terms.append(error / 2)
            rows.append(terms)
        if average == "sequence":
            return sum(sum(terms) / len(terms) for terms in rows if terms) / sum(map(bool, rows))
        return sum(sum(terms) for terms in rows) / (sum(map(len, rows)) if average == "token" else 5 * 6)

    results = []
    for function in (lambda v: value_loss(v, old, returns, mask, clip_range, average, max_completion=6)[0], slow):
        leaf = value.clone().requires_grad_()
        loss = function(leaf)
        loss.backward()
        results.append((loss.item(), leaf.grad))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
    assert torch.allclose(results[0][1], results[1][1], rtol=1e-10, atol=1e-14)
