"""What changed: true moves are named with their sizes and steps, and noise is not."""

import numpy as np
import pytest

from stabilizer.analysis.changes import changes, largest
from stabilizer.runs.history import History


def view(**series):
    history = History({"run": "made"})
    names = {name.replace("__", "/"): values for name, values in series.items()}
    for row in range(max(map(len, names.values()))):
        history.append(row + 1, {name: float(values[row]) for name, values in names.items() if row < len(values)})
    return history.view()


def noise(rows, seed, rho=0.0):
    draw = np.random.default_rng(seed).normal(size=rows)
    for row in range(1, rows):
        draw[row] += rho * draw[row - 1]
    return draw


def test_a_step_is_found_with_its_levels_and_steps():
    values = 1.0 + 0.05 * noise(100, 0)
    values[60:] += 1.0
    change = largest(view(policy__entropy=values), "policy/entropy")
    assert change.before == pytest.approx(1.0, abs=0.1) and change.after == pytest.approx(2.0, abs=0.1)
    assert 50 <= change.from_step <= 62 and 60 <= change.to_step <= 70


def test_a_ramp_is_said_with_what_the_reward_did():
    rows = 80
    length = np.concatenate([np.full(20, 410.0), np.linspace(410, 930, 50), np.full(10, 930.0)]) + 5 * noise(rows, 1)
    reward = 0.4 + 0.02 * noise(rows, 2)
    (change,) = changes(view(rollout__length_mean=length, reward__mean=reward))
    assert change.words.startswith("length of answers rose from 4") and "tokens (×2.3)" in change.words
    assert change.words.endswith("; reward unchanged")


def test_a_move_over_decades_begins_where_it_leaves_its_level_and_not_at_the_lowest_row():
    values = np.concatenate([np.linspace(0.005, 0.03, 100), np.full(300, 0.03), 0.03 * 1.03 ** np.arange(200)])
    values *= np.exp(0.02 * noise(600, 3))
    change = largest(view(policy__kl_ref=values), "policy/kl_ref")
    assert change.before == pytest.approx(0.03, rel=0.2) and 370 <= change.from_step <= 450 and change.to_step > 550


def test_of_a_handful_of_rows_the_reward_is_never_called_unchanged():
    said = changes(
        view(policy__entropy=np.array([0.2, 0.2, 0.3, 0.5, 0.9]), reward__mean=np.array([0.4, 0.4, 0.37, 0.3, 0.17]))
    )
    (entropy,) = [change.words for change in said if change.metric == "policy/entropy"]
    assert entropy.endswith("; reward 0.4 → 0.17")


def test_a_large_move_of_a_noisy_reward_is_said_as_noise():
    reward = 0.5 + 0.5 * noise(60, 7)
    said = changes(view(policy__entropy=np.linspace(0.2, 0.9, 60), reward__mean=np.abs(reward)))
    (entropy,) = [change.words for change in said if change.metric == "policy/entropy"]
    assert entropy.endswith(("within its noise", "reward unchanged"))


def test_a_rise_that_is_lost_again_is_still_named():
    values = np.concatenate([np.linspace(0.1, 0.7, 50), np.linspace(0.7, 0.2, 50)]) + 0.01 * noise(100, 3)
    change = largest(view(reward__mean=values), "reward/mean")
    assert change is not None and abs(change.after - change.before) > 0.45


def test_a_jump_within_three_rows_is_not_taken_for_correlated_noise():
    named = 0
    for seed in range(20):
        values = 0.85 + 0.05 * noise(90, seed)
        values[40:] -= np.concatenate([[0.25, 0.5], np.full(48, 0.75)])
        change = largest(view(reward__mean=values), "reward/mean")
        named += change is not None and change.after - change.before < -0.6
    assert named >= 18


def test_a_move_that_was_undone_says_so():
    values = 0.1 + 0.01 * noise(120, 9)
    values[40:70] += 0.5
    (change,) = changes(view(policy__clip_frac=values))
    assert change.later == (pytest.approx(0.1, abs=0.02), pytest.approx(75, abs=5))
    assert ", and was back at 0.0" in change.words or ", and was back at 0.1" in change.words


def test_a_reward_that_rose_before_it_fell_is_told_as_both():
    values = np.concatenate([np.linspace(0.3, 0.8, 40), np.linspace(0.8, 0.1, 10), np.full(40, 0.1)])
    (change,) = changes(view(reward__mean=values + 0.01 * noise(90, 10)))
    assert change.words.startswith("reward rose from 0.3") and ", then fell from 0.7" in change.words


def test_a_lasting_move_is_not_called_undone():
    (change,) = changes(view(reward__mean=np.linspace(0.2, 0.8, 100) + 0.02 * noise(100, 11)))
    assert "back" not in change.words and "then" not in change.words


@pytest.mark.parametrize("rho", [0.0, 0.6])
@pytest.mark.parametrize("rows", [20, 100, 500])
def test_noise_is_no_change(rows, rho):
    moved = [largest(view(x__y=10 + noise(rows, seed, rho)), "x/y") is not None for seed in range(60)]
    assert np.mean(moved) <= (0.02 if rho == 0 else 0.06)


def test_one_spike_is_no_change():
    values = 1.0 + 0.01 * noise(100, 4)
    values[50] = 30.0
    assert largest(view(optim__grad_norm=values), "optim/grad_norm") is None


def test_a_constant_and_a_schedule_are_not_named():
    assert changes(view(optim__lr=np.linspace(1e-6, 1e-7, 50), reward__mean=np.full(50, 0.5))) == []


def test_a_clock_of_any_name_is_no_change_and_a_metric_that_only_rises_is():
    seconds = np.cumsum(6 + np.random.default_rng(0).random(60))
    assert changes(view(seconds_so_far=seconds, reward__mean=np.full(60, 0.5))) == []
    assert largest(view(policy__kl_ref=0.001 * seconds), "policy/kl_ref") is not None


def test_three_rows_are_enough_for_a_jump():
    assert largest(view(policy__kl_ref=[0.001, 0.001, 3.0]), "policy/kl_ref") is not None


@pytest.mark.parametrize("rows", [3, 5, 7])
def test_noise_of_a_few_rows_is_no_change(rows):
    moved = [largest(view(x__y=np.exp(0.3 * noise(rows, seed))), "x/y") is not None for seed in range(200)]
    assert np.mean(moved) <= 0.02


def test_the_last_digit_of_a_few_rows_is_no_change():
    assert changes(view(policy__kl_ref=[0.0001, 0.0002, 0.0002], policy__loss=[-0.0001, 0.0002, 0.0001])) == []


def test_a_few_rows_do_not_prove_that_the_reward_is_unchanged():
    shown = view(reward__mean=[0.12, 0.19, 0.23, 0.05, 0.01], policy__kl_ref=[0.0012, 0.0034, 0.0121, 0.41, 1.93])
    assert {change.metric for change in changes(shown)} == {"reward/mean", "policy/kl_ref"}
    assert not any("unchanged" in change.words for change in changes(shown))


def test_a_long_run_costs_little():
    import time

    rise = np.linspace(0, 1, 20_000)
    shown = view(reward__mean=rise + 0.01 * noise(20_000, 5), rollout__length_mean=1000 + 3000 * rise)
    began = time.process_time()
    assert [change.metric for change in changes(shown)] == ["reward/mean", "rollout/length_mean"]
    assert time.process_time() - began < 1.0


def test_large_numbers_are_written_out():
    found = changes(view(rollout__length_mean=np.linspace(1020, 12_340, 60)))
    assert "rose from 1,310 to 12,100 tokens" in found[0].words


def test_second_statistics_of_one_quantity_are_named_once():
    grown = np.linspace(100, 400, 60)
    found = changes(view(rollout__length_mean=grown, rollout__length_max=2 * grown, rollout__length_p90=1.5 * grown))
    assert [change.metric for change in found] == ["rollout/length_mean"]


def of_two_kinds(shares, seed=0):
    """Spreads of one group a row: 0 in these shares of the rows."""
    chance = np.random.default_rng(seed).random(len(shares))
    return np.where(chance < shares, 0.0, 0.78 + 0.1 * noise(len(shares), seed))


@pytest.mark.parametrize("silent", [0.4, 0.6])
def test_rows_of_two_kinds_have_not_changed_while_their_shares_stay(silent):
    """Medians moved in 16 and 15 of 20 such series."""
    for seed in range(20):
        assert largest(view(reward__std_group=of_two_kinds(np.full(300, silent), seed)), "reward/std_group") is None


def test_rows_of_two_kinds_have_changed_once_their_shares_have():
    change = largest(view(reward__std_group=of_two_kinds(np.linspace(0.1, 0.9, 2400))), "reward/std_group")
    assert change is not None and change.before > 0.55 and change.after < 0.2
