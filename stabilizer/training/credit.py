"""Credit assignment: from the scores of a step to an advantage for every token, and the rows that are learned from.

Shape letters: G groups (prompts), N completions per group, B = G x N rows, T completion positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from stabilizer.training.advantages import (
    CENTRED_PER_GROUP,
    Kind,
    center_error,
    clip_advantages,
    overlong_penalty,
    per_reward_advantages,
    sequence_advantages,
    silent_groups,
)
from stabilizer.training.knobs import Knobs
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.settings import PolicyConfig
from stabilizer.training.tasks import Score
from stabilizer.training.values import discounted_returns, gae, token_rewards, whiten


@dataclass(frozen=True, slots=True)
class Credit:
    """Rewards and advantages of the completions of a step."""

    reward_GN: Tensor
    """The final rewards, length penalties included; NaN where a reward function failed."""
    advantage_BT: Tensor
    teaches_B: Tensor
    """Rows that take part in the updates."""
    num_teaching: int
    """Prompts with at least one such row."""
    return_BT: Tensor | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    def row_advantages(self, count: int) -> list[float]:
        """The advantage of each of the first rows, at its first token."""
        return self.advantage_BT[:count, 0].tolist()


def give_credit(
    policy: PolicyConfig,
    knobs: Knobs,
    rollouts: Rollouts,
    scores: Sequence[Score],
    *,
    kl_BT: Tensor | None,
    value_BT: Tensor | None,
    greedy: tuple[Rollouts, Sequence[Score]] | None = None,
    weights: Mapping[str, float] | None = None,
) -> Credit:
    """Advantages of one step. `kl_BT` is given when the KL is part of the reward, `value_BT` when there is a critic,
    `greedy` when advantages are measured from the greedy completion of each prompt.

    A completion whose reward function failed is excluded from means, deviations and updates. `weights` are those of the
    reward functions, 1 where none is given.
    """
    mask_BT, size = rollouts.mask_BT, rollouts.group_size
    reward_B, penalty_B = _rewards(policy, knobs, rollouts, scores)
    valid_B = torch.tensor([not score.failed for score in scores], device=mask_BT.device)
    metrics: dict[str, float] = {}
    baseline_G1 = None
    if greedy is not None:
        baseline_G, greedy_penalty_G = _rewards(policy, knobs, *greedy)
        baseline_G1 = (baseline_G + greedy_penalty_G)[:, None]
        known_G = torch.tensor([not score.failed for score in greedy[1]], device=mask_BT.device)
        valid_B = valid_B & known_G.repeat_interleave(size)
        if known_G.any():
            metrics["reward/greedy/mean"] = baseline_G1[known_G].mean().item()
    # groups are selected by the rewards before penalties, as during sampling: length alone makes no group useful
    teaches_B = _teaching(knobs, reward_B.view(-1, size), valid_B.view(-1, size), rollouts.truncated_B)
    if knobs.overlong_buffer:
        metrics["reward/overlong/mean"] = penalty_B.mean().item()
        if valid_B.any():
            metrics["reward/raw/mean"] = reward_B[valid_B].mean().item()
    reward_B = reward_B + penalty_B
    reward_GN, valid_GN = reward_B.view(-1, size), valid_B.view(-1, size)

    kind, return_BT = knobs.advantage, None
    if kind == "gae" or kind == "returns":
        paid_BT = token_rewards(reward_B.masked_fill(~valid_B, 0.0).float(), kl_BT, knobs.beta, mask_BT)
        if kind == "gae":
            assert value_BT is not None, "gae needs a critic"
            advantage_BT, return_BT = gae(paid_BT, value_BT, mask_BT, policy.gamma, policy.lam)
        else:
            advantage_BT = discounted_returns(paid_BT, mask_BT, policy.gamma)
    else:
        counts_GN = valid_GN & teaches_B.view(-1, size).any(1, keepdim=True)  # of groups that are learned from
        if kind == "per_reward":
            terms = [*_components(scores, weights or {}, reward_GN), (penalty_B.view(-1, size), 1.0, valid_GN)]
            advantage_GN = per_reward_advantages(terms, counts_GN)
        else:
            kl_GN = 0.0 if kl_BT is None else knobs.beta * kl_BT.double().sum(1).view(-1, size)
            advantage_GN = _compared(kind, reward_GN - kl_GN, counts_GN, baseline_G1)
        if kind in CENTRED_PER_GROUP:
            metrics["reward/advantage_center_error"] = center_error(advantage_GN, valid_GN)
        advantage_BT = advantage_GN.float().view(-1, 1).expand(mask_BT.shape)
    if policy.whiten and teaches_B.any():
        advantage_BT = whiten(advantage_BT, mask_BT & teaches_B[:, None])
    if policy.advantage_clip:
        advantage_BT = clip_advantages(advantage_BT, policy.advantage_clip)
    teaching = int(teaches_B.view(-1, size).any(1).sum())
    return Credit(reward_B.view(-1, size), advantage_BT, teaches_B, teaching, return_BT, metrics)


def _rewards(policy: PolicyConfig, knobs: Knobs, rollouts: Rollouts, scores: Sequence[Score]) -> tuple[Tensor, Tensor]:
    """The rewards of the task, and the penalties for length, in float64."""
    reward_B = torch.tensor([score.reward for score in scores], dtype=torch.float64, device=rollouts.mask_BT.device)
    if not knobs.overlong_buffer:
        return reward_B, torch.zeros_like(reward_B)
    buffer = knobs.overlong_buffer * knobs.max_completion
    return reward_B, overlong_penalty(rollouts.length_B, knobs.max_completion, buffer, policy.overlong_factor)


def _compared(
    kind: Kind | Literal["greedy"], reward_GN: Tensor, counts_GN: Tensor, baseline_G1: Tensor | None
) -> Tensor:
    """The advantages of completions that are compared as a whole."""
    if kind != "greedy":
        return sequence_advantages(kind, reward_GN, counts_GN)
    assert baseline_G1 is not None, "a greedy baseline needs the greedy completions"
    return sequence_advantages("none", reward_GN - baseline_G1, counts_GN)


def _components(
    scores: Sequence[Score], weights: Mapping[str, float], like_GN: Tensor
) -> list[tuple[Tensor, float, Tensor]]:
    """(values, weight, where it applies) of every component of the reward."""
    terms = []
    for name in {name: None for score in scores for name in score.components}:
        values = [score.components.get(name, math.nan) for score in scores]
        applies = [name in score.components for score in scores]
        value_GN = like_GN.new_tensor(values).view_as(like_GN)
        terms.append((value_GN, weights.get(name, 1.0), torch.tensor(applies, device=like_GN.device).view_as(like_GN)))
    return terms


def _teaching(knobs: Knobs, reward_GN: Tensor, valid_GN: Tensor, truncated_B: Tensor) -> Tensor:
    teaches_GN = valid_GN
    if knobs.filter_groups != "off" and reward_GN.shape[1] > 1:
        signal_G = ~silent_groups(reward_GN, valid_GN)
        signal_G &= signal_G.cumsum(0) <= knobs.prompts  # `resample` may have found more than requested
        teaches_GN = teaches_GN & signal_G[:, None]
    teaches_B = teaches_GN.reshape(-1)
    return teaches_B & ~truncated_B if knobs.mask_truncated else teaches_B
