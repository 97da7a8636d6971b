import math

import pytest
import torch

from stabilizer.trainer.metrics import distinct, repetition, reward_metrics
from stabilizer.trainer.tasks import Score


def scores(*rewards):
    return [Score(reward, reward >= 1, {"exact": reward}) for reward in rewards]


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
        }
    )


def test_equal_rewards_that_no_float_holds_exactly_are_still_equal():
    assert reward_metrics(scores(0.1, 0.1, 0.1), group_size=3)["reward/zero_std_frac"] == 1


def test_components_are_reported_when_there_are_several():
    two = [Score(1.5, True, {"right": 1.0, "short": 0.5}), Score(0.0, False, {"right": 0.0, "short": 0.0})]
    metrics = reward_metrics(two, group_size=2)
    assert (metrics["reward/right/mean"], metrics["reward/short/mean"]) == (0.5, 0.25)


def test_a_nan_reward_is_reported_as_nan():
    metrics = reward_metrics(scores(math.nan, 1.0), group_size=2)
    assert math.isnan(metrics["reward/mean"]) and math.isnan(metrics["reward/std_group"])
    assert metrics["reward/zero_std_frac"] == 0


def test_repetition_by_hand():
    ids_BT = torch.tensor([[1, 1, 1, 1, 1], [1, 2, 1, 2, 9], [1, 2, 3, 9, 9], [5, 9, 9, 9, 9]])
    mask_BT = torch.arange(5)[None] < torch.tensor([5, 4, 3, 1])[:, None]
    # 4 bigrams, 1 distinct: 3/4;  12 21 12: 1/3;  12 23: 0;  too short: 0
    assert repetition(ids_BT, mask_BT) == pytest.approx((3 / 4 + 1 / 3) / 4)
    assert repetition(ids_BT[:, :1], mask_BT[:, :1]) == 0


def test_distinct_by_hand():
    # (a, a): 1 of 2;  (a, b): 2 of 2
    assert distinct(["a", "a", "a", "b"], 2) == 0.75
