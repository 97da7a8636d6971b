"""Which tokens of a step the policy learns from, and which it is held back on. Pure functions.

Selections use the numbers of the start of the step and all of its tokens, so they do not depend on how a batch is
divided into minibatches, passes and ranks.

Shape letters: B rows (completions), T completion positions. `mask_BT` is True at tokens that are learned from.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stabilizer.training.losses import masked_mean


def top_entropy(entropy_BT: Tensor, mask_BT: Tensor, share: float) -> Tensor:
    """The tokens with the highest entropy: about this share of them, and at least one; equal ones are kept together.

    Wang et al. 2025, "Beyond the 80/20 Rule", arXiv:2506.01939: 0.2. The limit is the (1 - share) quantile, as in TRL.
    """
    entropy_N = entropy_BT[mask_BT]
    if not len(entropy_N):
        return mask_BT
    below = -int(-((1 - share) * (len(entropy_N) - 1) - 1e-9) // 1)  # rounded up; 1e-9 is for 0.8 * 10 = 8.000000001
    return mask_BT & (entropy_BT >= entropy_N.sort().values[below])


def covariance(logp_BT: Tensor, advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Every token's part of the covariance between advantage and log-probability; its mean predicts the fall of
    entropy.

    (A - mean A) (logp - mean logp)                                       Cui et al. 2025, arXiv:2505.22617
    """
    advantage_BT = advantage_BT.expand_as(logp_BT)
    return (advantage_BT - masked_mean(advantage_BT, mask_BT)) * (logp_BT - masked_mean(logp_BT, mask_BT))


def clip_cov(covariance_BT: Tensor, mask_BT: Tensor, share: float, bounds: tuple[float, float], seed: int) -> Tensor:
    """Clip-Cov: the tokens left out of the loss. They are drawn from those whose covariance is between the bounds.

    Their number is `share` of all tokens, and at least one (Cui et al. 2025, arXiv:2505.22617).
    """
    low, high = bounds
    candidate_N = (mask_BT & (covariance_BT > low) & (covariance_BT < high)).flatten().nonzero()[:, 0]
    count = max(int(share * int(mask_BT.sum())), 1)
    order = torch.randperm(len(candidate_N), generator=torch.Generator().manual_seed(seed)).to(candidate_N.device)
    chosen_BT = torch.zeros_like(mask_BT)
    chosen_BT.view(-1)[candidate_N[order[:count]]] = True
    return chosen_BT


def kl_cov(covariance_BT: Tensor, mask_BT: Tensor, share: float) -> Tensor:
    """KL-Cov: the tokens with the largest covariance, which are penalised for moving away from the sampling policy.

    Their number is `share` of all tokens, and at least one (Cui et al. 2025, arXiv:2505.22617).
    """
    total = int(mask_BT.sum())
    count = min(max(int(share * total), 1), total)
    chosen_BT = torch.zeros_like(mask_BT)
    chosen_BT.view(-1)[covariance_BT.masked_fill(~mask_BT, -torch.inf).flatten().topk(count).indices] = True
    return chosen_BT
