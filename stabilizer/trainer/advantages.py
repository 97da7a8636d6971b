"""How much better a completion is than its neighbours. Pure functions.

Shape letters: G groups (prompts), N completions per group.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Baseline = Literal["group_std", "group_mean"]

STD_FLOOR = 1e-4
"""Added to a group's deviation, in units of reward: a group that all but agrees must not be blown up to size 1."""


def group_advantages(reward_GN: Tensor, baseline: Baseline) -> Tensor:
    """Rewards minus the mean of their group, in float64; with `group_std` also divided by the group's deviation.

    group_std:   A = (r - mean(r)) / (std(r) + 1e-4)     GRPO, Shao et al. 2024, arXiv:2402.03300
    group_mean:  A = r - mean(r)                         Dr. GRPO, Liu et al. 2025, arXiv:2503.20783

    Dividing gives every prompt the same say, however little its answers differ; that is also how noise in an all but
    solved group becomes a full-sized push. The deviation has N - 1 in its denominator, as in TRL and veRL.
    """
    reward_GN = reward_GN.double()
    centred_GN = reward_GN - reward_GN.mean(dim=1, keepdim=True)
    if baseline == "group_mean":
        return centred_GN
    return centred_GN / (reward_GN.std(dim=1, keepdim=True) + STD_FLOOR)


def center_error(advantage_GN: Tensor) -> float:
    """Largest |mean advantage of a group|: zero up to rounding, or advantages and completions got mixed up."""
    return torch.amax(advantage_GN.mean(dim=1).abs()).item()
