import itertools
import math

import numpy as np
import pytest
import torch

from stabilizer.training.metrics import (
    bigrams,
    distinct,
    judged,
    length_reward_correlation,
    prompt_dependence,
    rollout_metrics,
)
from stabilizer.training.metrics import reward_metrics as measure
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.tasks import Score


def scores(*rewards):
    return [Score(reward, reward >= 1, {"exact": reward}) for reward in rewards]


def reward_metrics(scores, group_size):
    return measure(
        scores,
        judged(scores),
        torch.tensor([score.reward for score in scores], dtype=torch.float64).view(-1, group_size),
    )


def test_reward_metrics_by_hand():
    # groups (0, 0), (0, 1), (1, 1)
    metrics = reward_metrics(scores(0, 0, 0, 1, 1, 1), group_size=2)
    assert metrics == pytest.approx(
        {
            "reward/mean": 0.5,
            "reward/std": math.sqrt(6 * 0.25 / 5),  # six squared deviations of 1/4, over n - 1
            "reward/std_group": math.sqrt(0.5) / 3,  # (0, 1): two of 1/4 over 1; the others 0
            "reward/zero_std_frac": 2 / 3,
            "reward/all_fail_frac": 1 / 3,
            "reward/all_pass_frac": 1 / 3,
            "accuracy/train": 0.5,
            "reward/failed_frac": 0.0,
        }
    )


def test_equal_rewards_that_no_float_holds_exactly_are_still_equal():
    assert reward_metrics(scores(0.1, 0.1, 0.1), group_size=3)["reward/zero_std_frac"] == 1


def test_components_are_reported_when_there_are_several():
    two = [Score(1.5, True, {"right": 1.0, "short": 0.5}), Score(0.0, False, {"right": 0.0, "short": 0.0})]
    metrics = reward_metrics(two, group_size=2)
    assert (metrics["reward/right/mean"], metrics["reward/short/mean"]) == (0.5, 0.25)


def test_components_are_reported_when_no_sample_has_more_than_one():
    apart = [Score(1.0, True, {"right": 1.0}), Score(0.5, False, {"short": 0.5})]
    metrics = reward_metrics(apart, group_size=2)
    assert (metrics["reward/right/mean"], metrics["reward/short/mean"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("weighed", "reported"),
    [
        ([Score(1.0, True, {"right": 2.0}), Score(0.0, False, {"right": 0.0})], True),
        ([Score(0.0, True, {"right": 0.0}, summed=True), Score(0.0, False, {"right": 0.0}, summed=True)], True),
        ([Score(math.nan, False, {"right": float("nan")}, "down"), Score(1.0, True, {"right": 1.0})], False),
        ([Score(math.nan, False, {}, "down"), Score(1.0, True, {"right": 1.0})], False),
        ([Score(math.nan, False, {}, "down"), Score(1.0, True, {"right": 2.0})], True),
        (scores(0, 1), False),
    ],
)
def test_one_component_is_reported_when_it_is_not_the_reward(weighed, reported):
    assert ("reward/right/mean" in reward_metrics(weighed, group_size=2)) == reported


def test_a_nan_reward_is_reported_as_nan():
    metrics = reward_metrics(scores(math.nan, 1.0), group_size=2)
    assert math.isnan(metrics["reward/mean"]) and math.isnan(metrics["reward/std_group"])
    assert metrics["reward/zero_std_frac"] == 0
    assert reward_metrics(scores(math.nan, 1.0), group_size=1)["reward/zero_std_frac"] == 0.5


def test_a_failed_reward_counts_in_nothing_but_its_own_share():
    failed = Score(math.nan, False, {}, failed="timed out")
    metrics = reward_metrics([*scores(1, 0), failed, *scores(1)], group_size=2)
    # groups (1, 0) and (failed, 1): the second can't be judged as a group
    assert metrics["reward/failed_frac"] == 0.25 and metrics["reward/mean"] == pytest.approx(2 / 3)
    assert metrics["accuracy/train"] == pytest.approx(2 / 3)
    assert metrics["reward/zero_std_frac"] == metrics["reward/all_fail_frac"] == 0
    assert set(reward_metrics([failed, failed], group_size=2)) == {"reward/failed_frac"}


def test_repetition_and_variety_by_hand():
    ids_BT = np.array([[1, 1, 1, 1, 1], [1, 2, 1, 2, 9], [1, 2, 3, 9, 9], [5, 9, 9, 9, 9]])
    mask_BT = np.arange(5)[None] < np.array([5, 4, 3, 1])[:, None]
    # 4 bigrams, 1 distinct: 3/4;  12 21 12: 1/3;  12 23: 0;  too short: 0
    # over all: 11 12 21 23 are 4 distinct of 4 + 3 + 2
    assert bigrams(ids_BT, mask_BT) == (pytest.approx((3 / 4 + 1 / 3) / 4), pytest.approx(4 / 9))
    assert bigrams(ids_BT[:, :1], mask_BT[:, :1]) == (0, 1)


def test_a_bigram_does_not_reach_across_what_an_environment_put_in():
    # 1 2 [7 7] 1 2: two bigrams (12), one distinct; the retrieved 7 7 is nobody's wording
    ids_BT, mask_BT = np.array([[1, 2, 7, 7, 1, 2]]), np.array([[True, True, False, False, True, True]])
    assert bigrams(ids_BT, mask_BT) == (0.5, 0.5)


def test_length_and_reward_correlate_by_hand():
    # lengths 1 2 3, rewards 0 0 1: deviations (-1 0 1) and (-1/3 -1/3 2/3); 1 / sqrt(2 * 2/3)
    assert length_reward_correlation([1, 2, 3], [0.0, 0, 1]) == pytest.approx(1 / math.sqrt(4 / 3))
    assert length_reward_correlation([1, 2, 3], [1.0, 1, 1]) is None
    assert length_reward_correlation([2, 2, 2], [0.0, 1, 1]) is None
    assert length_reward_correlation([1, 2, 3, 9], [0.0, 0, 1, math.nan]) == pytest.approx(1 / math.sqrt(4 / 3))
    assert length_reward_correlation([1, 2], [math.nan, 1.0]) is None


def test_distinct_by_hand():
    # (a, a): 1 of 2;  (a, b): 2 of 2
    assert distinct(["a", "a", "a", "b"], 2) == 0.75


def test_dependence_on_the_prompt_by_hand():
    # groups (1 1, 1 2) and (2 2, 2); 9 is padding. Within: 1/2 agree in the first group, 1 in the second: mean 3/4.
    # Between: 11-22 0, 11-2 0, 12-22 1/2, 12-2 1/2: mean 1/4. So 1 - (1/4) / (3/4).
    ids_BT = np.array([[1, 1], [1, 2], [2, 2], [2, 9]])
    mask_BT = np.array([[True, True], [True, True], [True, True], [True, False]])
    assert prompt_dependence(ids_BT, mask_BT, 2) == pytest.approx(2 / 3)


def test_dependence_is_nothing_for_a_template_and_all_for_answers_that_share_no_token():
    template_BT, own_BT = np.array([[1, 2]] * 4), np.array([[1, 2], [1, 2], [3, 4], [3, 4]])
    every_BT = np.ones((4, 2), dtype=bool)
    assert prompt_dependence(template_BT, every_BT, 2) == pytest.approx(0)
    assert prompt_dependence(own_BT, every_BT, 2) == pytest.approx(1)
    assert prompt_dependence(own_BT, every_BT, 4) is None, "one prompt"
    assert prompt_dependence(own_BT, every_BT, 1) is None, "nothing to compare within a prompt"


def test_dependence_of_a_random_policy_is_zero_on_average_however_small_the_batch():
    rng = np.random.default_rng(0)
    every_BT = np.ones((8, 6), dtype=bool)
    values = [prompt_dependence(rng.integers(0, 5, (8, 6)), every_BT, 4) for _ in range(400)]
    assert abs(np.mean(values)) < 0.02


def test_wording_is_counted_as_one_would_by_hand_whatever_is_padded_put_in_or_left_empty(monkeypatch):
    rng = np.random.default_rng(1)
    for _ in range(60):
        groups, size, width = (int(n) for n in rng.integers(1, 6, 3))
        ids_BT = rng.integers(0, rng.choice([2, 9, 40_000]), (groups * size, width))
        mask_BT = rng.random(ids_BT.shape) < rng.choice([0.0, 0.5, 1.0])
        own = [[int(i) for i, chosen in zip(*row, strict=True) if chosen] for row in zip(ids_BT, mask_BT, strict=True)]
        pairs = [
            [(int(ids[at]), int(ids[at + 1])) for at in range(width - 1) if chosen[at] and chosen[at + 1]]
            for ids, chosen in zip(ids_BT, mask_BT, strict=True)
        ]
        repeated = sum(1 - len(set(row)) / len(row) for row in pairs if row) / len(pairs)
        every = [pair for row in pairs for pair in row]
        variety = len(set(every)) / len(every) if every else 1.0
        forms = (mask_BT, None) if mask_BT.all() else (mask_BT,)  # where all were chosen it may be told or not
        for form in forms:
            assert bigrams(ids_BT, form) == (pytest.approx(repeated), pytest.approx(variety))

        def agree(a, b, own=own):  # the chance that a token of one answer and one of another are the same
            tokens = [(x, y) for x in own[a] for y in own[b]]
            return sum(x == y for x, y in tokens) / len(tokens) if tokens else 0.0

        found = {True: [], False: []}
        for a in range(len(own)):
            for b in range(a):
                found[a // size == b // size].append(agree(a, b))
        within = np.mean(found[True]) if found[True] else 0.0
        wanted = 1 - np.mean(found[False]) / within if found[False] and within > 0 else None
        for form, cells in itertools.product(forms, (2**30, 0)):  # in a table, and by sorting
            monkeypatch.setattr("stabilizer.training.metrics.CELLS", cells)
            found = prompt_dependence(ids_BT, form, size)
            assert found == (None if wanted is None else pytest.approx(wanted, abs=1e-9))


# --- all that is said of a step's completions -----------------------------------------------------------------------


def rollouts(ids, lengths, logps=None, texts=None, group_size=2):
    """Completions that are padded with 9 and end before a limit of as many tokens as the rows are wide."""
    ids_BT, length_B = torch.tensor(ids), torch.tensor(lengths)
    one_B = torch.ones(len(ids), 1, dtype=torch.bool)
    return Rollouts(
        prompt_ids_BP=ids_BT[:, :1], prompt_mask_BP=one_B, completion_ids_BT=ids_BT,
        mask_BT=torch.arange(ids_BT.shape[1])[None] < length_B[:, None],
        logp_BT=torch.zeros(ids_BT.shape) if logps is None else torch.tensor(logps), length_B=length_B, span_B=length_B,
        truncated_B=length_B == ids_BT.shape[1], texts=texts or [""] * len(ids), group_size=group_size,
    )  # fmt: skip


def test_rollout_metrics_by_hand():
    # two groups of two, the second completion of each longer; the first of each group is solved; -50 stands in padding
    given = rollouts(
        ids=[[1, 9, 9, 9], [1, 1, 1, 9], [2, 3, 9, 9], [2, 3, 2, 3]],
        lengths=[1, 3, 2, 4],
        logps=[[-1.0, -50, -50, -50], [-7.0, -7, -7, -50], [-2.0, -6, -50, -50], [-8.0] * 4],
        texts=["a", "b", "c", "c"],
    )
    metrics = rollout_metrics(given, judged(scores(1, 0, 1, 0)))
    assert metrics == pytest.approx(
        {
            "rollout/length_mean": 10 / 4,
            "rollout/length_max": 4,
            "rollout/length_p90": 4,  # of four the fourth: 0.9 * 4, rounded up
            "rollout/truncated_frac": 1 / 4,
            # none; 11 11: 1/2; 23: 0; 23 32 23: 1/3.  Of the six 11, 23 and 32 are different
            "rollout/repetition": (1 / 2 + 1 / 3) / 4,
            "rollout/distinct_2": 3 / 6,
            "rollout/distinct": (1 + 1 / 2) / 2,  # (a, b) and (c, c)
            "policy/logp_correct": -3,  # (-1 - 2 - 6) / 3 tokens
            "rollout/prompt_dependence": 1,  # no token in common between the groups
            # lengths 1 3 2 4 and rewards 1 0 1 0 from their means: (-3 1 -1 3)/2, (1 -1 1 -1)/2: -8/4, over the root of
            # 20/4 x 4/4
            "rollout/length_reward_corr": -2 / math.sqrt(5),
        }
    )


@pytest.mark.parametrize(("rows", "p90"), [(1, 1), (2, 2), (9, 9), (10, 9), (11, 10), (19, 18), (20, 18), (30, 27)])
def test_nine_of_ten_completions_are_no_longer_than_the_90th_percentile(rows, p90):
    # lengths 1 to n in disorder: the smallest that at least 90 % of them do not exceed is 0.9 n, rounded up
    lengths = [1 + 7 * row % rows for row in range(rows)]
    assert sorted(lengths) == list(range(1, rows + 1))
    metrics = rollout_metrics(rollouts([[1] * 40] * rows, lengths, group_size=1), judged(scores(*[0] * rows)))
    assert (metrics["rollout/length_p90"], metrics["rollout/length_max"]) == (p90, rows)
    assert metrics["rollout/length_mean"] == pytest.approx((rows + 1) / 2)


def test_the_likelihood_of_right_answers_is_that_of_their_tokens_with_and_without_padding():
    # both rows full: (-1 - 2) / 2 of the right one; nothing is said where none is right
    given = rollouts([[1, 2], [1, 2]], [2, 2], logps=[[-1.0, -2.0], [-30.0, -40.0]])
    assert rollout_metrics(given, judged(scores(1, 0)))["policy/logp_correct"] == -1.5
    assert rollout_metrics(given, judged(scores(0, 1)))["policy/logp_correct"] == -35
    assert "policy/logp_correct" not in rollout_metrics(given, judged(scores(0, 0)))
