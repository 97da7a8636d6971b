from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stabilizer.training.data.order import epoch_order, held_out_hashes, prompt_hash, row_at

SIZES = st.integers(1, 500)
SEEDS = st.integers(0, 2**40)


@given(SIZES, SEEDS, st.integers(-1, 5), st.integers(0, 1000))
def test_an_epoch_visits_every_row_once(size, seed, salt, epoch):
    assert sorted(epoch_order(size, seed, salt, epoch)) == list(range(size))


@given(SIZES, SEEDS, st.integers(0, 2000))
def test_a_position_alone_says_which_row(size, seed, position):
    epoch = position // size
    assert row_at(position, size, seed, 0) == epoch_order(size, seed, 0, epoch)[position % size]


def test_seed_salt_and_epoch_each_change_the_order():
    first = epoch_order(100, 0, 0, 0)
    for other in (epoch_order(100, 1, 0, 0), epoch_order(100, 0, 1, 0), epoch_order(100, 0, 0, 1)):
        assert (first != other).mean() > 0.9


def test_the_order_is_fair():
    # 4,000 orders of 5 rows: each row stands first 800 times, give or take 5 x sqrt(800 x 0.8) = 126
    first = np.bincount([epoch_order(5, 0, 0, epoch)[0] for epoch in range(4000)], minlength=5)
    assert np.abs(first - 800).max() < 126


def test_the_order_stays_what_it_was_when_released():
    # Changing it would give a resumed run other problems than it would have seen.
    assert epoch_order(8, 0, 0, 0).tolist() == [1, 3, 0, 6, 4, 5, 2, 7]
    assert prompt_hash("question 1") == 15243322781211909909


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=200), st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_rows_added_later_move_nobody_out_of_a_share(old, new):
    chosen = set(held_out_hashes([*old, 0], 0.3))
    assert chosen <= set(held_out_hashes([*old, 0, *new], 0.3))


def test_a_share_a_count_and_nothing():
    hashes = [i * 2**60 for i in range(16)]  # 0, 1/16, 2/16, ... of the range
    assert held_out_hashes(hashes, 0.25) == hashes[:4]
    assert held_out_hashes(hashes, 3.0) == hashes[:3]
    assert held_out_hashes([*hashes, *hashes], 3) == hashes[:3], "a count is one of distinct prompts"
    assert held_out_hashes(hashes, 0) == []
    assert held_out_hashes([2**63], 0.01) == [2**63], "at least one"
