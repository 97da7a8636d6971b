"""Credit assignment: from the scores of a step to an advantage for every token, and the rows that are learned from.

Shape letters: G groups (prompts), N completions per group, B = G x N rows, T completion positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from stabilizer.training.advantages import (
    CENTRED_PER_GROUP,
    center_error,
    clip_advantages,
    overlong_penalty,
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
    scores: list[Score],
    *,
    kl_BT: Tensor | None,
    value_BT: Tensor | None,
) -> Credit:
    """Advantages of one step. `kl_BT` is given when the KL is part of the reward, `value_BT` when there is a critic.

    A completion whose reward function failed is excluded from means, deviations and updates.
    """
    device, mask_BT, size = rollouts.mask_BT.device, rollouts.mask_BT, rollouts.group_size
    reward_B = torch.tensor([score.reward for score in scores], dtype=torch.float64, device=device)
    valid_B = torch.tensor([not score.failed for score in scores], device=device)
    # groups are selected by the rewards before penalties, as during sampling: length alone makes no group useful
    teaches_B = _teaching(knobs, reward_B.view(-1, size), valid_B.view(-1, size), rollouts.truncated_B)
    metrics: dict[str, float] = {}
    if knobs.overlong_buffer:
        buffer = knobs.overlong_buffer * knobs.max_completion
        penalty_B = overlong_penalty(rollouts.length_B, knobs.max_completion, buffer, policy.overlong_factor)
        reward_B = reward_B + penalty_B
        metrics["reward/overlong/mean"] = penalty_B.mean().item()
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
        if kl_BT is not None:
            reward_GN = reward_GN - knobs.beta * kl_BT.double().sum(1).view(-1, size)
        counts_GN = valid_GN & teaches_B.view(-1, size).any(1, keepdim=True)  # of groups that are learned from
        advantage_GN = sequence_advantages(kind, reward_GN, counts_GN)
        if kind in CENTRED_PER_GROUP:
            metrics["reward/advantage_center_error"] = center_error(advantage_GN, valid_GN)
        advantage_BT = advantage_GN.float().view(-1, 1).expand(mask_BT.shape)
    if policy.whiten and teaches_B.any():
        advantage_BT = whiten(advantage_BT, mask_BT & teaches_B[:, None])
    if policy.advantage_clip:
        advantage_BT = clip_advantages(advantage_BT, policy.advantage_clip)
    teaching = int(teaches_B.view(-1, size).any(1).sum())
    return Credit(reward_B.view(-1, size), advantage_BT, teaches_B, teaching, return_BT, metrics)


def _teaching(knobs: Knobs, reward_GN: Tensor, valid_GN: Tensor, truncated_B: Tensor) -> Tensor:
    teaches_GN = valid_GN
    if knobs.filter_groups != "off" and reward_GN.shape[1] > 1:
        signal_G = ~silent_groups(reward_GN, valid_GN)
        signal_G &= signal_G.cumsum(0) <= knobs.prompts  # `resample` may have found more than requested
        teaches_GN = teaches_GN & signal_G[:, None]
    teaches_B = teaches_GN.reshape(-1)
    return teaches_B & ~truncated_B if knobs.mask_truncated else teaches_B
