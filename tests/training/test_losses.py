"""Losses against worked numbers, and values and gradients against a slow, obvious version that goes token by token."""

import itertools
import math

import pytest
import torch

from stabilizer.training.losses import average_tokens, denominator, masked_mean, policy_loss

PLAIN = {"surrogate": "clip", "ratio": "token", "average": "token", "epsilon_low": 0.2, "epsilon_high": 0.28}


def loss_of(ratios, advantage, mask=None, logp=None, **options):
    """Loss and metrics for given ratios new/old, one advantage per row; `logp` is 0 unless it matters."""
    log_ratio_BT = torch.tensor(ratios, dtype=torch.float64).log()
    logp_BT = torch.zeros_like(log_ratio_BT) if logp is None else torch.tensor(logp, dtype=torch.float64)
    mask_BT = torch.ones_like(logp_BT, dtype=torch.bool) if mask is None else torch.tensor(mask)
    if "weight" in options:
        options["weight_BT"] = torch.tensor(options.pop("weight"), dtype=torch.float64)
    advantage_B1 = torch.tensor(advantage, dtype=torch.float64)[:, None]
    return policy_loss(logp_BT, logp_BT - log_ratio_BT, advantage_B1, mask_BT, **(PLAIN | options))


def approx(value):
    return pytest.approx(value, rel=1e-9)


# --- averages ---------------------------------------------------------------------------------------------------------

VALUES = torch.tensor([[1.0, 2, 3], [10, 99, 99], [99, 99, 99]])
MASK = torch.tensor([[True] * 3, [True, False, False], [False] * 3])


@pytest.mark.parametrize(
    ("average", "expected"),
    [
        ("token", 4.0),  # (1 + 2 + 3 + 10) / 4 tokens
        ("sequence", 6.0),  # (2 + 10) / 2: a completion without tokens is none
        ("constant", 16 / 15),  # 16 / (3 rows x 5)
    ],
)
def test_each_average_by_hand(average, expected):
    assert average_tokens(VALUES, MASK, average, max_completion=5).item() == pytest.approx(expected)


def test_masked_mean_is_over_tokens_not_over_completions():
    assert masked_mean(VALUES, MASK) == 4.0


def test_a_gap_in_the_mask_is_no_token():
    # (1 + 3) / 2; as completions ((1 + 3) / 2 + 10) / 2
    mask = torch.tensor([[True, False, True], [True, False, False]])
    assert average_tokens(VALUES[:2], mask & torch.tensor([[True], [False]]), "token") == 2.0
    assert average_tokens(VALUES[:2], mask, "sequence") == 6.0


@pytest.mark.parametrize("average", ["token", "sequence", "constant"])
def test_a_nan_behind_the_mask_does_not_count_and_one_before_it_does(average):
    value_BT = torch.tensor([[1.0, math.nan]])
    assert average_tokens(value_BT, torch.tensor([[True, False]]), average, 1) == 1.0
    assert average_tokens(value_BT, torch.tensor([[True, True]]), average, 1).isnan()


def test_without_tokens_a_loss_is_0_and_a_mean_is_unknown():
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    for average in ("token", "sequence", "constant"):
        assert average_tokens(torch.ones(2, 3), nothing, average, 3) == 0
    assert masked_mean(torch.ones(2, 3), nothing).isnan()


def test_an_unknown_average_is_named_with_its_alternatives():
    with pytest.raises(ValueError, match="'mean'.*token, sequence, constant"):
        average_tokens(VALUES, MASK, "mean")


@pytest.mark.parametrize("average", ["token", "sequence", "constant"])
@pytest.mark.parametrize("surrogate", ["clip", "cispo", "sapo", "geometric", "reinforce"])
def test_microbatches_add_up_to_the_minibatch_however_it_is_cut(surrogate, average):
    logp, old, advantage, mask, _ = draw(3)
    options = PLAIN | {"surrogate": surrogate, "average": average, "max_completion": 9}

    def gradient(parts, normalizer):
        leaf = logp.clone().requires_grad_()
        total = 0
        for rows in parts:
            total += policy_loss(leaf[rows], old[rows], advantage[rows], mask[rows], normalizer=normalizer, **options)[
                0
            ]
        total.backward()
        return total.detach(), leaf.grad

    whole, whole_gradient = gradient([slice(None)], None)
    parts, parts_gradient = gradient([slice(0, 1), slice(1, 4), slice(4, 8)], denominator(mask, average, 9))
    assert torch.allclose(parts, whole, rtol=1e-12) and torch.allclose(parts_gradient, whole_gradient, rtol=1e-12)
    # and cutting without it does not add up, so the law above says something
    assert not torch.allclose(gradient([slice(0, 1), slice(1, 4), slice(4, 8)], None)[0], whole, rtol=1e-3)


# --- the clipped surrogate --------------------------------------------------------------------------------------------


def test_on_policy_loss_is_minus_the_mean_advantage():
    # all ratios 1: -(2 + 2 - 1 - 1) / 4 = -0.5
    loss, metrics = loss_of([[1.0, 1.0], [1.0, 1.0]], [2.0, -1.0])
    assert loss == -0.5 and metrics["policy/loss"] == -0.5
    for name in ("clip_frac", "clip_frac_low", "clip_frac_high", "kl_old"):
        assert metrics[f"policy/{name}"] == 0
    for name in ("ratio_max", "ratio_min", "ratio_p99", "ess"):
        assert metrics[f"policy/{name}"] == 1
    assert metrics["ratio_error"] == 0


def test_clipping_is_on_the_side_that_matters():
    # A = +1: min(1.5, 1.28) = 1.28 clipped;  min(0.5, 0.8) = 0.5 free
    # A = -1: min(-1.5, -1.28) = -1.5 free;   min(-0.5, -0.8) = -0.8 clipped
    # loss = -(1.28 + 0.5 - 1.5 - 0.8) / 4 = 0.13
    loss, metrics = loss_of([[1.5, 0.5], [1.5, 0.5]], [1.0, -1.0])
    assert loss.item() == approx(0.13)
    assert metrics["policy/clip_frac_high"] == 0.25 and metrics["policy/clip_frac_low"] == 0.25
    assert metrics["policy/clip_frac"] == 0.5


def test_the_two_clip_ranges_are_separate():
    # A = +1 at ratio 1.25 is inside 1.28; A = -1 at ratio 0.75 is outside 0.8: loss = -(1.25 - 0.8) / 2
    loss, metrics = loss_of([[1.25], [0.75]], [1.0, -1.0])
    assert loss.item() == approx(-0.225)
    assert metrics["policy/clip_frac_high"] == 0 and metrics["policy/clip_frac_low"] == 0.5


def test_one_ratio_for_a_whole_completion():
    # (4, 1) has geometric mean 2, clipped at 1.28 for A = 1; (0.5, 1, 2) has 1 and passes with A = -3.
    # Per completion: (-1.28 + 3) / 2 = 0.86;  per token: (2 * -1.28 + 3 * 3) / 5 = 1.288
    rows = [[4.0, 1.0, 9.0], [0.5, 1.0, 2.0]]
    mask = [[True, True, False], [True] * 3]
    loss, metrics = loss_of(rows, [1.0, -3.0], mask, ratio="sequence", average="sequence")
    assert loss.item() == approx(0.86)
    assert loss_of(rows, [1.0, -3.0], mask, ratio="sequence")[0].item() == approx(1.288)
    # the two tokens of the first completion, of five
    assert metrics["policy/clip_frac_high"].item() == pytest.approx(0.4) and metrics["policy/clip_frac_low"] == 0
    # sizes are of completions, 2 and 1; the distance per token is of tokens
    assert metrics["policy/ratio_max"].item() == approx(2) and metrics["policy/ratio_min"].item() == approx(1)
    assert metrics["policy/ess"].item() == approx(3**2 / (2 * (2**2 + 1)))
    assert metrics["ratio_error"].item() == approx(3)


def test_dual_clip_bounds_the_loss_of_bad_tokens_only():
    # A = -2 at ratio 10: loss 20 without, 3 * 2 = 6 with;  at ratio 2: 4;  A = +2 at 10: -1.28 * 2
    rows, advantage = [[10.0], [2.0], [10.0]], [-2.0, -2.0, 2.0]
    assert loss_of(rows, advantage)[0].item() == approx((20 + 4 - 2.56) / 3)
    loss, metrics = loss_of(rows, advantage, dual_clip=3.0)
    assert loss.item() == approx((6 + 4 - 2.56) / 3)
    assert metrics["policy/dual_clip_frac"].item() == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("surrogate", "bound"), [("cispo", 3.0), ("sapo", 3.0), ("geometric", 3.0), ("reinforce", 3.0), ("clip", 1.0)]
)
def test_a_dual_clip_that_could_not_work_is_refused(surrogate, bound):
    with pytest.raises(ValueError, match=f"dual_clip={bound:g} with surrogate='{surrogate}'"):
        loss_of([[1.0]], [1.0], surrogate=surrogate, dual_clip=bound)


# --- the others -------------------------------------------------------------------------------------------------------


def test_cispo_weighs_log_probabilities_with_the_clipped_ratio():
    # A logp clip(r): r = 1.5 -> 1.28;  r = 0.5 -> 0.8;  loss = -(1.28 * 2 * -3 + 0.8 * 2 * -1) / 2 = 4.64
    loss, metrics = loss_of([[1.5, 0.5]], [2.0], logp=[[-3.0, -1.0]], surrogate="cispo")
    assert loss.item() == approx(4.64)
    # clipped whatever the sign of the advantage
    assert metrics["policy/clip_frac_high"] == 0.5 and metrics["policy/clip_frac_low"] == 0.5


def test_cispo_keeps_the_gradient_of_clipped_tokens_where_ppo_drops_it():
    for surrogate, slope in (("cispo", -1.28), ("clip", 0.0)):
        logp = torch.tensor([[math.log(1.5)]], requires_grad=True)
        options = PLAIN | {"surrogate": surrogate}
        policy_loss(logp, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1).bool(), **options)[0].backward()
        assert logp.grad.item() == pytest.approx(slope)


def test_sapo_fades_the_gradient_on_both_sides_and_faster_where_answers_were_worse():
    # ratio 3: 4 sigmoid(1 x 2) = 3.523188 for A = 1;  4/2 sigmoid(2 x 2) = 1.964028 for A = -1, with gates (1, 2)
    rows = [[3.0], [3.0]]
    loss, metrics = loss_of(rows, [1.0, -1.0], surrogate="sapo", gate=(1.0, 2.0))
    assert loss.item() == pytest.approx(-(3.523188 - 1.964028) / 2, abs=1e-6)
    assert not any("clip" in name for name in metrics)

    def slope(ratio, advantage):
        logp = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
        options = PLAIN | {"surrogate": "sapo", "gate": (1.0, 2.0)}
        policy_loss(logp, torch.zeros(1, 1), torch.tensor([[advantage]]), torch.ones(1, 1).bool(), **options)[
            0
        ].backward()
        return -logp.grad.item() / advantage

    # d/dlogp = r 4 sigmoid' : 1 at ratio 1 whatever the gate, as in PPO;  at 3: 3 x 4 x 0.104994 and 3 x 4 x 0.017663
    assert slope(1.0, 1.0) == pytest.approx(1) and slope(1.0, -1.0) == pytest.approx(1)
    assert slope(3.0, 1.0) == pytest.approx(1.259922, abs=1e-5) and slope(3.0, -1.0) == pytest.approx(
        0.211954, abs=1e-5
    )


def test_the_geometric_mean_holds_each_ratio_on_the_side_that_matters():
    # logs (1, -1) with range 0.4: A > 0: (0.4, -1), mean -0.3;  A < 0: (1, -0.4), mean 0.3
    rows = [[math.e, 1 / math.e]] * 2
    options = {"surrogate": "geometric", "average": "sequence", "epsilon_low": 0.4, "epsilon_high": 0.4}
    loss, metrics = loss_of(rows, [1.0, -1.0], **options)
    assert loss.item() == approx(-(math.exp(-0.3) - math.exp(0.3)) / 2)
    assert metrics["policy/clip_frac_high"] == 0.25 and metrics["policy/clip_frac_low"] == 0.25
    # one token that is e^5 times likelier adds no more than the range, where an arithmetic mean would follow it
    assert loss_of([[math.exp(5), 1.0]], [1.0], **options)[0].item() == approx(-math.exp(0.2))


def test_reinforce_ignores_the_ratio_and_claims_no_clipping():
    # -(2 * -3 + 2 * -1) / 2 = 4
    loss, metrics = loss_of([[1.5, 0.5]], [2.0], logp=[[-3.0, -1.0]], surrogate="reinforce")
    assert loss == 4
    assert not any("clip" in name for name in metrics) and metrics["policy/ratio_max"].item() == approx(1.5)


def test_an_unknown_surrogate_is_named_with_its_alternatives():
    with pytest.raises(ValueError, match="'ppo'.*clip, cispo, sapo, geometric, reinforce"):
        loss_of([[1.0]], [1.0], surrogate="ppo")


# --- weights and guard ------------------------------------------------------------------------------------------------


def test_weights_multiply_each_token_after_clipping():
    # -(0.5 * 1.28 + 2 * 1) / 2 = -1.32
    assert loss_of([[1.5, 1.0]], [1.0], weight=[[0.5, 2.0]])[0].item() == approx(-1.32)


def test_weights_carry_no_gradient():
    weight = torch.ones(1, 1, requires_grad=True)
    logp = torch.zeros(1, 1, requires_grad=True)
    policy_loss(logp, torch.zeros(1, 1), torch.ones(1, 1), weight.bool(), weight_BT=weight, **PLAIN)[0].backward()
    assert weight.grad is None and logp.grad is not None


def test_the_guard_leaves_out_tokens_but_not_their_place_in_the_average():
    # A = -1: ratios (100, 1, 1, 1): loss (100 + 3) / 4 without, (0 + 3) / 4 with
    rows = [[100.0, 1.0], [1.0, 1.0]]
    assert loss_of(rows, [-1.0, -1.0])[0].item() == approx(103 / 4)
    loss, metrics = loss_of(rows, [-1.0, -1.0], ratio_guard=10.0)
    assert loss.item() == approx(0.75)
    assert metrics["policy/guarded_frac"] == 0.25
    assert metrics["policy/ratio_max"].item() == approx(100), "the evidence stays"


def test_the_guard_leaves_out_completions_when_they_share_a_ratio():
    # geometric means: sqrt(400) = 20, over 10;  sqrt(30) = 5.5, under it although one token has 30
    loss, metrics = loss_of([[400.0, 1.0], [30.0, 1.0]], [-1.0, -1.0], ratio="sequence", ratio_guard=10.0)
    assert loss.item() == approx(math.sqrt(30) / 2)
    assert metrics["policy/guarded_frac"] == 0.5


@pytest.mark.parametrize("surrogate", ["clip", "cispo", "sapo", "geometric", "reinforce"])
def test_the_guard_stops_an_infinite_ratio_and_its_gradient(surrogate):
    logp = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    old = torch.tensor([[-math.inf, -1.0]])
    options = PLAIN | {"surrogate": surrogate, "ratio_guard": 10.0}
    loss, _ = policy_loss(logp, old, torch.full((1, 1), -1.0), torch.ones(1, 2).bool(), **options)
    loss.backward()
    assert loss.isfinite() and logp.grad[0, 0] == 0 and logp.grad[0, 1] != 0


def test_the_guard_does_not_hide_a_nan():
    loss, metrics = loss_of([[math.nan, 1.0]], [1.0], ratio_guard=10.0)
    assert loss.isnan() and metrics["policy/guarded_frac"] == 0


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_kl_old_is_k3_of_the_token_ratio():
    # ratio 1.5: 1.5 - 1 - ln 1.5 = 0.094535; ratio 1: 0; mean over two tokens
    for ratio in ("token", "sequence"):
        _, metrics = loss_of([[1.5, 1.0]], [1.0], ratio=ratio)
        assert metrics["policy/kl_old"].item() == approx((0.5 - math.log(1.5)) / 2)


def test_sizes_and_tail_of_the_ratios():
    # 0.51, 0.52 ... 1.50 in disorder: the 99th of 100 is 1.49
    rows = [[(51 + (37 * i) % 100) / 100 for i in range(100)]]
    _, metrics = loss_of(rows, [1.0])
    assert metrics["policy/ratio_max"].item() == approx(1.5) and metrics["policy/ratio_min"].item() == approx(0.51)
    assert metrics["policy/ratio_p99"].item() == approx(1.49)
    assert metrics["ratio_error"].item() == approx(0.5)


def test_the_largest_ratio_may_be_under_1():
    assert loss_of([[0.9, 0.5]], [1.0], [[True, True]])[1]["policy/ratio_max"].item() == approx(0.9)


def test_effective_sample_size_by_hand():
    # (1 + 1 + 2)^2 / (3 * (1 + 1 + 4)) = 16 / 18;  one ratio far above the rest: 1 of 3 left
    assert loss_of([[1.0, 1.0, 2.0]], [1.0])[1]["policy/ess"].item() == approx(16 / 18)
    assert loss_of([[1.0, 1.0, 1e300]], [1.0])[1]["policy/ess"].item() == approx(1 / 3)


def test_a_batch_without_tokens_costs_nothing_and_moves_nothing():
    for ratio in ("token", "sequence"):
        loss, metrics = loss_of([[5.0]], [1.0], [[False]], ratio=ratio)
        assert loss == 0 and metrics["policy/ratio_max"] == 1 and metrics["policy/clip_frac"] == 0
        assert all(value.isfinite() for value in metrics.values())


def test_nan_log_probability_makes_loss_and_metrics_nan():
    for surrogate, ratio in itertools.product(
        ("clip", "cispo", "sapo", "geometric", "reinforce"), ("token", "sequence")
    ):
        logp = torch.tensor([[math.nan, 0.0], [0.0, 0.0]])
        options = PLAIN | {"surrogate": surrogate, "ratio": ratio}
        loss, metrics = policy_loss(logp, torch.zeros(2, 2), torch.ones(2, 1), torch.ones(2, 2).bool(), **options)
        assert loss.isnan()
        for name in ("policy/kl_old", "policy/ratio_max", "policy/ess", "ratio_error"):
            assert metrics[name].isnan(), name


# --- against the slow version -----------------------------------------------------------------------------------------


def draw(seed, rows=8, width=6):
    """Random tensors; the masks have gaps, an empty row and a full one."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    old = -normal(rows, width).abs()
    mask = torch.rand(rows, width, generator=generator) < 0.6
    mask[0], mask[1] = True, False
    return old + 0.5 * normal(rows, width), old, normal(rows, width), mask, normal(rows, width).abs()


def slow_loss(
    logp, old, advantage, mask, *, surrogate, ratio, average, epsilon_low, epsilon_high,
    dual_clip=None, weight_BT=None, max_completion=None, ratio_guard=None, gate=(1.0, 1.05),
):  # fmt: skip
    """The definitions, one token at a time; min, max and clip are written as the choices they are."""
    rows = []
    for b in range(logp.shape[0]):
        tokens = [t for t in range(logp.shape[1]) if mask[b, t]]
        terms = []
        for t in tokens:
            if ratio == "token":
                r = torch.exp(logp[b, t] - old[b, t])
            else:
                r = torch.exp(sum(logp[b, s] - old[b, s] for s in tokens) / len(tokens))
            a = advantage[b, t].item()
            held = 0
            for s in tokens:
                own = logp[b, s] - old[b, s] if ratio == "token" else r.log()
                if ratio_guard is not None and own.item() > math.log(ratio_guard):
                    own = own * 0
                elif advantage[b, s] > 0 and own.item() > epsilon_high:
                    own = torch.tensor(epsilon_high, dtype=torch.float64)
                elif not advantage[b, s] > 0 and own.item() < -epsilon_low:
                    own = torch.tensor(-epsilon_low, dtype=torch.float64)
                held = held + own / len(tokens)
            bounded = min(max(r.item(), 1 - epsilon_low), 1 + epsilon_high)
            if surrogate == "reinforce":
                loss = -a * logp[b, t]
            elif surrogate == "cispo":
                loss = -a * bounded * logp[b, t]
            elif surrogate == "geometric":
                loss = -torch.exp(held) * a
            elif surrogate == "sapo":
                steep = gate[0] if a > 0 else gate[1]
                loss = -a * (4 / steep) / (1 + torch.exp(-steep * (r - 1)))
            elif r.item() * a <= bounded * a:
                loss = -r * a
            else:
                loss = torch.tensor(-bounded * a, dtype=torch.float64)
            if dual_clip is not None and a < 0 and loss.item() > dual_clip * abs(a):
                loss = torch.tensor(dual_clip * abs(a), dtype=torch.float64)
            if weight_BT is not None:
                loss = loss * weight_BT[b, t].item()
            if ratio_guard is not None and r.item() > ratio_guard:
                loss = loss * 0
            terms.append(loss)
        rows.append(terms)
    every = [term for terms in rows for term in terms]
    if average == "token":
        return sum(every) / len(every)
    if average == "sequence":
        means = [sum(terms) / len(terms) for terms in rows if terms]
        return sum(means) / len(means)
    return sum(every) / (len(rows) * max_completion)


EXTRAS = {
    "plain": {},
    "weighted": {"weight_BT": True},
    "guarded": {"ratio_guard": 1.4},
    "dual": {"dual_clip": 1.3},
    "all": {"weight_BT": True, "ratio_guard": 1.6, "dual_clip": 1.3},
}


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("average", ["token", "sequence", "constant"])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("surrogate", ["clip", "cispo", "sapo", "geometric", "reinforce"])
def test_loss_and_gradient_equal_the_slow_version(surrogate, ratio, average, extra):
    options = PLAIN | EXTRAS[extra] | {"surrogate": surrogate, "ratio": ratio, "average": average, "max_completion": 7}
    if surrogate != "clip":
        options.pop("dual_clip", None)
    for seed in range(2):
        logp, old, advantage, mask, weight = draw(seed)
        if "weight_BT" in options:
            options["weight_BT"] = weight
        results = []
        for function in (lambda *a: policy_loss(*a, **options)[0], lambda *a: slow_loss(*a, **options)):
            leaf = logp.clone().requires_grad_()
            loss = function(leaf, old, advantage, mask)
            loss.backward()
            results.append((loss.item(), leaf.grad))
        assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
        assert torch.allclose(results[0][1], results[1][1], rtol=1e-10, atol=1e-14)
        assert results[0][1][~mask].abs().max() == 0


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("surrogate", ["clip", "cispo", "sapo", "geometric", "reinforce"])
def test_masked_positions_never_matter(surrogate, ratio, poison):
    options = PLAIN | {"surrogate": surrogate, "ratio": ratio, "ratio_guard": 2.0}
    if surrogate == "clip":
        options["dual_clip"] = 1.5
    results = []
    for filling in (0.0, poison):
        logp, old, advantage, mask, weight = (tensor.clone() for tensor in draw(0))
        for tensor in (logp, old, advantage, weight):
            tensor[~mask] = filling
        old[~mask] = 1.0 if filling == 0 else -filling
        leaf = logp.requires_grad_()
        loss, metrics = policy_loss(leaf, old, advantage, mask, weight_BT=weight, **options)
        loss.backward()
        results.append((loss, leaf.grad, metrics))
    (loss, gradient, metrics), (poisoned, poisoned_gradient, poisoned_metrics) = results
    assert torch.equal(loss, poisoned) and torch.equal(gradient, poisoned_gradient)
    assert metrics == poisoned_metrics


def test_metrics_are_without_gradient():
    logp, old, advantage, mask, _ = draw(0)
    _, metrics = policy_loss(logp.requires_grad_(), old, advantage, mask, dual_clip=3.0, ratio_guard=9.0, **PLAIN)
    assert not any(value.requires_grad for value in metrics.values())


def test_float32_is_kept():
    tensors = [tensor.float() for tensor in draw(0)[:3]]
    loss, metrics = policy_loss(*tensors, draw(0)[3], **PLAIN)
    assert loss.dtype == torch.float32 and metrics["policy/clip_frac"].dtype == torch.float32
