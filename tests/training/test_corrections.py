import math

import pytest
import torch

from stabilizer.training.corrections import mismatch_weights, off_policy_mask

KINDS = ("none", "tis_token", "tis_sequence", "mask_token", "mask_sequence", "mask_geometric")

# Ratios trainer / engine. Products: 4 * 0.5 = 2;  1.5 * 0.25 * 1 = 0.375;  2.9 * 2 = 5.8 (the rest is masked).
RATIOS = [[4.0, 0.5, 7.0], [1.5, 0.25, 1.0], [2.9, 2.0, 9.0]]
MASK = torch.tensor([[True, True, False], [True] * 3, [True, True, False]])


def weights(kind, cap, ratios=RATIOS, mask=MASK):
    log_ratio = torch.tensor(ratios, dtype=torch.float64).log()
    return mismatch_weights(kind, log_ratio - 1, torch.full_like(log_ratio, -1.0), mask, cap)


@pytest.mark.parametrize(
    ("kind", "cap", "expected", "masked"),
    [
        ("none", 2.0, [[1, 1], [1, 1, 1], [1, 1]], 0),
        ("tis_token", 2.0, [[2, 0.5], [1.5, 0.25, 1], [2, 2]], 0),
        ("tis_sequence", 5.0, [[2, 2], [0.375] * 3, [5, 5]], 0),
        # band [1/3, 3]: 4 and 0.25 are out, 2.9 is in
        ("mask_token", 3.0, [[0, 0.5], [1.5, 0, 1], [2.9, 2]], 2 / 7),
        # 5.8 is over 5; 0.375 is small, and stays
        ("mask_sequence", 5.0, [[2, 2], [0.375] * 3, [0, 0]], 2 / 7),
        # means sqrt(2) = 1.41;  0.375^(1/3) = 0.72 = 1 / 1.39;  sqrt(5.8) = 2.41; the band is [1/1.4, 1.4]
        ("mask_geometric", 1.4, [[0, 0], [1, 1, 1], [0, 0]], 4 / 7),
    ],
)
def test_each_kind_by_hand(kind, cap, expected, masked):
    weight_BT, metrics = weights(kind, cap)
    for row, mask_row, wanted in zip(weight_BT, MASK, expected, strict=True):
        assert row[mask_row].tolist() == pytest.approx(wanted, rel=1e-12)
    assert metrics["policy/mismatch_masked_frac"].item() == pytest.approx(masked)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_measured_does_not_depend_on_the_correction(kind):
    # ratios 2 and 1 (50 is masked): k3 = 2 - 1 - ln 2 and 0;  k1 = -ln 2 and 0
    _, metrics = weights(kind, 3.0, [[2.0, 1.0, 50.0]], torch.tensor([[True, True, False]]))
    assert metrics["policy/mismatch_kl"].item() == pytest.approx((1 - math.log(2)) / 2)
    assert metrics["policy/mismatch_k1"].item() == pytest.approx(-math.log(2) / 2)
    assert metrics["policy/mismatch_ratio_max"].item() == pytest.approx(2)


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_that_agrees_is_not_corrected(kind):
    weight_BT, metrics = weights(kind, 2.0, [[1.0, 1.0]], torch.tensor([[True, True]]))
    assert weight_BT.tolist() == [[1, 1]]
    assert metrics["policy/mismatch_kl"] == 0 and metrics["policy/mismatch_masked_frac"] == 0


def test_untruncated_weights_are_without_bias():
    # E_q[w f] = E_p[f] for any f, summed over all outcomes
    p, q, f = (torch.tensor([row], dtype=torch.float64) for row in ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [3, -1, 7]))
    weight_BT, metrics = mismatch_weights("tis_token", p.log(), q.log(), torch.ones(1, 3).bool(), 100.0)
    assert (q * weight_BT * f).sum().item() == pytest.approx((p * f).sum().item(), rel=1e-12)


def test_k1_and_k3_estimate_the_same_divergence_of_the_engine_from_the_trainer():
    p, q = (torch.tensor(row, dtype=torch.float64) for row in ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]))
    exact = (q * (q / p).log()).sum().item()
    for name in ("policy/mismatch_kl", "policy/mismatch_k1"):
        estimates = [
            mismatch_weights("none", p[i].log().view(1, 1), q[i].log().view(1, 1), torch.ones(1, 1).bool(), 2.0)[1][
                name
            ]
            for i in range(3)
        ]
        assert sum(q[i].item() * estimates[i].item() for i in range(3)) == pytest.approx(exact, rel=1e-12), name


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_nan_is_neither_capped_nor_masked_away(kind):
    weight_BT, metrics = weights(kind, 2.0, [[math.nan, 1.0, 1.0]], torch.tensor([[True] * 3]))
    assert weight_BT[0, 0].isnan() and metrics["policy/mismatch_kl"].isnan()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_masked_positions_never_matter(kind, poison):
    clean, poisoned = (weights(kind, 2.0, [[1.5, 1.2, x]], torch.tensor([[True, True, False]])) for x in (1.0, poison))
    assert torch.equal(clean[0][:, :2], poisoned[0][:, :2]) and clean[1] == poisoned[1]


def test_weights_carry_no_gradient():
    logp = torch.zeros(1, 2, requires_grad=True)
    assert not mismatch_weights("tis_token", logp, torch.zeros(1, 2), torch.ones(1, 2).bool(), 2.0)[0].requires_grad


def test_an_unknown_kind_is_named_with_its_alternatives():
    with pytest.raises(ValueError, match="'tis'.*tis_token"):
        weights("tis", 2.0)


def test_only_bad_completions_that_became_unlikely_are_dropped():
    # mean of old - new over tokens: (1 + 0) / 2 = 0.5 > 0.4 in rows 0 and 1;  (0.7 + 0) / 2 = 0.35;  -0.5
    drift = torch.tensor([[1.0, 0.0, 9.0], [1.0, 0.0, 9.0], [0.7, 0.0, 9.0], [-1.0, 0.0, 9.0]])
    mask = torch.tensor([[True, True, False]] * 4)
    logp = torch.full_like(drift, -3.0)
    keep_B, metrics = off_policy_mask(torch.tensor([-1.0, 1.0, -1.0, -1.0]), logp, logp + drift, mask, 0.4)
    assert keep_B.tolist() == [False, True, True, True]
    assert metrics["policy/off_policy_masked_frac"] == 0.25


def test_off_policy_mask_keeps_a_nan_in_sight_and_ignores_padding():
    mask = torch.tensor([[True, False], [True, False]])
    old = torch.tensor([[math.nan, 0.0], [0.0, math.inf]])
    keep_B, _ = off_policy_mask(torch.tensor([-1.0, -1.0]), torch.zeros(2, 2), old, mask, 0.1)
    assert keep_B.tolist() == [True, True]
