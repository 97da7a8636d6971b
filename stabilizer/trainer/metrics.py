"""What is measured besides the loss: rewards and rollouts of a step. Names and estimators are those of `vocabulary.py`.

Shape letters: G groups, N completions per group, B = G x N rows, T completion positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stabilizer.trainer.rollout.rollouts import Rollouts
from stabilizer.trainer.tasks import Score


def reward_metrics(scores: Sequence[Score], group_size: int) -> dict[str, float]:
    """Rewards and accuracy of the step's completions. Deviations have n - 1 in the denominator, as advantages do."""
    reward_GN = np.array([score.reward for score in scores]).reshape(-1, group_size)
    solved_GN = np.array([score.solved for score in scores]).reshape(-1, group_size)
    metrics = {
        "reward/mean": reward_GN.mean(),
        "reward/std": reward_GN.std(ddof=1),
        "reward/std_group": reward_GN.std(axis=1, ddof=1).mean(),
        "reward/zero_std_frac": (reward_GN.max(1) == reward_GN.min(1)).mean(),
        "reward/all_fail_frac": (~solved_GN.any(1)).mean(),
        "reward/all_pass_frac": solved_GN.all(1).mean(),
        "accuracy/train": solved_GN.mean(),
    }
    components = scores[0].components
    if len(components) > 1:
        for name in components:
            metrics[f"reward/{name}/mean"] = np.mean([score.components[name] for score in scores])
    return {name: float(value) for name, value in metrics.items()}


def rollout_metrics(rollouts: Rollouts, scores: Sequence[Score]) -> dict[str, float]:
    """Lengths, repetition and variety. `policy/logp_correct` is left out of a step in which nothing was solved."""
    metrics = {
        "rollout/length_mean": rollouts.length_B.double().mean().item(),
        "rollout/length_max": float(rollouts.length_B.max()),
        "rollout/truncated_frac": rollouts.truncated_B.double().mean().item(),
        "rollout/repetition": repetition(rollouts.completion_ids_BT, rollouts.mask_BT),
        "rollout/distinct": distinct(rollouts.texts, rollouts.group_size),
        "rollout/staleness": 0.0,
    }
    solved_B = torch.tensor([score.solved for score in scores], device=rollouts.mask_BT.device)
    if solved_B.any():
        metrics["policy/logp_correct"] = rollouts.logp_BT[solved_B][rollouts.mask_BT[solved_B]].mean().item()
    return metrics


def repetition(ids_BT: Tensor, mask_BT: Tensor) -> float:
    """1 - distinct bigrams / bigrams of a completion, mean over completions; 0 for one too short to have a bigram."""
    if ids_BT.shape[1] < 2:
        return 0.0
    ids_BT = ids_BT.long()
    bigram = ids_BT[:, :-1] * (int(ids_BT.max()) + 1) + ids_BT[:, 1:]
    count_B = mask_BT[:, 1:].sum(1)
    bigram = bigram.masked_fill(~mask_BT[:, 1:], -1).sort(dim=1).values
    new = (bigram >= 0) & torch.cat([torch.ones_like(mask_BT[:, :1]), bigram[:, 1:] != bigram[:, :-1]], dim=1)
    repeated_B = 1 - new.sum(1) / count_B.clamp_min(1)
    return repeated_B.masked_fill(count_B == 0, 0.0).double().mean().item()


def distinct(texts: Sequence[str], group_size: int) -> float:
    """Distinct completions / completions of a group, mean over groups."""
    groups = [texts[start : start + group_size] for start in range(0, len(texts), group_size)]
    return sum(len(set(group)) / len(group) for group in groups) / len(groups)
