"""Metrics of the rewards and rollouts of a step. `core/metrics.py` defines their names and estimators.

Numbers per completion are plain Python, numbers per token are numpy: for so few numbers, numpy's overhead per call
would cost more than the arithmetic.

Shape letters: G groups, N completions per group, B = G x N rows, T completion positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple

import numpy as np
from torch import Tensor

from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.rollout.turns import Outcome
from stabilizer.training.tasks import Score


class Judged(NamedTuple):
    """The scores of a step, one list per field."""

    rewards: list[float]
    solved: list[bool]
    failed: list[bool]
    summed: bool
    """Whether to report components besides the reward: there are several, or one with a weight."""


def judged(scores: Sequence[Score]) -> Judged:
    """The scores as one list per field."""
    rewards = [score.reward for score in scores]
    return Judged(
        rewards,
        [score.solved for score in scores],
        [score.failed != "" for score in scores],
        scores[0].summed or _summed([score.components for score in scores], rewards),
    )


def _summed(components: Sequence[Mapping[str, float]], rewards: Sequence[float]) -> bool:
    """The same, inferred from the numbers, for a task that does not declare it."""
    names = set().union(*components)
    if len(names) != 1:
        return len(names) > 1
    (name,) = names
    values = [terms.get(name) for terms in components]
    if values == rewards:
        return False
    pairs = zip(values, rewards, strict=True)
    return any(value is not None and abs(value - reward) > 0 for value, reward in pairs)  # NaN does not count


def reward_metrics(scores: Sequence[Score], judged: Judged, paid_GN: Tensor) -> dict[str, float]:
    """Rewards and accuracy of all completions drawn in the step. Deviations have n - 1 in the denominator.

    `paid_GN` holds the final rewards, length penalties included. Completions whose reward function failed are excluded
    from every metric but their own share. A component's metrics also exclude the completions to which it does not
    apply.
    """
    paid: list[list[float]] = paid_GN.tolist()
    size, solved, failed = len(paid[0]), judged.solved, judged.failed.count(True)
    metrics = {"reward/failed_frac": failed / len(solved)}
    rewards = [reward for group in paid for reward in group]
    passes = [solved[start : start + size].count(True) for start in range(0, len(solved), size)]
    if failed:
        rewards = [reward for reward, lost in zip(rewards, judged.failed, strict=True) if not lost]
        solved = [passed for passed, lost in zip(solved, judged.failed, strict=True) if not lost]
        whole = [True not in judged.failed[start : start + size] for start in range(0, len(judged.failed), size)]
        paid = [group for group, known in zip(paid, whole, strict=True) if known]  # groups without a failed reward
        passes = [count for count, known in zip(passes, whole, strict=True) if known]
    if rewards:
        metrics["reward/mean"] = sum(rewards) / len(rewards)
        metrics["accuracy/train"] = solved.count(True) / len(solved)
        if len(rewards) > 1:
            metrics["reward/std"] = _deviation(rewards)
    if paid:
        metrics |= _group_metrics(paid, passes)
    if judged.summed:
        metrics |= _component_metrics(scores)
    return metrics | _extra_metrics(scores)


def _group_metrics(paid: Sequence[list[float]], passes: Sequence[int]) -> dict[str, float]:
    """Rewards within groups; `passes` counts the solved completions of each."""
    groups, size = len(paid), len(paid[0])
    alike = [group.count(group[0]) for group in paid if group[0] == group[0]]  # a NaN equals nothing
    metrics = {
        "reward/zero_std_frac": alike.count(size) / groups,
        "reward/all_fail_frac": passes.count(0) / groups,
        "reward/all_pass_frac": passes.count(size) / groups,
    }
    if size > 1:
        metrics["reward/std_group"] = sum([_deviation(group) for group in paid]) / groups
    return metrics


def _deviation(values: list[float]) -> float:
    away = _from_mean(values)
    return math.sqrt(sum(map(mul, away, away)) / (len(values) - 1))


def _from_mean(values: Sequence[float]) -> list[float]:
    """The deviation of each value from the mean."""
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _component_metrics(scores: Sequence[Score]) -> dict[str, float]:
    metrics = {}
    for name in {name: None for score in scores for name in score.components}:
        values = [float(score.components[name]) for score in scores if name in score.components]
        known = [value for value in values if value == value]  # all but NaN
        metrics[f"reward/{name}/failed_frac"] = (len(values) - len(known)) / len(values)
        if known:
            metrics[f"reward/{name}/mean"] = sum(known) / len(known)
    return metrics


def _extra_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """Means of the further numbers that reward functions returned."""
    values: dict[str, list[float]] = {}
    for score in scores:
        for name, value in score.extra.items():
            values.setdefault(name, []).append(value)
    return {f"reward/{name}/mean": sum(found) / len(found) for name, found in values.items()}


def rollout_metrics(rollouts: Rollouts, judged: Judged) -> dict[str, float]:
    """Lengths, repetition and variety. `policy/logp_correct` is left out of a step in which nothing was solved."""
    lengths: list[int] = rollouts.length_B.tolist()
    ranked, rows = sorted(lengths), len(lengths)
    ids_BT = rollouts.completion_ids_BT.cpu().numpy()
    mask_BT = rollouts.mask_BT.cpu().numpy() if ranked[0] < ids_BT.shape[1] else None
    repeated, distinct_2 = bigrams(ids_BT, mask_BT)
    metrics = {
        "rollout/length_mean": sum(lengths) / rows,
        "rollout/length_max": float(ranked[-1]),
        "rollout/length_p90": float(ranked[-(-9 * rows // 10) - 1]),
        "rollout/truncated_frac": rollouts.truncated_B.tolist().count(True) / rows,
        "rollout/repetition": repeated,
        "rollout/distinct_2": distinct_2,
        "rollout/distinct": distinct(rollouts.texts, rollouts.group_size),
    }
    if True in judged.solved:
        logp_BT, correct_B = rollouts.logp_BT.float().cpu().numpy(), np.array(judged.solved, dtype=bool)
        correct = logp_BT[correct_B] if mask_BT is None else logp_BT[mask_BT & correct_B[:, None]]
        metrics["policy/logp_correct"] = float(correct.ravel().mean())
    dependence = prompt_dependence(ids_BT, mask_BT, rollouts.group_size)
    if dependence is not None:
        metrics["rollout/prompt_dependence"] = dependence
    correlation = length_reward_correlation(lengths, judged.rewards)
    if correlation is not None:
        metrics["rollout/length_reward_corr"] = correlation
    return metrics


def episode_metrics(rollouts: Rollouts, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Turns, calls and replies of episodes with an environment; empty for completions of one turn.

    The share of invalid calls is left out of a step without calls.
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


def length_reward_correlation(lengths: Sequence[int], rewards: Sequence[float]) -> float | None:
    """Pearson's correlation over the step's completions; None if either does not vary."""
    if not math.isfinite(sum(rewards)):
        known = [(length, reward) for length, reward in zip(lengths, rewards, strict=True) if math.isfinite(reward)]
        lengths, rewards = [length for length, _ in known], [reward for _, reward in known]
    if len(rewards) < 2 or lengths.count(lengths[0]) == len(lengths):
        return None
    longer, better = _from_mean(lengths), _from_mean(rewards)
    size = math.sqrt(sum(map(mul, longer, longer)) * sum(map(mul, better, better)))
    return sum(map(mul, longer, better)) / size if size > 1e-12 else None


def bigrams(ids_BT: np.ndarray, mask_BT: np.ndarray | None) -> tuple[float, float]:
    """(repetition, distinct-2) of neighbouring tokens that the policy chose; without a mask it chose all of them.

    Repetition: 1 - distinct bigrams / bigrams of a completion, mean over completions; 0 for one without a bigram.
    Distinct-2: distinct bigrams / bigrams over the whole step (Li et al. 2016, arXiv:1510.03055); 1 without any.
    """
    rows, places = len(ids_BT), ids_BT.shape[1] - 1
    number_BT = ids_BT[:, 1:] * 2**32  # the bigram's number; no model has so many tokens
    number_BT += ids_BT[:, :-1]
    both_BT = None
    if mask_BT is not None:
        both_BT = mask_BT[:, 1:] & mask_BT[:, :-1]
        number_BT = np.where(both_BT, number_BT, -1)  # -1 sorts first in a row, and is excluded from the count
    total = rows * places if both_BT is None else int(np.add.reduce(both_BT, axis=None))
    if total < 1:
        return 0.0, 1.0
    number_BT.sort(axis=1)
    new_BT = number_BT[:, 1:] != number_BT[:, :-1]
    if both_BT is None:  # the same number in every row
        repetition = 1 - (rows + int(np.add.reduce(new_BT, axis=None))) / total
    else:
        counts, news = np.add.reduce(both_BT, axis=1).tolist(), np.add.reduce(new_BT, axis=1).tolist()
        kinds = [new + (count == places) for new, count in zip(news, counts, strict=True)]
        repetition = sum([1 - kind / count for kind, count in zip(kinds, counts, strict=True) if count]) / rows
    number_K = number_BT.ravel()
    number_K.sort()
    different = int(np.add.reduce(number_K[1:] != number_K[:-1])) + (total == rows * places)
    return repetition, different / total


def distinct(texts: Sequence[str], group_size: int) -> float:
    """Distinct completions / completions of a group, mean over groups."""
    groups = [texts[start : start + group_size] for start in range(0, len(texts), group_size)]
    return sum(len(set(group)) / len(group) for group in groups) / len(groups)


CELLS = 2**14
"""Completions x vocabulary up to which tokens are counted in a table; beyond this, sorting the tokens is faster."""


def prompt_dependence(ids_BT: np.ndarray, mask_BT: np.ndarray | None, group_size: int) -> float | None:
    """1 - P(two tokens agree | different prompts) / P(two tokens agree | same prompt), over pairs of completions.

    The two tokens are drawn from two different completions; each completion has equal weight, whatever its length. Both
    probabilities are means over distinct pairs, so neither has the bias that a small batch gives to an entropy. 0:
    answers are as similar between prompts as within one. None with one prompt, one completion per prompt, or no shared
    token.
    """
    rows = len(ids_BT)
    if rows // group_size < 2 or group_size < 2 or not ids_BT.size:
        return None
    kinds = int(np.maximum.reduce(ids_BT, axis=None)) + 1
    shares = _shares_in_table if rows * kinds <= CELLS else _shares_by_sorting
    share_R, group_GV = shares(ids_BT, mask_BT, kinds, group_size)
    group_R, total_V = group_GV.ravel(), np.add.reduce(group_GV)
    within = float(group_R.dot(group_R))
    between = (float(total_V.dot(total_V)) - within) / (rows * (rows - group_size))
    within = (within - float(share_R.dot(share_R))) / (rows * (group_size - 1))
    return 1 - between / within if within > 1e-12 else None


def _shares_in_table(
    ids_BT: np.ndarray, mask_BT: np.ndarray | None, kinds: int, group_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """(each token's share of each completion, their sum over each group); counts instead of shares if all lengths are
    equal, because a constant factor cancels."""
    rows = len(ids_BT)
    width = kinds if mask_BT is None else kinds + 1  # the last column collects the tokens that are not the policy's
    cell_BT = ids_BT if mask_BT is None else np.where(mask_BT, ids_BT, kinds)
    cell_BT = cell_BT + np.arange(0, rows * width, width)[:, None]
    share_BV: np.ndarray = np.bincount(cell_BT.ravel(), minlength=rows * width).reshape(rows, width)
    if mask_BT is not None:
        share_BV = share_BV[:, :kinds] / np.maximum(np.add.reduce(mask_BT, axis=1, keepdims=True), 1)
    return share_BV.ravel(), np.add.reduce(share_BV.reshape(-1, group_size, kinds), axis=1)


def _shares_by_sorting(
    ids_BT: np.ndarray, mask_BT: np.ndarray | None, kinds: int, group_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same over the tokens that occur, which are few in a large vocabulary: they are renumbered."""
    mask_BT = np.ones(ids_BT.shape, dtype=bool) if mask_BT is None else mask_BT
    id_K, count_B = ids_BT[mask_BT], np.add.reduce(mask_BT, axis=1)
    seen_V = np.zeros(kinds, dtype=np.int64)
    seen_V[id_K] = 1
    number_V = np.add.accumulate(seen_V)
    kinds = int(number_V[-1])
    cell_K = np.arange(len(ids_BT)).repeat(count_B) * kinds + number_V[id_K] - 1
    cell_K.sort()
    start_R = np.diff(cell_K, prepend=-1).nonzero()[0]
    cell_R, times_R = cell_K[start_R], np.diff(start_R, append=len(cell_K))
    row_R = cell_R // max(kinds, 1)
    share_R = times_R / count_B[row_R]
    groups = len(ids_BT) // group_size
    cell_R = cell_R - (row_R - row_R // group_size) * kinds  # the cell of its group
    return share_R, np.bincount(cell_R, weights=share_R, minlength=groups * kinds).reshape(groups, kinds)
