import math

import pytest
import torch

from stabilizer.training.advantages import (
    CENTRED_PER_GROUP,
    center_error,
    clip_advantages,
    overlong_penalty,
    per_reward_advantages,
    sequence_advantages,
    silent_groups,
    zero_variance,
)

KINDS = ("group_std", "group_mean", "batch_std", "leave_one_out", "batch_whiten", "none")

# Group means 0.25 and 5; batch mean 21 / 8 = 2.625.
REWARDS = [[1.0, 0, 0, 0], [2, 4, 6, 8]]
# Squares from 2.625: 1.625^2 + 3 * 2.625^2 + 0.625^2 + 1.375^2 + 3.375^2 + 5.375^2
#   = 2.640625 + 20.671875 + 0.390625 + 1.890625 + 11.390625 + 28.890625 = 65.875;  / 7
BATCH_STD = math.sqrt(65.875 / 7)


def advantages(kind, rewards=REWARDS, valid=None):
    valid = None if valid is None else torch.tensor(valid)
    return sequence_advantages(kind, torch.tensor(rewards), valid).tolist()


def approx(rows):
    return [pytest.approx(row, rel=1e-9, abs=1e-12) for row in rows]


def test_group_mean_only_centres():
    assert advantages("group_mean") == [[0.75, -0.25, -0.25, -0.25], [-3, -1, 1, 3]]


def test_group_std_divides_by_the_deviation_of_the_group():
    # (1, 0, 0, 0): squares (9 + 1 + 1 + 1) / 16 = 0.75, over n - 1 = 3 gives 0.25, whose root is 0.5
    # (2, 4, 6, 8): squares 9 + 1 + 1 + 9 = 20, over 3, root 2.5820
    second = math.sqrt(20 / 3) + 1e-4
    expected = [[a / 0.5001 for a in (0.75, -0.25, -0.25, -0.25)], [a / second for a in (-3, -1, 1, 3)]]
    assert advantages("group_std") == approx(expected)


def test_batch_std_centres_by_group_and_divides_by_the_deviation_of_all_rewards():
    scale = BATCH_STD + 1e-4
    expected = [[a / scale for a in (0.75, -0.25, -0.25, -0.25)], [a / scale for a in (-3, -1, 1, 3)]]
    assert advantages("batch_std") == approx(expected)


def test_leave_one_out_compares_with_the_mean_of_the_others():
    # 1 - 0 = 1;  0 - 1/3;   2 - (4 + 6 + 8) / 3 = -4;  4 - 16/3;  6 - 14/3;  8 - 4 = 4
    third = 1 / 3
    assert advantages("leave_one_out") == approx([[1, -third, -third, -third], [-4, -4 * third, 4 * third, 4]])


def test_batch_whiten_knows_no_groups():
    expected = [[(r - 2.625) / (BATCH_STD + 1e-4) for r in row] for row in REWARDS]
    assert advantages("batch_whiten") == approx(expected)


def test_none_is_the_reward():
    assert advantages("none") == REWARDS


VALID = [[True, True, False, False], [True, False, True, True], [False, True, False, False]]
HOLES = [[3.0, 1.0, math.nan, 7.0], [2.0, math.inf, 4.0, 9.0], [5.0, 8.0, 5.0, 5.0]]
# Valid: (3, 1) mean 2;  (2, 4, 9) mean 5;  (8) alone. All six: mean 27 / 6 = 4.5,
# squares 2.25 + 12.25 + 6.25 + 0.25 + 20.25 + 12.25 = 53.5, over 5, root 3.2711
HOLES_STD = math.sqrt(53.5 / 5) + 1e-4


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("group_mean", [[1, -1, 0, 0], [-3, 0, -1, 4], [0, 0, 0, 0]]),
        # deviations: sqrt(2 / 1) and sqrt((9 + 1 + 16) / 2) = sqrt(13)
        (
            "group_std",
            [
                [1 / (math.sqrt(2) + 1e-4), -1 / (math.sqrt(2) + 1e-4), 0, 0],
                [-3 / (math.sqrt(13) + 1e-4), 0, -1 / (math.sqrt(13) + 1e-4), 4 / (math.sqrt(13) + 1e-4)],
                [0, 0, 0, 0],
            ],
        ),
        (
            "batch_std",
            [
                [1 / HOLES_STD, -1 / HOLES_STD, 0, 0],
                [-3 / HOLES_STD, 0, -1 / HOLES_STD, 4 / HOLES_STD],
                [0, 0, 0, 0],
            ],
        ),
        # 3 - 1, 1 - 3;  2 - 13/2, 4 - 11/2, 9 - 3
        ("leave_one_out", [[2, -2, 0, 0], [-4.5, 0, -1.5, 6], [0, 0, 0, 0]]),
        (
            "batch_whiten",
            [
                [-1.5 / HOLES_STD, -3.5 / HOLES_STD, 0, 0],
                [-2.5 / HOLES_STD, 0, -0.5 / HOLES_STD, 4.5 / HOLES_STD],
                [0, 3.5 / HOLES_STD, 0, 0],
            ],
        ),
        ("none", [[3, 1, 0, 0], [2, 0, 4, 9], [0, 8, 0, 0]]),
    ],
)
def test_a_failed_reward_takes_part_in_nothing(kind, expected):
    assert advantages(kind, HOLES, VALID) == approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_all_valid_is_the_same_as_not_saying_so(kind):
    assert advantages(kind, valid=[[True] * 4] * 2) == advantages(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_no_valid_reward_at_all_gives_zeros(kind):
    assert advantages(kind, [[math.nan, 1.0]], [[False, False]]) == [[0, 0]]


@pytest.mark.parametrize("kind", KINDS)
def test_float32_rewards_are_worked_on_in_float64(kind):
    assert sequence_advantages(kind, torch.tensor(REWARDS)).dtype == torch.float64


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_rewards_that_agree_teach_nothing(kind):
    assert sequence_advantages(kind, torch.full((2, 8), 0.1)).abs().max() == 0


@pytest.mark.parametrize("kind", ["group_std", "batch_std", "batch_whiten"])
def test_rewards_that_all_but_agree_are_not_blown_up(kind):
    # deviation of (1e-6, 0): 7e-7, far under the floor of 1e-4, so the advantage is about 5e-7 / 1e-4
    assert sequence_advantages(kind, torch.tensor([[1e-6, 0.0]])).abs().max() < 0.01


@pytest.mark.parametrize("kind", ["group_std", "group_mean", "leave_one_out"])
def test_groups_do_not_see_each_other(kind):
    # up to the last bit: a row of a matrix may be summed in another order than a row alone
    assert [advantages(kind)[1]] == approx(advantages(kind, REWARDS[1:]))


@pytest.mark.parametrize("kind", KINDS)
def test_center_error_holds_exactly_for_the_kinds_that_centre_per_group(kind):
    reward_GN = torch.rand(16, 8, generator=torch.Generator().manual_seed(0)) * 100
    assert (center_error(sequence_advantages(kind, reward_GN)) < 1e-12) == (kind in CENTRED_PER_GROUP)


def test_center_error_is_the_largest_of_any_group():
    # means (0 + 0.5) / 2 = 0.25 and (-2 + 1) / 2 = -0.5
    assert center_error(torch.tensor([[0.0, 0.5], [-2.0, 1.0]])) == 0.5


def test_center_error_leaves_out_what_is_not_valid():
    # (1 + 2) / 2 = 1.5 over the valid two; the second group has none
    advantage_GN = torch.tensor([[1.0, 2.0, math.nan], [9.0, 9.0, 9.0]])
    assert center_error(advantage_GN, torch.tensor([[True, True, False], [False] * 3])) == 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_nan_reward_stays_visible(kind):
    advantage_GN = sequence_advantages(kind, torch.tensor([[math.nan, 1.0], [0.0, 1.0]]))
    assert advantage_GN[0, 0].isnan()
    if kind in ("group_std", "group_mean", "leave_one_out"):
        assert advantage_GN[0].isnan().all() and advantage_GN[1].isfinite().all()


def test_zero_variance_is_of_the_valid_rewards():
    reward_GN = torch.tensor([[0.1, 0.1, 0.1], [0.1, 0.1, 0.2], [0.0, 1.0, 1.0], [0.0, 1.0, 2.0], [math.nan, 0, 0]])
    assert zero_variance(reward_GN).tolist() == [True, False, False, False, False]
    # with holes: none at all; different; (1, 1) agree; one alone can't differ; a NaN that failed does not count
    valid_GN = torch.tensor([[False] * 3, [True] * 3, [False, True, True], [True, False, False], [False, True, True]])
    assert zero_variance(reward_GN, valid_GN).tolist() == [True, False, True, True, True]


def test_zero_variance_groups_are_those_with_advantage_0():
    generator = torch.Generator().manual_seed(1)
    reward_GN = torch.randint(0, 2, (200, 3), generator=generator).float()
    valid_GN = torch.rand(200, 3, generator=generator) < 0.7
    silent_G = (sequence_advantages("group_mean", reward_GN, valid_GN) == 0).all(1)
    assert zero_variance(reward_GN, valid_GN).tolist() == silent_G.tolist()


def test_clipping_advantages_holds_both_ends_and_shows_nan():
    clipped = clip_advantages(torch.tensor([-7.0, -1.0, 2.0, 9.0, math.nan]), 2.0)
    assert clipped[:4].tolist() == [-2, -1, 2, 2] and clipped[4].isnan()


def test_overlong_penalty_falls_in_a_line_over_the_buffer():
    # max 20, buffer 4: free up to 16; 17: -1/4; 19: -3/4; 20 (cut off): -1; times factor 2
    penalty = overlong_penalty(torch.tensor([1, 16, 17, 19, 20, 25]), 20, 4, 2.0)
    assert penalty.tolist() == [0, 0, -0.5, -1.5, -2, -2]


@pytest.mark.parametrize("buffer", [0, 21])
def test_overlong_buffer_must_fit_the_completion(buffer):
    with pytest.raises(ValueError, match=f"buffer of {buffer} tokens with max_completion=20"):
        overlong_penalty(torch.tensor([1]), 20, buffer, 1.0)


def test_an_unknown_kind_is_named_with_its_alternatives():
    with pytest.raises(ValueError, match="'median'.*leave_one_out"):
        sequence_advantages("median", torch.zeros(1, 2))


def test_groups_that_differ_by_next_to_nothing_beside_the_others_are_silent():
    reward_GN = torch.tensor([[0.0, 1.0, 1.0], [0.5, 0.5005, 0.5002], [1.0, 1.0, 1.0], [float("nan"), 0.0, 1.0]])
    assert silent_groups(reward_GN).tolist() == [False, True, True, False]
    assert silent_groups(0.001 * reward_GN[:1]).tolist() == [False], "a small unit is no small difference"
    valid_GN = torch.tensor([[True] * 3, [True] * 3, [False] * 3, [False, True, True]])
    assert silent_groups(reward_GN, valid_GN).tolist() == [False, True, True, False]


# --- several rewards --------------------------------------------------------------------------------------------------


def slow_per_reward(terms, valid):
    """The definition, one number at a time."""

    def standardised(pairs):
        known = [value for value, counts in pairs if counts]
        mean = sum(known) / max(len(known), 1)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / max(len(known) - 1, 1))
        return [(value - mean) / (deviation + 1e-4) if counts else 0.0 for value, counts in pairs]

    sums = [[0.0] * len(row) for row in valid]
    for values, weight, applies in terms:
        for g, row in enumerate(values):
            counts = [a and v for a, v in zip(applies[g], valid[g], strict=True)]
            for n, part in enumerate(standardised(list(zip(row, counts, strict=True)))):
                sums[g][n] += weight * part
    flat = standardised(
        [(s, v) for row, known in zip(sums, valid, strict=True) for s, v in zip(row, known, strict=True)]
    )
    return [flat[g * len(valid[0]) : (g + 1) * len(valid[0])] for g in range(len(valid))]


def test_several_rewards_equal_the_slow_version():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        terms = [
            (torch.randn(3, 4, generator=generator) * scale, weight, torch.rand(3, 4, generator=generator) < 0.8)
            for scale, weight in ((1, 1.0), (100, 0.5), (0.01, -2.0))
        ]
        valid = torch.rand(3, 4, generator=generator) < 0.8
        fast = per_reward_advantages(terms, valid).tolist()
        assert fast == approx(
            slow_per_reward([(v.double().tolist(), w, a.tolist()) for v, w, a in terms], valid.tolist())
        )


def test_a_reward_with_large_numbers_does_not_drown_the_others():
    # right (1 or 0) and length (hundreds): the sum ranks by length alone, each by itself gives both the same say
    right, length = torch.tensor([[1.0, 0, 1, 0]]), torch.tensor([[100.0, 300, 200, 400]])
    everywhere = torch.ones(1, 4, dtype=torch.bool)
    summed = sequence_advantages("group_std", right + length)[0]
    assert summed[1] > summed[0], "wrong and long beats right and short"
    separate = per_reward_advantages([(right, 1.0, everywhere), (length, 1.0, everywhere)], everywhere)[0]
    assert separate[2] > separate[1]
    # two groups: standardised in each, then once over the batch, so the deviation is 1 again
    assert separate.std().item() == pytest.approx(1, abs=1e-3)
