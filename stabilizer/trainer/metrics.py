"""What is measured besides the loss: rewards and rollouts of a step. Names and estimators are those of `vocabulary.py`.

All of it is arithmetic on arrays of a few hundred numbers, done in numpy because a call costs less there than in torch.

Shape letters: G groups, N completions per group, B = G x N rows, T completion positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from stabilizer.trainer.rollout.rollouts import Rollouts
from stabilizer.trainer.rollout.turns import Outcome
from stabilizer.trainer.tasks import Score


class Judged(NamedTuple):
    """The scores of a step as arrays, taken apart once for all that is measured of them."""

    reward_B: np.ndarray
    solved_B: np.ndarray
    failed_B: np.ndarray
    several: bool
    """Whether any score is the sum of several terms."""


def judged(scores: Sequence[Score]) -> Judged:
    """The scores taken apart, a list at a time: one array of tuples would cost more than all the rest."""
    return Judged(
        np.array([score.reward for score in scores]),
        np.array([score.solved for score in scores]),
        np.array([score.failed != "" for score in scores]),
        max(len(score.components) for score in scores) > 1,
    )


def reward_metrics(scores: Sequence[Score], judged: Judged, paid_GN: Tensor) -> dict[str, float]:
    """Rewards and accuracy of the step's completions, of all that were drawn. Deviations have n - 1 below them.

    `paid_GN` is what was paid, penalties for length included. Completions whose reward function failed are left out of
    every figure but the share of them; so are, from a component's, those to which it does not apply.
    """
    reward_GN = paid_GN.cpu().numpy()
    solved_GN = judged.solved_B.reshape(reward_GN.shape)
    failed = np.count_nonzero(judged.failed_B)
    metrics = {"reward/failed_frac": failed / len(judged.failed_B)}
    reward_B, solved_B = reward_GN.ravel(), judged.solved_B
    if failed:
        reward_B, solved_B = reward_B[~judged.failed_B], solved_B[~judged.failed_B]
        whole_G = ~judged.failed_B.reshape(reward_GN.shape).any(1)  # groups that can be judged as a whole
        reward_GN, solved_GN = reward_GN[whole_G], solved_GN[whole_G]
    if rows := len(reward_B):
        mean = reward_B.sum() / rows
        metrics["reward/mean"] = mean
        metrics["accuracy/train"] = np.count_nonzero(solved_B) / rows
        if rows > 1:
            away_B = reward_B - mean
            metrics["reward/std"] = math.sqrt(away_B @ away_B / (rows - 1))
    if groups := len(reward_GN):
        size = reward_GN.shape[1]
        solved_G = solved_GN.sum(1)
        metrics["reward/zero_std_frac"] = np.count_nonzero((reward_GN == reward_GN[:, :1]).all(1)) / groups
        metrics["reward/all_fail_frac"] = np.count_nonzero(solved_G == 0) / groups
        metrics["reward/all_pass_frac"] = np.count_nonzero(solved_G == size) / groups
        if size > 1:
            away_GN = reward_GN - reward_GN.sum(1, keepdims=True) / size
            metrics["reward/std_group"] = np.sqrt((away_GN * away_GN).sum(1) / (size - 1)).sum() / groups
    if judged.several:
        metrics |= _component_metrics(scores)
    return {name: float(value) for name, value in metrics.items()}


def _component_metrics(scores: Sequence[Score]) -> dict[str, float]:
    metrics = {}
    for name in {name: None for score in scores for name in score.components}:
        values = np.array([score.components[name] for score in scores if name in score.components], dtype=float)
        failed = np.isnan(values)
        metrics[f"reward/{name}/failed_frac"] = failed.mean()
        if not failed.all():
            metrics[f"reward/{name}/mean"] = values[~failed].mean()
    return metrics


def rollout_metrics(rollouts: Rollouts, judged: Judged) -> dict[str, float]:
    """Lengths, repetition and variety. `policy/logp_correct` is left out of a step in which nothing was solved."""
    ids_BT, mask_BT = rollouts.completion_ids_BT.cpu().numpy(), rollouts.mask_BT.cpu().numpy()
    length_B = rollouts.length_B.cpu().numpy()
    ranked_B = np.sort(length_B)
    repeated, distinct_2 = bigrams(ids_BT, mask_BT)
    metrics = {
        "rollout/length_mean": length_B.mean(),
        "rollout/length_max": ranked_B[-1],
        "rollout/length_p90": ranked_B[-(-9 * len(ranked_B) // 10) - 1],
        "rollout/truncated_frac": rollouts.truncated_B.cpu().numpy().mean(),
        "rollout/repetition": repeated,
        "rollout/distinct_2": distinct_2,
        "rollout/distinct": distinct(rollouts.texts, rollouts.group_size),
    }
    if judged.solved_B.any():
        logp_BT = rollouts.logp_BT.float().cpu().numpy()[judged.solved_B]
        metrics["policy/logp_correct"] = logp_BT[mask_BT[judged.solved_B]].mean()
    dependence = prompt_dependence(ids_BT, mask_BT, rollouts.group_size)
    if dependence is not None:
        metrics["rollout/prompt_dependence"] = dependence
    correlation = length_reward_correlation(length_B, judged.reward_B)
    if correlation is not None:
        metrics["rollout/length_reward_corr"] = correlation
    return {name: float(value) for name, value in metrics.items()}


def episode_metrics(rollouts: Rollouts, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Turns, calls and what came back, of episodes with an environment; nothing for completions of one turn.

    The share of invalid calls is left out of a step without any call.
    """
    if not outcomes:
        return {}
    searches, invalid = sum(o.searches for o in outcomes), sum(o.invalid for o in outcomes)
    metrics = {
        "rollout/turns_mean": sum(o.turns for o in outcomes) / len(outcomes),
        "rollout/searches_mean": searches / len(outcomes),
        "rollout/retrieved_frac": 1 - float(rollouts.length_B.sum() / rollouts.span_B.sum()),
    }
    if searches + invalid:
        metrics["rollout/invalid_calls_frac"] = invalid / (searches + invalid)
    return metrics


def length_reward_correlation(length_B: np.ndarray, reward_B: np.ndarray) -> float | None:
    """Pearson's correlation over the step's completions; None when either does not vary."""
    known_B = np.isfinite(reward_B)
    length_B, reward_B = length_B[known_B].astype(float), reward_B[known_B]
    if len(length_B) < 2:
        return None
    length_B, reward_B = length_B - length_B.mean(), reward_B - reward_B.mean()
    size = np.sqrt((length_B @ length_B) * (reward_B @ reward_B))
    return float(length_B @ reward_B / size) if size > 1e-12 else None


def bigrams(ids_BT: np.ndarray, mask_BT: np.ndarray) -> tuple[float, float]:
    """(repetition, distinct-2).

    Repetition: 1 - distinct bigrams / bigrams of a completion, mean over completions; 0 for one without a bigram.
    Distinct-2: distinct bigrams / bigrams over the whole step (Li et al. 2016, arXiv:1510.03055); 1 without any.
    """
    row_K, at_K = (mask_BT[:, 1:] & mask_BT[:, :-1]).nonzero()
    if not len(row_K):
        return 0.0, 1.0
    size = int(ids_BT.max()) + 1
    bigram_K = ids_BT[row_K, at_K].astype(np.int64) * size + ids_BT[row_K, at_K + 1]
    own_K = _each_once(row_K * size**2 + bigram_K)
    count_B = np.bincount(row_K, minlength=len(ids_BT))
    distinct_B = np.bincount(own_K // size**2, minlength=len(ids_BT))
    repeated_B = 1 - distinct_B / np.maximum(count_B, 1)
    return float(repeated_B[count_B > 0].sum() / len(count_B)), len(_each_once(bigram_K)) / len(bigram_K)


def _each_once(number_K: np.ndarray) -> np.ndarray:
    """Each number once, in order; for a few thousand of them sooner than `np.unique`, which hashes."""
    number_K = np.sort(number_K)
    return number_K[np.append(True, number_K[1:] != number_K[:-1])]


def distinct(texts: Sequence[str], group_size: int) -> float:
    """Distinct completions / completions of a group, mean over groups."""
    groups = [texts[start : start + group_size] for start in range(0, len(texts), group_size)]
    return sum(len(set(group)) / len(group) for group in groups) / len(groups)


def prompt_dependence(ids_BT: np.ndarray, mask_BT: np.ndarray, group_size: int) -> float | None:
    """1 - P(two tokens agree | different prompts) / P(two tokens agree | same prompt), over pairs of completions.

    The two tokens are drawn from two different completions, each completion weighed alike whatever its length. Both
    chances are means over distinct pairs, so neither has the bias that a small batch gives to an entropy. 0: answers
    are as like between prompts as within one; None with one prompt, one completion of each, or no token shared.
    """
    row_K, at_K = mask_BT.nonzero()
    count = len(ids_BT)
    groups = count // group_size
    if groups < 2 or group_size < 2 or not len(row_K):
        return None
    known, token_K = np.unique(ids_BT[row_K, at_K], return_inverse=True)
    size = len(known)
    length_B = np.maximum(np.bincount(row_K, minlength=count), 1)
    own_R, times_R = np.unique(row_K * size + token_K, return_counts=True)
    row_R, token_R = np.divmod(own_R, size)
    share_R = times_R / length_B[row_R]  # of its completion's tokens
    cell_R = row_R // group_size * size + token_R
    group_GV = np.bincount(cell_R, weights=share_R, minlength=groups * size).reshape(groups, size)
    within = float(np.vdot(group_GV, group_GV))
    total_V = group_GV.sum(0)
    between = (float(total_V @ total_V) - within) / (count * (count - group_size))
    within = (within - float(share_R @ share_R)) / (count * (group_size - 1))
    return 1 - between / within if within > 1e-12 else None
