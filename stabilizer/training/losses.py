"""The objective to minimise. Pure functions of tensors.

Shape letters: B rows (completions), T completion positions. `mask_BT` is True at tokens the policy chose. Values at
other positions (padding, retrieved text) affect neither value nor gradient, even when they are NaN or infinite. At
tokens the policy chose, NaN and infinity reach the loss, and the loop then skips the update.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from stabilizer.training.kl import k3

Surrogate = Literal["clip", "cispo", "sapo", "geometric", "reinforce"]
Ratio = Literal["token", "sequence"]
Average = Literal["token", "sequence", "constant"]


def masked_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the tokens of the batch, with equal weight for every token; NaN without tokens.

    DAPO, Yu et al. 2025, arXiv:2503.14476: a mean per completion would make long wrong answers cheap per token.
    """
    return value_BT.masked_fill(~mask_BT, 0.0).sum() / mask_BT.sum()


def denominator(mask_BT: Tensor, average: Average, max_completion: int | None = None) -> Tensor:
    """The divisor of `average_tokens`: tokens, completions with any token, or rows x max_completion; at least 1.

    Compute it for a whole minibatch and pass it to each of its microbatches. Their losses and gradients then add up to
    those of the minibatch, however unevenly it was split.
    """
    if average == "token":
        return mask_BT.sum().clamp_min(1)
    if average == "sequence":
        return mask_BT.any(1).sum().clamp_min(1)
    if average == "constant":
        assert max_completion is not None, "average='constant' divides by max_completion"
        return torch.tensor(max(1, len(mask_BT) * max_completion), device=mask_BT.device)
    raise ValueError(f"average {average!r}: must be one of token, sequence, constant")


def average_tokens(
    value_BT: Tensor,
    mask_BT: Tensor,
    average: Average,
    max_completion: int | None = None,
    normalizer: float | Tensor | None = None,
) -> Tensor:
    """One number from one per token; every term of a loss is averaged by this. A batch without tokens gives 0.

        token       sum of all tokens / their number                DAPO, Yu et al. 2025, arXiv:2503.14476
        sequence    mean over completions of the mean over their    GRPO, Shao et al. 2024, arXiv:2402.03300
                    own tokens; one without tokens isn't counted
        constant    sum of all tokens / (rows x max_completion)     Dr. GRPO, Liu et al. 2025, arXiv:2503.20783

    They differ in the effect of length. With `token` a long completion weighs more. With `sequence` each of its tokens
    weighs less. With `constant` a token weighs the same whatever else is in the batch. `normalizer`, from
    `denominator`, replaces the divisor when this is a part of a larger minibatch.
    """
    if normalizer is None:
        normalizer = denominator(mask_BT, average, max_completion)
    value_BT = value_BT.masked_fill(~mask_BT, 0.0)
    if average == "sequence":
        value_BT = value_BT / mask_BT.sum(1, keepdim=True).clamp_min(1)
    return value_BT.sum() / normalizer


def policy_loss(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    advantage_BT: Tensor,
    mask_BT: Tensor,
    *,
    surrogate: Surrogate,
    ratio: Ratio,
    average: Average,
    epsilon_low: float,
    epsilon_high: float,
    dual_clip: float | None = None,
    weight_BT: Tensor | None = None,
    max_completion: int | None = None,
    normalizer: float | Tensor | None = None,
    ratio_guard: float | None = None,
    gate: tuple[float, float] = (1.0, 1.05),
) -> tuple[Tensor, dict[str, Tensor]]:
    """Minus the surrogate objective, averaged by `average_tokens`; returns (loss, metrics).

    With r = exp(logp - old_logp) and clip(r) = r held within [1 - epsilon_low, 1 + epsilon_high], per token:

        clip        min(r A, clip(r) A)                  PPO, Schulman et al. 2017, arXiv:1707.06347; two ranges as in
                                                         DAPO, arXiv:2503.14476
        cispo       stop_gradient(clip(r)) A logp        MiniMax-M1, 2025, arXiv:2506.13585: no token loses its gradient
        sapo        4/t sigmoid(t (r - 1)) A             Gao et al. 2025, arXiv:2511.20347: the gradient fades with
                                                         the distance from 1 instead of ending; t is the first of
                                                         `gate` where A > 0, else the second
        geometric   exp(mean over its own tokens of x) A GMPO, Zhao et al. 2025, arXiv:2507.20673: x is log r, held
                                                         at most epsilon_high where A > 0, at least -epsilon_low
                                                         where A < 0
        reinforce   A logp                               Williams 1992; no ratio, right only for the first update

    `ratio="sequence"`: every token of a completion has the completion's ratio, r = exp(mean over its own tokens of logp
    - old_logp), and the gradient flows through that mean (GSPO, Zheng et al. 2025, arXiv:2507.18071).

    dual_clip     c > 1, with `clip` only: where A < 0 the loss is at most c |A| (Ye et al. 2020, arXiv:1912.09729).
    weight_BT     factors on each token's term, without gradient: corrections of rollout mismatch (`corrections.py`).
    ratio_guard   tokens (completions, at ratio="sequence") whose ratio is above it are left out: 0 in value and
                  gradient, still counted in the average, so that the others don't grow. Off, nothing is clamped.

    `advantage_BT` may be (B, 1). Metrics have no gradient and cover the tokens of this call before any guard:

        policy/loss              this term alone, without KL or entropy
        policy/kl_old            k3 of the token ratios, whichever ratio the surrogate uses
        policy/clip_frac         share of tokens that were clipped, and of those
        policy/clip_frac_low     `clip`: A < 0 and r < 1 - epsilon_low;   `cispo`: r < 1 - epsilon_low
        policy/clip_frac_high    `clip`: A > 0 and r > 1 + epsilon_high;  `cispo`: r > 1 + epsilon_high
                                 (at ratio="sequence" of the tokens in completions whose ratio is out; as `clip` for
                                 `geometric`, with log r; not for `sapo` and `reinforce`, where nothing is clipped)
        policy/ratio_max, _min, _p99   of the ratios in use: one per token, or one per completion
        policy/ess               effective sample size of the same ratios as a share, (sum r)^2 / (n sum r^2)
        policy/dual_clip_frac    share of tokens with A < 0 and r > dual_clip
        policy/guarded_frac      share of tokens left out by the guard
        ratio_error              largest |r - 1| of any token: 0 while the policy is still the one that sampled
    """
    if dual_clip is not None and (surrogate != "clip" or dual_clip <= 1):
        raise ValueError(
            f"dual_clip={dual_clip:g} with surrogate={surrogate!r}: it bounds only the clipped surrogate and must be "
            "above 1 (3 is usual); unset it, or use surrogate='clip'"
        )
    token_log_ratio_BT = (logp_BT - old_logp_BT).masked_fill(~mask_BT, 0.0)
    log_ratio_BT = token_log_ratio_BT
    if ratio == "sequence":
        length_B1 = mask_BT.sum(1, keepdim=True).clamp_min(1)
        log_ratio_BT = (token_log_ratio_BT.sum(1, keepdim=True) / length_B1).expand_as(logp_BT)
    seen_log_ratio_BT = log_ratio_BT.detach()
    kept_BT = mask_BT
    if ratio_guard is not None:
        kept_BT = mask_BT & ~(seen_log_ratio_BT > math.log(ratio_guard))
        log_ratio_BT = log_ratio_BT.masked_fill(~kept_BT, 0.0)

    kept_advantage_BT = advantage_BT.masked_fill(~kept_BT, 0.0)
    limits = (-epsilon_low, epsilon_high) if surrogate == "geometric" else _log_range(epsilon_low, epsilon_high)
    low, high = 1 - epsilon_low, 1 + epsilon_high
    if surrogate == "clip":
        gain_BT = _clipped(log_ratio_BT.exp(), kept_advantage_BT, low, high, dual_clip)
    elif surrogate == "cispo":
        gain_BT = log_ratio_BT.detach().exp().clamp(low, high) * kept_advantage_BT * logp_BT
    elif surrogate == "sapo":
        gain_BT = _gated(log_ratio_BT, kept_advantage_BT, gate)
    elif surrogate == "geometric":
        gain_BT = _geometric(log_ratio_BT, kept_advantage_BT, mask_BT, limits)
    elif surrogate == "reinforce":
        gain_BT = kept_advantage_BT * logp_BT
    else:
        raise ValueError(f"surrogate {surrogate!r}: must be one of {', '.join(get_args(Surrogate))}")
    if weight_BT is not None:
        gain_BT = gain_BT * weight_BT.detach().masked_fill(~kept_BT, 0.0)
    loss = -average_tokens(gain_BT, mask_BT, average, max_completion, normalizer)

    with torch.no_grad():
        metrics = {"policy/loss": loss.detach()} | _ratio_metrics(token_log_ratio_BT, seen_log_ratio_BT, mask_BT, ratio)
        if surrogate in ("clip", "cispo", "geometric"):
            metrics |= _clip_metrics(seen_log_ratio_BT, advantage_BT, mask_BT, limits, signed=surrogate != "cispo")
        if dual_clip is not None:
            bounded_BT = (advantage_BT < 0) & (seen_log_ratio_BT > math.log(dual_clip))
            metrics["policy/dual_clip_frac"] = _share(bounded_BT, mask_BT)
        if ratio_guard is not None:
            metrics["policy/guarded_frac"] = _share(~kept_BT, mask_BT)
    return loss, metrics


def _log_range(epsilon_low: float, epsilon_high: float) -> tuple[float, float]:
    """The range of the ratio's logarithm; a lower end of 0 or less is no limit."""
    return math.log(1 - epsilon_low) if epsilon_low < 1 else -math.inf, math.log1p(epsilon_high)


def _clipped(ratio_BT: Tensor, advantage_BT: Tensor, low: float, high: float, dual_clip: float | None) -> Tensor:
    gain_BT = torch.minimum(ratio_BT * advantage_BT, ratio_BT.clamp(low, high) * advantage_BT)
    if dual_clip is None:
        return gain_BT
    return torch.where(advantage_BT < 0, torch.maximum(gain_BT, dual_clip * advantage_BT), gain_BT)


def _gated(log_ratio_BT: Tensor, advantage_BT: Tensor, gate: tuple[float, float]) -> Tensor:
    better, worse = (log_ratio_BT.new_tensor(steep) for steep in gate)
    steep_BT = torch.where(advantage_BT > 0, better, worse)
    return 4 / steep_BT * torch.sigmoid(steep_BT * torch.expm1(log_ratio_BT)) * advantage_BT


def _geometric(log_ratio_BT: Tensor, advantage_BT: Tensor, mask_BT: Tensor, limits: tuple[float, float]) -> Tensor:
    low, high = limits
    held_BT = torch.where(advantage_BT > 0, log_ratio_BT.clamp_max(high), log_ratio_BT.clamp_min(low))
    mean_B1 = held_BT.masked_fill(~mask_BT, 0.0).sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp_min(1)
    return mean_B1.exp() * advantage_BT


def _ratio_metrics(
    token_log_ratio_BT: Tensor, log_ratio_BT: Tensor, mask_BT: Tensor, ratio: Ratio
) -> dict[str, Tensor]:
    """Sizes and tails. A batch without tokens counts as one token that did not move."""
    token_log_ratio = token_log_ratio_BT[mask_BT]
    log_ratio = token_log_ratio if ratio == "token" else log_ratio_BT[:, 0][mask_BT.any(1)]
    if not len(log_ratio):
        token_log_ratio = log_ratio = token_log_ratio_BT.new_zeros(1)
    ordered = log_ratio.sort().values.exp()  # NaN sorts last, so it shows in the maximum
    weight = ordered / ordered[-1]  # avoids overflow in the squares of large ratios
    return {
        "policy/kl_old": k3(token_log_ratio).mean(),
        "policy/ratio_max": ordered[-1],
        "policy/ratio_min": ordered[0],
        "policy/ratio_p99": ordered[math.ceil(0.99 * len(ordered)) - 1],
        "policy/ess": weight.sum().square() / (len(weight) * weight.square().sum()),
        "ratio_error": torch.expm1(token_log_ratio).abs().amax(),
    }


def _clip_metrics(
    log_ratio_BT: Tensor, advantage_BT: Tensor, mask_BT: Tensor, limits: tuple[float, float], *, signed: bool
) -> dict[str, Tensor]:
    low_BT, high_BT = log_ratio_BT < limits[0], log_ratio_BT > limits[1]
    if signed:
        low_BT, high_BT = low_BT & (advantage_BT < 0), high_BT & (advantage_BT > 0)
    low_frac, high_frac = _share(low_BT, mask_BT), _share(high_BT, mask_BT)
    return {
        "policy/clip_frac": low_frac + high_frac,
        "policy/clip_frac_low": low_frac,
        "policy/clip_frac_high": high_frac,
    }


def _share(chosen_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return (chosen_BT & mask_BT).sum() / mask_BT.sum().clamp_min(1)
