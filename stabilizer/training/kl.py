"""How far the policy has moved from the reference, estimated at the sampled tokens. Pure functions.

Shape letters: B rows (completions), T completion positions.

With x = log p_ref - log p at a sampled token, compared with the exact KL(p, p_ref) of that token's distribution:

    kind        value                  gradient, when it is part of the loss
    k1          unbiased, signed       zero on average: as a loss it only adds noise. Use it in the reward.
    k2          biased                 exact on-policy
    k3          unbiased, never < 0    that of KL(p_ref, p), the other direction: pulls harder where p is far too small
    k3_k2grad   as k3                  as k2: exact on-policy
    k3_is       unbiased               exact, on-policy or off: weighted by p / p_old, through which gradient flows

"On-policy" means that the tokens were drawn from p itself; after the first update of a batch only `k3_is` remains
correct. "Exact" is per token, given the tokens before it. Inside a loss, no estimator captures how an earlier token
changes which later distributions occur. k1 in the reward does capture it, and is the exact gradient of the KL of whole
completions. A test checks every line of this table.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Kind = Literal["k1", "k2", "k3", "k3_k2grad", "k3_is"]


def k3(log_ratio: Tensor) -> Tensor:
    """exp(x) - 1 - x with x = log q - log p: an unbiased estimate of KL(p, q) at a sample of p that is never negative.

    Schulman 2020, http://joschu.net/blog/kl-approx.html. `expm1` keeps it exact where the two are nearly equal.
    """
    return torch.expm1(log_ratio) - log_ratio


def kl_penalty(
    kind: Kind,
    logp_BT: Tensor,
    ref_logp_BT: Tensor,
    old_logp_BT: Tensor | None = None,
    mask_BT: Tensor | None = None,
) -> Tensor:
    """KL(policy, reference) in nats at every token, to be averaged; the table above shows which kind is correct when.

        k1 = log p - log p_ref
        k2 = (log p - log p_ref)^2 / 2
        k3 = p_ref / p - 1 - log(p_ref / p)                                      Schulman 2020; GRPO, arXiv:2402.03300
        k3_k2grad = k2 + stop_gradient(k3 - k2)                 gradients compared in Liu et al. 2025, arXiv:2510.01555
        k3_is = p / p_old * k3                                                         DeepSeek-V3.2, arXiv:2512.02556

    Only `k3_is` needs `old_logp_BT` (log-probabilities under the policy that sampled). Positions outside `mask_BT` are
    0 with gradient 0, whatever they hold; without a mask the caller must exclude them. Nothing is clamped: k3 is
    exponential for a token the policy has almost abandoned, and shows it.
    """
    log_ratio_BT = _masked(ref_logp_BT - logp_BT, mask_BT)
    if kind == "k1":
        return -log_ratio_BT
    if kind == "k2":
        return log_ratio_BT.square() / 2
    if kind == "k3":
        return k3(log_ratio_BT)
    if kind == "k3_k2grad":
        k2_BT = log_ratio_BT.square() / 2
        return k2_BT + (k3(log_ratio_BT) - k2_BT).detach()
    if kind == "k3_is":
        assert old_logp_BT is not None, "k3_is weights by p / p_old"
        return _masked(logp_BT - old_logp_BT.detach(), mask_BT).exp() * k3(log_ratio_BT)
    raise ValueError(f"kl kind {kind!r}: must be one of k1, k2, k3, k3_k2grad, k3_is")


def _masked(value_BT: Tensor, mask_BT: Tensor | None) -> Tensor:
    return value_BT if mask_BT is None else value_BT.masked_fill(~mask_BT, 0.0)
