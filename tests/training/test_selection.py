"""Selections of tokens against slow versions that sort plain lists, and their place in the objective."""

import pytest
import torch

from stabilizer.training.learner import Batch, selected
from stabilizer.training.selection import clip_cov, covariance, kl_cov, top_entropy
from stabilizer.training.settings import PolicyConfig


def draw(seed, rows=5, width=7):
    generator = torch.Generator().manual_seed(seed)
    value = torch.rand(3, rows, width, generator=generator, dtype=torch.float64)
    mask = torch.rand(rows, width, generator=generator) < 0.7
    mask[1] = False
    return value[0] * 3, value[1] - 0.5, -value[2] * 4, mask


def at(mask):
    return [(b, t) for b in range(mask.shape[0]) for t in range(mask.shape[1]) if mask[b, t]]


def chosen(places, like):
    wanted = torch.zeros_like(like)
    for place in places:
        wanted[place] = True
    return wanted


def slow_covariance(logp, advantage, mask):
    places = at(mask)
    means = [sum(x[place].item() for place in places) / len(places) for x in (logp, advantage)]
    return {place: (advantage[place].item() - means[1]) * (logp[place].item() - means[0]) for place in places}


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8, 1.0])
def test_top_entropy_keeps_what_trls_quantile_keeps(share):
    for seed in range(5):
        entropy, _, _, mask = draw(seed)
        limit = torch.quantile(entropy[mask], 1 - share).item()  # interpolates between two tokens
        wanted = chosen([place for place in at(mask) if entropy[place].item() >= limit - 1e-12], mask)
        assert torch.equal(top_entropy(entropy, mask, share), wanted)


def test_tokens_of_equal_entropy_are_kept_together_and_no_token_is_no_error():
    mask = torch.tensor([[True, True, True, False]])
    assert top_entropy(torch.tensor([[0.0, 0.0, 0.0, 9.0]]), mask, 0.2).tolist() == mask.tolist()
    assert not top_entropy(torch.ones(1, 4), torch.zeros(1, 4, dtype=torch.bool), 0.2).any()


def test_covariance_and_kl_cov_equal_the_slow_version():
    for seed in range(5):
        _, advantage, logp, mask = draw(seed)
        slow = slow_covariance(logp, advantage, mask)
        fast = covariance(logp, advantage, mask)
        assert all(fast[place].item() == pytest.approx(value, abs=1e-12) for place, value in slow.items())
        for share in (0.0002, 0.2, 0.9):
            count = max(int(share * len(slow)), 1)
            wanted = sorted(slow, key=slow.get, reverse=True)[:count]
            assert torch.equal(kl_cov(fast, mask, share), chosen(wanted, mask))


def test_one_advantage_per_completion_is_the_same_as_one_per_token():
    _, advantage, logp, mask = draw(0)
    one = advantage[:, :1]
    assert torch.equal(covariance(logp, one, mask), covariance(logp, one.expand_as(logp), mask))


def test_clip_cov_draws_its_share_from_between_the_bounds():
    _, advantage, logp, mask = draw(1)
    value = covariance(logp, advantage, mask)
    inside = {place for place, part in slow_covariance(logp, advantage, mask).items() if 0.1 < part < 0.5}
    drawn = [set(at(clip_cov(value, mask, 0.1, (0.1, 0.5), seed))) for seed in range(20)]
    assert all(len(places) == max(int(0.1 * int(mask.sum())), 1) and places <= inside for places in drawn)
    assert set().union(*drawn) == inside, "every one of them may be drawn"
    assert torch.equal(clip_cov(value, mask, 0.1, (0.1, 0.5), 3), clip_cov(value, mask, 0.1, (0.1, 0.5), 3))
    assert not clip_cov(value, mask, 0.1, (50.0, 60.0), 0).any()
    assert set(at(clip_cov(value, mask, 0.99, (0.1, 0.5), 0))) == inside, "fewer candidates than the share"


# --- in the objective -------------------------------------------------------------------------------------------------


def batch(seed=0):
    entropy, advantage, logp, mask = draw(seed)
    return Batch(None, mask, logp, advantage, entropy)


def test_nothing_is_selected_unless_asked_for():
    given = batch()
    assert selected(PolicyConfig(), given, 0) == (given, {})


def test_unselected_tokens_have_weight_0_and_the_others_keep_theirs():
    given = batch()
    kept = top_entropy(given.entropy_BT, given.mask_BT, 0.2)
    after, metrics = selected(PolicyConfig(top_entropy=0.2), given, 0)
    assert torch.equal(after.weight_BT[given.mask_BT] > 0, kept[given.mask_BT])
    left_out = 1 - int(kept.sum()) / int(given.mask_BT.sum())
    assert metrics["policy/unselected_frac"].item() == pytest.approx(left_out)
    corrected = Batch(None, given.mask_BT, given.old_logp_BT, given.advantage_BT, given.entropy_BT, None, 0.5 * kept)
    assert selected(PolicyConfig(top_entropy=0.2), corrected, 0)[0].weight_BT.max() == 0.5


def test_a_step_that_learns_from_nothing_selects_nothing():
    given = batch()
    empty = Batch(None, torch.zeros_like(given.mask_BT), given.old_logp_BT, given.advantage_BT, given.entropy_BT)
    assert selected(PolicyConfig(top_entropy=0.2, kl_cov=0.1), empty, 0) == (empty, {})


@pytest.mark.parametrize(
    "setting",
    ["policy.top_entropy=0.2", "policy.clip_cov=0.05", "policy.kl_cov=0.05", "algorithm=gmpo", "algorithm=gdpo"],
)
def test_microbatches_learn_the_same(trainer, setting):
    options = (setting, "policy.minibatches=2", "policy.clip_cov_range=[0.0,5.0]")
    whole, parts = (trainer(*options, f"optim.micro_batch={size}", folder=str(size)) for size in (0, 3))
    for _ in range(2):
        one, other = whole.train_step().metrics, parts.train_step().metrics
        assert one["policy/loss"] == pytest.approx(other["policy/loss"], rel=1e-3, abs=1e-6)
    for a, b in zip(whole.learner.parameters, parts.learner.parameters, strict=True):
        assert torch.allclose(a, b, atol=2e-5)


def test_held_tokens_are_penalised_for_moving_once_a_weight_has_moved(trainer):
    runs = {
        coef: trainer("algorithm=kl_cov", "policy.kl_cov=0.5", f"policy.kl_cov_coef={coef}", folder=str(coef))
        for coef in (1e-9, 20.0)
    }
    moved = {coef: sum(run.train_step().metrics["policy/kl_old"] for _ in range(3)) for coef, run in runs.items()}
    assert moved[20.0] < moved[1e-9]


@pytest.mark.parametrize("key", ["kl_cov", "kl_stop"])
def test_what_acts_from_the_second_update_on_is_refused_with_one(small, key):
    with pytest.raises(ValueError, match=f"policy.{key} = 0.1: must be 0 with one update"):
        small(f"policy.{key}=0.1", "policy.minibatches=1", "policy.inner_epochs=1")


def test_updates_end_once_the_policy_has_moved_too_far(trainer):
    options = ("policy.minibatches=4", "policy.inner_epochs=2", "optim.lr=5e-3", "optim.warmup_steps=0")
    free = trainer(*options, folder="free").train_step().metrics
    stopped = trainer(*options, "policy.kl_stop=1e-4", folder="stopped").train_step().metrics
    never = trainer(*options, "policy.kl_stop=1e6", folder="never").train_step().metrics
    assert free["batch/updates"] == never["batch/updates"] == 8 and free["policy/loss"] == never["policy/loss"]
    assert 1 <= stopped["batch/updates"] < 8


def test_remax_measures_from_one_greedy_completion_of_each_prompt(trainer):
    run = trainer("algorithm=remax", "rollout.group_size=1", "rollout.prompts=16", task="sorting")
    asked, answered = [], run.collector._answered

    def noted(problems, sampling, *rest):
        asked.append((len(problems), sampling.group_size, sampling.temperature, answered(problems, sampling, *rest)))
        return asked[-1][3]

    run.collector._answered = noted
    metrics = run.train_step().metrics
    (_, _, _, sampled), (prompts, size, temperature, greedy) = asked
    assert (prompts, size, temperature) == (16, 1, 0.0)
    assert metrics["reward/greedy/mean"] == pytest.approx(sum(score.reward for score in greedy.scores) / 16)
    assert metrics["reward/mean"] == pytest.approx(sum(score.reward for score in sampled.scores) / 16)
    assert metrics["batch/updates"] == 1 and metrics["optim/grad_norm"] > 0
