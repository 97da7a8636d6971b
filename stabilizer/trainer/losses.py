"""What is minimised. Pure functions of tensors.

Shape letters: B rows (completions), T completion positions. `mask_BT` is True at tokens the policy chose.
"""

from __future__ import annotations

import torch
from torch import Tensor


def masked_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the tokens of the batch, every token counting the same however long its completion is.

    DAPO, Yu et al. 2025, arXiv:2503.14476: a mean per completion would make long wrong answers cheap per token.
    """
    return value_BT.masked_fill(~mask_BT, 0.0).sum() / mask_BT.sum()


def k3(log_ratio: Tensor) -> Tensor:
    """exp(x) - 1 - x with x = log q - log p: an unbiased estimate of KL(p, q) at a sample of p that is never negative.

    Schulman 2020, http://joschu.net/blog/kl-approx.html. `expm1` keeps it exact where the two all but agree.
    """
    return torch.expm1(log_ratio) - log_ratio


def grpo_loss(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    ref_logp_BT: Tensor | None,
    entropy_BT: Tensor,
    advantage_B: Tensor,
    mask_BT: Tensor,
    *,
    epsilon_low: float,
    epsilon_high: float,
    beta: float,
    entropy_coef: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate with a KL term, mean over tokens; returns (loss, metrics).

        ratio = exp(logp - old_logp)
        surrogate = min(ratio * A, clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * A)     PPO, arXiv:1707.06347
        loss = mean(-surrogate + beta * k3(ref_logp - logp)) - entropy_coef * mean(entropy)

    Two clip ranges as in DAPO (arXiv:2503.14476); the KL inside the loss as in GRPO (arXiv:2402.03300). `policy/loss`
    leaves the entropy bonus out. Nothing is clamped: an infinite ratio gives an infinite loss, and its update is
    skipped by the loop.
    """
    log_ratio_BT = (logp_BT - old_logp_BT).masked_fill(~mask_BT, 0.0)
    ratio_BT = log_ratio_BT.exp()
    advantage_B1 = advantage_B[:, None]
    surrogate_BT = torch.minimum(
        ratio_BT * advantage_B1, ratio_BT.clamp(1 - epsilon_low, 1 + epsilon_high) * advantage_B1
    )
    loss = -masked_mean(surrogate_BT, mask_BT)
    metrics = {}
    if ref_logp_BT is not None:
        kl_ref = masked_mean(k3((ref_logp_BT - logp_BT).masked_fill(~mask_BT, 0.0)), mask_BT)
        loss = loss + beta * kl_ref if beta else loss
        metrics["policy/kl_ref"] = kl_ref
    entropy = masked_mean(entropy_BT, mask_BT)

    low_BT = (advantage_B1 < 0) & (ratio_BT < 1 - epsilon_low)
    high_BT = (advantage_B1 > 0) & (ratio_BT > 1 + epsilon_high)
    metrics |= {
        "policy/loss": loss,
        "policy/entropy": entropy,
        "policy/kl_old": masked_mean(k3(log_ratio_BT), mask_BT),
        "policy/clip_frac": masked_mean((low_BT | high_BT).float(), mask_BT),
        "policy/clip_frac_low": masked_mean(low_BT.float(), mask_BT),
        "policy/clip_frac_high": masked_mean(high_BT.float(), mask_BT),
        "policy/ratio_max": ratio_BT.masked_fill(~mask_BT, 0.0).amax(),
        "ratio_error": (ratio_BT - 1).abs().amax(),
    }
    metrics = {name: value.detach() for name, value in metrics.items()}
    return (loss - entropy_coef * entropy if entropy_coef else loss), metrics
