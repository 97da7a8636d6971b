import json
import math

import pytest

from stabilizer.training.adaptive import AdaptiveClip, AdaptiveKL, TargetEntropy

NOT_NUMBERS = (math.nan, math.inf, -math.inf)

# --- KL ---------------------------------------------------------------------------------------------------------------


def test_kl_controller_by_hand():
    # horizon 10, target 0.1.  kl 0.11: error 0.1, beta * 1.01;  kl 0.5: error 4, clipped to 0.2, beta * 1.02
    # kl 0.095: error -0.05, beta * 0.995;  kl -1: clipped to -0.2, beta * 0.98
    control = AdaptiveKL(target=0.1, horizon=10)
    for kl, factor in ((0.11, 1.01), (0.5, 1.02), (0.095, 0.995), (-1.0, 0.98)):
        assert control.step(0.04, kl) == (pytest.approx(0.04 * factor), pytest.approx(0.04 * factor))


def test_kl_on_target_is_a_fixed_point():
    assert AdaptiveKL(target=0.1).step(0.04, 0.1) == (0.04, 0.04)


def test_beta_stays_within_its_bounds():
    control = AdaptiveKL(target=0.1, horizon=1, low=0.01, high=0.05)
    beta = 0.03
    for _ in range(20):
        beta, _ = control.step(beta, 9.0)
    assert beta == 0.05
    for _ in range(20):
        beta, _ = control.step(beta, 0.0)
    assert beta == 0.01


def test_kl_controller_finds_the_beta_that_holds_the_target():
    # a policy whose KL is 0.002 / beta holds 0.1 at beta 0.02
    control, beta = AdaptiveKL(target=0.1, horizon=5), 0.5
    for _ in range(400):
        beta, _ = control.step(beta, 0.002 / beta)
    assert beta == pytest.approx(0.02, rel=1e-3)


# --- entropy ----------------------------------------------------------------------------------------------------------


def test_entropy_coefficient_by_hand():
    control = TargetEntropy(target=1.0, delta=0.01, high=0.05)
    assert control.step(0.02, 0.5) == (pytest.approx(0.03), pytest.approx(0.03)), "too certain: raise"
    assert control.step(0.02, 1.5) == (pytest.approx(0.01), 0.0), "above the target: lower, and no bonus at all"
    assert control.step(0.02, 1.0) == (0.02, 0.02), "on target: leave alone"


def test_entropy_coefficient_stays_within_its_bounds():
    control = TargetEntropy(target=1.0, delta=0.04, low=0.01, high=0.05)
    assert control.step(0.03, 0.0) == (0.05, 0.05)
    assert control.step(0.03, 9.0) == (0.01, 0.01)


# --- gradient ---------------------------------------------------------------------------------------------------------


def test_clip_bound_by_hand():
    # median of (1, 2, 9) is 2, times 3; the ceiling is lower in the second case
    control = AdaptiveClip(factor=3, window=5, warmup=3)
    assert control.step((1.0, 2.0, 9.0), 4.0, ceiling=100.0) == ((1.0, 2.0, 9.0, 4.0), 6.0)
    assert control.step((1.0, 2.0, 9.0), 4.0, ceiling=5.0)[1] == 5.0


def test_a_spike_is_not_judged_by_itself_and_hardly_moves_the_bound():
    control = AdaptiveClip(factor=2, window=9, warmup=4)
    norms, bound = control.step((1.0,) * 4, 1000.0, ceiling=100.0)
    assert bound == 2.0
    assert control.step(norms, 1.0, ceiling=100.0)[1] == 2.0


def test_the_bound_follows_a_level_that_stays():
    control, norms = AdaptiveClip(factor=2, window=9, warmup=4), ()
    for norm in [1.0] * 20 + [3.0] * 9:
        norms, _ = control.step(norms, norm, ceiling=100.0)
    assert control.step(norms, 3.0, ceiling=100.0)[1] == 6.0


def test_only_the_ceiling_holds_during_the_warm_up():
    control, norms = AdaptiveClip(warmup=3), ()
    bounds = []
    for _ in range(5):
        norms, bound = control.step(norms, 0.1, ceiling=1.0)
        bounds.append(bound)
    assert bounds == [1.0, 1.0, 1.0, 0.2, 0.2]


def test_the_state_stays_small_and_keeps_the_newest():
    control, norms = AdaptiveClip(window=4), ()
    for norm in range(10):
        norms, _ = control.step(norms, float(norm), ceiling=1.0)
    assert norms == (6.0, 7.0, 8.0, 9.0)


# --- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measured", NOT_NUMBERS)
def test_a_measurement_that_is_no_number_changes_nothing(measured):
    assert AdaptiveKL(target=0.1).step(0.04, measured) == (0.04, 0.04)
    assert TargetEntropy(target=1.0).step(0.02, measured) == (0.02, 0.02)
    assert AdaptiveClip(warmup=1).step((1.0, 1.0), measured, ceiling=9.0) == ((1.0, 1.0), 2.0)


def test_states_survive_a_checkpoint():
    state, _ = AdaptiveClip().step((0.1, 0.2), 0.30000000000000004, ceiling=1.0)
    restored = json.loads(json.dumps(state))
    assert AdaptiveClip(warmup=3).step(tuple(restored), 1.0, 1.0) == AdaptiveClip(warmup=3).step(state, 1.0, 1.0)
