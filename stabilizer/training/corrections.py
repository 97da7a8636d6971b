"""Corrections for off-policy samples: another engine computed them slightly differently, or the policy has changed
since.

Shape letters: B rows (completions), T completion positions. `mask_BT` is True at tokens the policy chose; other
positions have no effect.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from stabilizer.training.kl import k3
from stabilizer.training.losses import masked_mean

Kind = Literal["none", "tis_token", "tis_sequence", "mask_token", "mask_sequence", "mask_geometric"]


@torch.no_grad()
def mismatch_weights(
    kind: Kind, trainer_logp_BT: Tensor, engine_logp_BT: Tensor, mask_BT: Tensor, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss weights that correct for an engine q that differs from the trainer's policy p with the same weights.

    With r = p / q at a token, R = the product of r over a completion:

        none            1
        tis_token       min(r, cap)                      Yao et al. 2025, fengyao.notion.site/off-policy-rl
        tis_sequence    min(R, cap)                      the same for completions: no bias but of the cap, more variance
        mask_token      r within [1/cap, cap], else 0    IcePop, Ling Team 2025, arXiv:2510.18855
        mask_sequence   R up to cap, else 0              Liu et al. 2025, "When Speed Kills Stability"
        mask_geometric  1 where the geometric mean of r is within [1/cap, cap], else 0      the same

    R is a product: with 100 tokens, each 1 % too likely, it is 2.7, so the effect of a cap depends on the length. A
    geometric mean does not depend on it: its cap is close to 1, such as 1.01. A
    completion with a small R already weighs little, so `mask_sequence` has no lower limit. Both log-probabilities must
    be of the sampled distribution (temperature and truncation included), or the correction itself is wrong. A NaN
    remains visible. Metrics, over tokens, for every kind:

        policy/mismatch_kl           k3 estimate of KL(q, p), >= 0
        policy/mismatch_k1           the plain one, mean of log q - log p: signed, without bias
        policy/mismatch_ratio_max    largest r
        policy/mismatch_masked_frac  share of tokens whose weight was set to 0
    """
    log_ratio_BT = (trainer_logp_BT - engine_logp_BT).masked_fill(~mask_BT, 0.0)
    ratio_BT = log_ratio_BT.exp()
    sequence_BT = log_ratio_BT.sum(1, keepdim=True).exp().expand_as(ratio_BT)
    dropped_BT = torch.zeros_like(mask_BT)
    if kind == "none":
        weight_BT = torch.ones_like(ratio_BT)
    elif kind == "tis_token":
        weight_BT = ratio_BT.clamp_max(cap)
    elif kind == "tis_sequence":
        weight_BT = sequence_BT.clamp_max(cap)
    elif kind == "mask_token":
        dropped_BT = (ratio_BT > cap) | (ratio_BT < 1 / cap)
        weight_BT = ratio_BT.masked_fill(dropped_BT, 0.0)
    elif kind == "mask_sequence":
        dropped_BT = sequence_BT > cap
        weight_BT = sequence_BT.masked_fill(dropped_BT, 0.0)
    elif kind == "mask_geometric":
        mean_B1 = log_ratio_BT.sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp_min(1)
        dropped_BT = (mean_B1.abs() > math.log(cap)).expand_as(mask_BT)
        weight_BT = (0.0 * mean_B1 + 1).expand_as(ratio_BT).masked_fill(dropped_BT, 0.0)  # NaN remains NaN
    else:
        raise ValueError(f"mismatch correction {kind!r}: must be one of {', '.join(get_args(Kind))}")
    return weight_BT, {
        "policy/mismatch_kl": masked_mean(k3(log_ratio_BT), mask_BT),
        "policy/mismatch_k1": masked_mean(-log_ratio_BT, mask_BT),
        "policy/mismatch_ratio_max": ratio_BT.masked_fill(~mask_BT, 0.0).amax(),
        "policy/mismatch_masked_frac": masked_mean(dropped_BT.to(ratio_BT.dtype), mask_BT),
    }


@torch.no_grad()
def off_policy_mask(
    advantage_B: Tensor, logp_BT: Tensor, old_logp_BT: Tensor, mask_BT: Tensor, bound: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mask that drops completions with a negative advantage that the policy has already moved away from.

    `old_logp_BT` are the log-probabilities of the engine that sampled.

        dropped where A < 0 and mean over its tokens of (old_logp - logp) > bound    DeepSeek-V3.2, arXiv:2512.02556

    A bad completion that has become unlikely teaches little, and pushing it down has no lower limit; a good one is
    never dropped. Returns (keep_B, metrics); combine keep_B with the mask. policy/off_policy_masked_frac is the share
    of completions dropped. NaN is kept and remains visible.
    """
    drift_B = (old_logp_BT - logp_BT).masked_fill(~mask_BT, 0.0).sum(1) / mask_BT.sum(1).clamp_min(1)
    dropped_B = (advantage_B < 0) & (drift_B > bound)
    return ~dropped_B, {"policy/off_policy_masked_frac": dropped_B.to(drift_B.dtype).mean()}
