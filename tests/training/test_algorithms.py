"""Every preset runs through the functions that its words name."""

import math

import pytest
import torch

from stabilizer.core.algorithms import ALGORITHMS
from stabilizer.training.advantages import per_reward_advantages, sequence_advantages
from stabilizer.training.kl import kl_penalty
from stabilizer.training.losses import policy_loss
from stabilizer.training.values import discounted_returns, gae, token_rewards, value_loss, whiten

MASK = torch.tensor([[True] * 3, [True, False, False], [True, True, False], [True] * 3])


def compared(kind, reward_GN):
    if kind == "greedy":  # the greedy completions got half of the reward
        return reward_GN - 0.5
    if kind == "per_reward":
        everywhere = torch.ones_like(reward_GN, dtype=torch.bool)
        return per_reward_advantages([(reward_GN, 1.0, everywhere)], everywhere)
    return sequence_advantages(kind, reward_GN)


def loss_of(preset, logp_BT, old_logp_BT, reward_B):
    """The loss of one batch of two groups of two, put together as the preset says. beta 0.1 where there is a KL."""
    beta = preset.get("policy.beta", 0.1)
    kl_BT = torch.zeros_like(old_logp_BT)
    if beta and preset.get("policy.kl_in"):
        kl_BT = kl_penalty(preset.get("policy.kl_kind", "k3_is"), logp_BT, old_logp_BT - 0.5, old_logp_BT, MASK)
    in_reward = beta if preset.get("policy.kl_in") == "reward" else 0.0
    value_BT = torch.zeros_like(old_logp_BT)
    if preset["policy.advantage"] in ("gae", "returns"):
        token_BT = token_rewards(reward_B, kl_BT, in_reward, MASK)
        if preset["policy.advantage"] == "gae":
            advantage_BT, return_BT = gae(token_BT, value_BT, MASK, preset["policy.gamma"], preset["policy.lam"])
        else:
            advantage_BT = return_BT = discounted_returns(token_BT, MASK, preset["policy.gamma"])
        advantage_BT = whiten(advantage_BT, MASK) if preset["policy.whiten"] else advantage_BT
    else:
        reward_B = reward_B - in_reward * (kl_BT * MASK).sum(1).detach()
        advantage_BT = compared(preset["policy.advantage"], reward_B.view(2, 2)).view(-1, 1)
    loss, _ = policy_loss(
        logp_BT,
        old_logp_BT,
        advantage_BT,
        MASK,
        surrogate=preset["policy.surrogate"],
        ratio=preset["policy.ratio"],
        average=preset["policy.average"],
        epsilon_low=preset.get("policy.epsilon_low", 0.2),
        epsilon_high=preset.get("policy.epsilon_high", 0.2),
        max_completion=3,
    )
    if preset["critic.kind"] != "none":
        loss = loss + value_loss(value_BT, value_BT, return_BT, MASK, preset["critic.clip_range"])[0]
    return loss


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_step_down_makes_the_better_completion_likelier(name):
    # groups (1, 0) and (0, 1): the first and the last completion are the better ones, at first on-policy
    old_BT = torch.full((4, 3), -1.5, dtype=torch.float64)
    leaf = old_BT.clone().requires_grad_()
    loss = loss_of(ALGORITHMS[name], leaf, old_BT, torch.tensor([1.0, 0, 0, 1], dtype=torch.float64))
    loss.backward()
    pull_B = -(leaf.grad * MASK).sum(1)
    assert math.isfinite(loss.item())
    assert pull_B[0] > 0 > pull_B[1] and pull_B[3] > 0 > pull_B[2]


def test_no_two_names_stand_for_the_same_thing():
    assert len({repr(sorted(preset.items())) for preset in ALGORITHMS.values()}) == len(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_says_all_that_makes_it_one(name):
    core = {"policy.advantage", "policy.surrogate", "policy.ratio", "policy.average", "critic.kind"}
    preset = ALGORITHMS[name]
    assert core <= set(preset)
    assert (preset.get("policy.kl_in") == "reward") == ("policy.kl_kind" in preset)
    assert (preset["critic.kind"] != "none") == (preset["policy.advantage"] == "gae")
    if preset.get("policy.kl_in") == "reward":
        assert preset["policy.kl_kind"] == "k1", "the kind whose value is unbiased and needs no gradient"
