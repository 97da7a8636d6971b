import math

import pytest
import torch

from stabilizer.trainer.advantages import center_error, group_advantages


def test_group_mean_only_centres():
    # mean of (1, 0, 0, 0) is 1/4; mean of (2, 4, 6, 8) is 5
    reward_GN = torch.tensor([[1.0, 0, 0, 0], [2, 4, 6, 8]])
    expected = [[0.75, -0.25, -0.25, -0.25], [-3, -1, 1, 3]]
    assert group_advantages(reward_GN, "group_mean").tolist() == expected


def test_group_std_divides_by_the_deviation_of_the_group():
    # (1, 0, 0, 0): squares (9 + 1 + 1 + 1) / 16 = 0.75, over n - 1 = 3 gives 0.25, whose root is 0.5
    advantage_GN = group_advantages(torch.tensor([[1.0, 0, 0, 0]]), "group_std")
    expected = [0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001]
    assert advantage_GN[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_a_group_that_agrees_teaches_nothing():
    assert group_advantages(torch.full((2, 8), 0.1), "group_std").abs().max() == 0


def test_a_group_that_all_but_agrees_is_not_blown_up():
    # deviation of (1e-6, 0): 7e-7, far under the floor of 1e-4, so the advantage is about 5e-7 / 1e-4
    advantage_GN = group_advantages(torch.tensor([[1e-6, 0.0]]), "group_std")
    assert advantage_GN.abs().max() < 0.01


def test_groups_do_not_see_each_other():
    reward_GN = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    alone = group_advantages(reward_GN[1:2], "group_std")
    # up to the last bit: a row of a matrix may be summed in another order than a row alone
    assert torch.allclose(group_advantages(reward_GN, "group_std")[1:2], alone, rtol=1e-12)


@pytest.mark.parametrize("baseline", ["group_std", "group_mean"])
def test_advantages_are_centred_per_group(baseline):
    reward_GN = torch.rand(16, 8, generator=torch.Generator().manual_seed(0)) * 100
    assert center_error(group_advantages(reward_GN, baseline)) < 1e-12


def test_center_error_is_the_largest_of_any_group():
    # means (0 + 0.5) / 2 = 0.25 and (-2 + 1) / 2 = -0.5
    assert center_error(torch.tensor([[0.0, 0.5], [-2.0, 1.0]])) == 0.5


def test_a_nan_reward_stays_visible():
    advantage_GN = group_advantages(torch.tensor([[math.nan, 1.0], [0.0, 1.0]]), "group_mean")
    assert advantage_GN[0].isnan().all() and advantage_GN[1].isfinite().all()
