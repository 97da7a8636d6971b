"""How much better a completion is than the ones it is compared with. Pure functions.

Shape letters: G groups (prompts), N completions per group, B = G x N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

Kind = Literal["group_std", "group_mean", "batch_std", "leave_one_out", "batch_whiten", "none"]

CENTRED_PER_GROUP = ("group_std", "group_mean", "batch_std", "leave_one_out", "per_reward")
"""Kinds whose advantages have mean 0 in every group; `center_error` checks that."""

STD_FLOOR = 1e-4
"""Added to a deviation, in units of reward, so that nearly equal rewards are not scaled up to size 1."""


def sequence_advantages(kind: Kind, reward_GN: Tensor, valid_GN: Tensor | None = None) -> Tensor:
    """One advantage per completion, in float64.

        group_std       (r - mean_group) / (std_group + 1e-4)      GRPO, Shao et al. 2024, arXiv:2402.03300
        group_mean      r - mean_group                             Dr. GRPO, Liu et al. 2025, arXiv:2503.20783
        batch_std       (r - mean_group) / (std_batch + 1e-4)      Lite PPO, Liu et al. 2025, arXiv:2508.08221
        leave_one_out   r - mean of the others in the group        RLOO, Ahmadian et al. 2024, arXiv:2402.14740
        batch_whiten    (r - mean_batch) / (std_batch + 1e-4)      REINFORCE++, Hu et al. 2025, arXiv:2501.03262
        none            r                                          REINFORCE without a baseline

    Dividing by the group's deviation gives every prompt equal weight, however little its answers differ. It also turns
    noise in a nearly solved group into a full-sized update. The batch's deviation keeps the prompts' weights and only
    fixes the scale. Deviations are of rewards, with n - 1 in the denominator.

    `valid_GN` is False where the reward failed, and in groups that are filtered out or exceed the requested number.
    Such values enter no mean or deviation, and their advantage is 0. A reward that is alone in its group has no
    comparison: its advantage is 0 for all kinds that compare within groups. A valid NaN remains visible.
    """
    reward_GN = reward_GN.double()
    valid_GN = torch.ones_like(reward_GN, dtype=torch.bool) if valid_GN is None else valid_GN
    reward_GN = reward_GN.masked_fill(~valid_GN, 0.0)
    if kind == "none":
        return reward_GN
    if kind == "batch_whiten":
        return _standardised(reward_GN.reshape(1, -1), valid_GN.reshape(1, -1)).view_as(reward_GN)

    mean_G1, _, count_G1 = _moments(reward_GN, valid_GN)
    advantage_GN = (reward_GN - mean_G1).masked_fill(~valid_GN, 0.0)
    if kind == "group_mean":
        return advantage_GN
    if kind == "group_std":
        return _standardised(reward_GN, valid_GN)
    if kind == "batch_std":
        return advantage_GN / (_moments(reward_GN.reshape(1, -1), valid_GN.reshape(1, -1))[1] + STD_FLOOR)
    if kind == "leave_one_out":  # r - (sum - r) / (n - 1) = (r - mean) * n / (n - 1)
        return advantage_GN * count_G1 / (count_G1 - 1).clamp_min(1)
    raise ValueError(f"advantage {kind!r}: must be one of {', '.join(get_args(Kind))}")


def per_reward_advantages(terms: Sequence[tuple[Tensor, float, Tensor]], valid_GN: Tensor) -> Tensor:
    """Advantages from several rewards, each standardised in its group before they are added, in float64.

        sum over rewards of weight * (r - mean_group) / (std_group + 1e-4), then
        (sum - mean_batch) / (std_batch + 1e-4)                    GDPO, Liu et al. 2026, arXiv:2601.05242

    Standardising the sum instead lets the reward with the largest deviation decide. Each term is (values, weight, where
    the reward applies); elsewhere it adds 0.
    """
    total_GN = torch.zeros_like(valid_GN, dtype=torch.float64)
    for value_GN, weight, applies_GN in terms:
        known_GN = applies_GN & valid_GN
        total_GN += weight * _standardised(value_GN.double().masked_fill(~known_GN, 0.0), known_GN)
    return _standardised(total_GN.view(1, -1), valid_GN.reshape(1, -1)).view_as(total_GN)


def _standardised(reward_GN: Tensor, valid_GN: Tensor) -> Tensor:
    """(reward - mean) / (deviation + 1e-4) of the valid rewards of each row, 0 for the others, which must be 0."""
    mean_G1, std_G1, _ = _moments(reward_GN, valid_GN)
    return ((reward_GN - mean_G1) / (std_G1 + STD_FLOOR)).masked_fill(~valid_GN, 0.0)


def _moments(reward_GN: Tensor, valid_GN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, deviation and number of the valid rewards of each row, as columns; invalid rewards must be 0."""
    count_G1 = valid_GN.sum(1, keepdim=True)
    mean_G1 = reward_GN.sum(1, keepdim=True) / count_G1.clamp_min(1)
    square_G1 = (reward_GN - mean_G1).masked_fill(~valid_GN, 0.0).square().sum(1, keepdim=True)
    return mean_G1, (square_G1 / (count_G1 - 1).clamp_min(1)).sqrt(), count_G1


def center_error(advantage_GN: Tensor, valid_GN: Tensor | None = None) -> float:
    """Largest |mean advantage of a group|. Zero up to rounding, unless advantages and completions got mixed up."""
    if valid_GN is None:
        return torch.amax(advantage_GN.mean(dim=1).abs()).item()
    sum_G = advantage_GN.masked_fill(~valid_GN, 0.0).sum(1)
    return torch.amax((sum_G / valid_GN.sum(1).clamp_min(1)).abs()).item()


NEXT_TO_NOTHING = 0.01
"""Share of the widest group's range below which a group's differences are noise that a division would amplify."""


def silent_groups(reward_GN: Tensor, valid_GN: Tensor | None = None) -> Tensor:
    """True for each group that teaches nothing: its rewards are equal, or nearly equal relative to the widest group."""
    if valid_GN is None:
        valid_GN = torch.ones_like(reward_GN, dtype=torch.bool)
    highest_G = reward_GN.masked_fill(~valid_GN, -torch.inf).amax(1)
    lowest_G = reward_GN.masked_fill(~valid_GN, torch.inf).amin(1)
    range_G = (highest_G - lowest_G).masked_fill(~valid_GN.any(1), 0.0)
    known_G = range_G[range_G.isfinite()]
    least = NEXT_TO_NOTHING * known_G.max() if len(known_G) else 0.0
    return zero_variance(reward_GN, valid_GN) | (range_G < least)


def zero_variance(reward_GN: Tensor, valid_GN: Tensor | None = None) -> Tensor:
    """True for each group with fewer than two valid rewards, or with equal ones: nothing can be learned from it.

    Dynamic sampling replaces these groups and filtering drops them (DAPO, Yu et al. 2025, arXiv:2503.14476). A group
    with a NaN is not counted as equal.
    """
    if valid_GN is None:
        return reward_GN.amax(1) == reward_GN.amin(1)
    highest_G = reward_GN.masked_fill(~valid_GN, -torch.inf).amax(1)
    lowest_G = reward_GN.masked_fill(~valid_GN, torch.inf).amin(1)
    return (highest_G == lowest_G) | ~valid_GN.any(1)


def clip_advantages(advantage: Tensor, bound: float) -> Tensor:
    """Advantages clipped to [-bound, bound], so that one outlier cannot dominate its batch; NaN remains NaN."""
    return advantage.clamp(-bound, bound)


def overlong_penalty(length_B: Tensor, max_completion: int, buffer: float, factor: float) -> Tensor:
    """Penalty added to the reward of long completions: 0 up to max - buffer, then falling linearly to -factor at max.

        factor * clamp((max - buffer - length) / buffer, -1, 0)          DAPO, Yu et al. 2025, arXiv:2503.14476

    A truncated completion has length max and therefore gets the whole penalty. `buffer` counts tokens.
    """
    if not 0 < buffer <= max_completion:
        raise ValueError(
            f"overlong buffer of {buffer:g} tokens with max_completion={max_completion}: "
            "must be more than 0 and no longer than a completion"
        )
    return factor * ((max_completion - buffer - length_B.double()) / buffer).clamp(-1.0, 0.0)
