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
        np.array([score.reward for score in scores], dtype=float),
        np.array([score.solved for score in scores]),
        np.array([score.failed != "" for score in scores]),
        max([len(score.components) for score in scores]) > 1,
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
        mean = metrics["reward/mean"] = np.add.reduce(reward_B) / rows
        metrics["accuracy/train"] = np.count_nonzero(solved_B) / rows
        if rows > 1:
            away_B = reward_B - mean
            metrics["reward/std"] = math.sqrt(away_B.dot(away_B) / (rows - 1))
    if groups := len(reward_GN):
        size = reward_GN.shape[1]
        solved_G = np.add.reduce(solved_GN, axis=1).tolist()
        alike_G = np.logical_and.reduce(reward_GN == reward_GN[:, :1], axis=1)
        metrics["reward/zero_std_frac"] = np.count_nonzero(alike_G) / groups
        metrics["reward/all_fail_frac"] = solved_G.count(0) / groups
        metrics["reward/all_pass_frac"] = solved_G.count(size) / groups
        if size > 1:
            away_GN = reward_GN - np.add.reduce(reward_GN, axis=1, keepdims=True) / size
            std_G = np.sqrt(np.add.reduce(away_GN * away_GN, axis=1) / (size - 1))
            metrics["reward/std_group"] = np.add.reduce(std_G) / groups
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
    mask_BT = rollouts.mask_BT.cpu().numpy()
    length_B = rollouts.length_B.cpu().numpy()
    ranked_B = np.sort(length_B)
    rows = len(ranked_B)
    own = own_tokens(rollouts.completion_ids_BT.cpu().numpy(), mask_BT)
    repeated, distinct_2 = bigrams(own)
    metrics = {
        "rollout/length_mean": np.add.reduce(length_B) / rows,
        "rollout/length_max": ranked_B[-1],
        "rollout/length_p90": ranked_B[-(-9 * rows // 10) - 1],
        "rollout/truncated_frac": np.count_nonzero(rollouts.truncated_B.cpu().numpy()) / rows,
        "rollout/repetition": repeated,
        "rollout/distinct_2": distinct_2,
        "rollout/distinct": distinct(rollouts.texts, rollouts.group_size),
    }
    if judged.solved_B.any():
        logp_BT = rollouts.logp_BT.float().cpu().numpy()
        metrics["policy/logp_correct"] = logp_BT[mask_BT & judged.solved_B[:, None]].mean()
    dependence = prompt_dependence(own, rollouts.group_size)
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
    if not known_B.all():
        length_B, reward_B = length_B[known_B], reward_B[known_B]
    if (rows := len(length_B)) < 2:
        return None
    length_B = length_B - np.add.reduce(length_B) / rows
    reward_B = reward_B - np.add.reduce(reward_B) / rows
    size = math.sqrt(length_B.dot(length_B) * reward_B.dot(reward_B))
    return float(length_B.dot(reward_B)) / size if size > 1e-12 else None


class OwnTokens(NamedTuple):
    """The K tokens the policy chose, row after row, picked out once for all that is measured of them."""

    row_K: np.ndarray
    at_K: np.ndarray
    """Place in its row, plus `row * (T + 1)`: two tokens are neighbours in one row where these differ by 1."""
    token_K: np.ndarray
    """Its number among the tokens that occur at all, which are few of a large vocabulary."""
    count_B: np.ndarray
    kinds: int
    """How many different ones there are."""


def own_tokens(ids_BT: np.ndarray, mask_BT: np.ndarray) -> OwnTokens:
    """Pick them out of the padded block."""
    place_K = mask_BT.ravel().nonzero()[0]
    count_B = np.add.reduce(mask_BT, axis=1)
    row_K = np.arange(len(ids_BT)).repeat(count_B)
    id_K = ids_BT.ravel()[place_K]
    seen_V = np.zeros(int(id_K.max()) + 1 if len(id_K) else 0, dtype=np.int64)
    seen_V[id_K] = 1
    number_V = np.add.accumulate(seen_V)
    kinds = int(number_V[-1]) if len(number_V) else 0
    return OwnTokens(row_K, place_K + row_K, number_V[id_K] - 1, count_B, kinds)


def bigrams(own: OwnTokens) -> tuple[float, float]:
    """(repetition, distinct-2).

    Repetition: 1 - distinct bigrams / bigrams of a completion, mean over completions; 0 for one without a bigram.
    Distinct-2: distinct bigrams / bigrams over the whole step (Li et al. 2016, arXiv:1510.03055); 1 without any.
    """
    rows = len(own.count_B)
    first_K = (own.at_K[1:] - own.at_K[:-1] == 1).nonzero()[0]
    if not len(first_K):
        return 0.0, 1.0
    row_K = own.row_K[first_K]
    bigram_K = own.token_K[first_K] * own.kinds + own.token_K[first_K + 1]
    number_K = np.sort(bigram_K * rows + row_K)  # those of one kind next to each other, and among them those of a row
    each_K = number_K[_starts(number_K)]
    count_B = np.bincount(row_K, minlength=rows)
    bigram_K = each_K // rows
    distinct_B = np.bincount(each_K - bigram_K * rows, minlength=rows)
    repeated_B = 1 - distinct_B / np.maximum(count_B, 1)
    return float(np.add.reduce(repeated_B[count_B > 0])) / rows, len(_starts(bigram_K)) / len(number_K)


def _starts(number_K: np.ndarray) -> np.ndarray:
    """Where each run of equal numbers begins; `np.unique`, which hashes or sorts once more, takes longer."""
    new_K = np.empty(len(number_K), dtype=bool)
    new_K[0] = True
    np.not_equal(number_K[1:], number_K[:-1], out=new_K[1:])
    return new_K.nonzero()[0]


def distinct(texts: Sequence[str], group_size: int) -> float:
    """Distinct completions / completions of a group, mean over groups."""
    groups = [texts[start : start + group_size] for start in range(0, len(texts), group_size)]
    return sum(len(set(group)) / len(group) for group in groups) / len(groups)


def prompt_dependence(own: OwnTokens, group_size: int) -> float | None:
    """1 - P(two tokens agree | different prompts) / P(two tokens agree | same prompt), over pairs of completions.

    The two tokens are drawn from two different completions, each completion weighed alike whatever its length. Both
    chances are means over distinct pairs, so neither has the bias that a small batch gives to an entropy. 0: answers
    are as like between prompts as within one; None with one prompt, one completion of each, or no token shared.
    """
    count, size = len(own.count_B), own.kinds
    groups = count // group_size
    if groups < 2 or group_size < 2 or not size:
        return None
    cell_K = np.sort(own.row_K * size + own.token_K)
    start_R = _starts(cell_K)
    own_R, times_R = cell_K[start_R], np.append(start_R[1:], len(cell_K)) - start_R
    row_R = own_R // size
    share_R = times_R / own.count_B[row_R]  # of its completion's tokens
    cell_R = own_R - (row_R - row_R // group_size) * size
    group_GV = np.bincount(cell_R, weights=share_R, minlength=groups * size).reshape(groups, size)
    within = float(np.vdot(group_GV, group_GV))
    total_V = np.add.reduce(group_GV)
    between = (float(total_V.dot(total_V)) - within) / (count * (count - group_size))
    within = (within - float(share_R.dot(share_R))) / (count * (group_size - 1))
    return 1 - between / within if within > 1e-12 else None
