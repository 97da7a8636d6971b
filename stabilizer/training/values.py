"""The critic's arithmetic: rewards per token, advantages and returns from values, and its loss. Pure functions.

Shape letters: B rows (completions), T completion positions. `mask_BT` is True at tokens the policy chose; only those
are steps of the episode. A masked gap (retrieved text between two turns) takes no time: the first token after the gap
succeeds the last token before it. Results are 0 outside the mask, whatever the inputs hold there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stabilizer.training.losses import Average, average_tokens, masked_mean


def token_rewards(reward_B: Tensor, kl_BT: Tensor | None, beta: float, mask_BT: Tensor) -> Tensor:
    """The completion's reward on its last token, and -beta * kl on each of its tokens.

    Ziegler et al. 2019, arXiv:1909.08593; Ouyang et al. 2022, arXiv:2203.02155. With `k1` of `kl.py` the expected
    return is the reward minus beta times the KL of the whole completion. A row without tokens has no rewards.
    """
    number_BT = mask_BT.cumsum(1)
    last_BT = mask_BT & (number_BT == number_BT[:, -1:])
    reward_BT = torch.where(last_BT, reward_B[:, None], 0.0)
    return reward_BT if kl_BT is None else reward_BT - beta * kl_BT.detach().masked_fill(~mask_BT, 0.0)


@torch.no_grad()
def gae(reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates, and the returns as targets of the critic; (advantage_BT, return_BT).

        delta_t = r_t + gamma * V_{t+1} - V_t          V = 0 after the last token, truncated or not
        A_t = delta_t + gamma * lam * A_{t+1}
        return_t = A_t + V_t                           Schulman et al. 2015, arXiv:1506.02438

    t + 1 is the next token the policy chose. lam = 1 uses only rewards (no bias, much noise), lam = 0 only the critic.
    """
    advantages, returns = [], []
    next_value_B = next_advantage_B = torch.zeros_like(value_BT[:, 0])
    columns = zip(reward_BT.unbind(1), value_BT.unbind(1), mask_BT.unbind(1), strict=True)
    for reward_B, value_B, mask_B in reversed(list(columns)):
        delta_B = reward_B + gamma * next_value_B - value_B
        advantage_B = delta_B + gamma * lam * next_advantage_B
        advantages.append(advantage_B.masked_fill(~mask_B, 0.0))
        returns.append((advantage_B + value_B).masked_fill(~mask_B, 0.0))
        next_value_B = torch.where(mask_B, value_B, next_value_B)
        next_advantage_B = torch.where(mask_B, advantage_B, next_advantage_B)
    return torch.stack(advantages[::-1], 1), torch.stack(returns[::-1], 1)


def discounted_returns(reward_BT: Tensor, mask_BT: Tensor, gamma: float) -> Tensor:
    """Discounted sum of the rewards from each token on: REINFORCE++'s advantages before whitening (arXiv:2501.03262).

    G_t = r_t + gamma * G_{t+1}
    """
    return gae(reward_BT, torch.zeros_like(reward_BT), mask_BT, gamma, lam=1.0)[0]


def whiten(value_BT: Tensor, mask_BT: Tensor, shift_mean: bool = True) -> Tensor:
    """Scaled to deviation 1 (n - 1 in the denominator) over the tokens of the batch, and to mean 0 with `shift_mean`.

    (x - mean) / sqrt(var + 1e-8), Ziegler et al. 2019, arXiv:1909.08593.
    """
    mean = masked_mean(value_BT, mask_BT)
    centred_BT = (value_BT - mean).masked_fill(~mask_BT, 0.0)
    variance = centred_BT.square().sum() / (mask_BT.sum() - 1).clamp_min(1)
    white_BT = centred_BT * (variance + 1e-8).rsqrt()
    return white_BT if shift_mean else (white_BT + mean).masked_fill(~mask_BT, 0.0)


def explained_variance(value_BT: Tensor, return_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """1 - var(return - value) / var(return): 1 for a perfect critic, 0 for one no better than a constant, < 0 for a
    worse one.

    NaN if all returns are equal: then there is nothing to explain.
    """
    returns = return_BT[mask_BT]
    errors = returns - value_BT[mask_BT]
    return 1 - errors.var(correction=0) / _or_nan(returns.var(correction=0))


def value_loss(
    value_BT: Tensor,
    old_value_BT: Tensor,
    return_BT: Tensor,
    mask_BT: Tensor,
    clip_range: float | None,
    average: Average = "token",
    max_completion: int | None = None,
    normalizer: float | Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Half the squared error of the critic, or of a value clipped near the old one, whichever is larger.

        near = old + clip(V - old, -clip_range, clip_range)
        loss = mean of max((V - return)^2, (near - return)^2) / 2     PPO2; Schulman et al. 2015, arXiv:1506.02438;
                                                                      Huang et al. 2024, arXiv:2403.17031

    So a value that has already moved by more than `clip_range` towards its return gets no further gradient in this
    batch. None turns clipping off. Averaged like the policy loss. Metrics: value/loss; value/clip_frac (tokens on which
    the clipped value's error was larger); value/explained_variance (of the old values, so before the critic learned
    from these returns); value/mean.
    """
    error_BT = (value_BT - return_BT).masked_fill(~mask_BT, 0.0).square()
    worst_BT = error_BT
    if clip_range is not None:
        moved_BT = value_BT - old_value_BT
        bounded_BT = old_value_BT + moved_BT.clamp(-clip_range, clip_range)
        near_BT = torch.where(moved_BT.abs() > clip_range, bounded_BT, value_BT)  # old + moved rounds: not a clip
        worst_BT = torch.maximum(error_BT, (near_BT - return_BT).masked_fill(~mask_BT, 0.0).square())
    loss = average_tokens(worst_BT, mask_BT, average, max_completion, normalizer) / 2
    with torch.no_grad():
        metrics = {
            "value/loss": loss.detach(),
            "value/clip_frac": masked_mean((worst_BT > error_BT).to(loss.dtype), mask_BT),
            "value/explained_variance": explained_variance(old_value_BT, return_BT, mask_BT),
            "value/mean": masked_mean(value_BT, mask_BT),
        }
    return loss, metrics


def _or_nan(variance: Tensor) -> Tensor:
    return torch.where(variance == 0, torch.nan, variance)
