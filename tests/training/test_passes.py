"""Passes of a bounded size give the numbers of one large pass, and no pass is larger than its limits."""

import pytest
import torch

from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.sampler import Sampler
from tests.training.test_loop import weights


def generated(run):
    prompts = [run.policy.tokenizer(text).input_ids for text in ("1+1=", "12+345=", "7+8=", "99+1=")]
    return Sampler(run.policy).generate(prompts, Sampling(4, 1.0, 12))


@pytest.mark.parametrize(("micro_batch", "micro_tokens"), [(0, 0), (3, 0), (0, 40), (2, 40), (0, 1)])
def test_every_row_is_in_one_pass_within_the_limits(trainer, micro_batch, micro_tokens):
    rollouts = generated(trainer())
    passes = rollouts.passes(micro_batch, micro_tokens)
    assert torch.cat(passes).sort().values.tolist() == list(range(len(rollouts)))
    length_B = rollouts.prompt_mask_BP.sum(1) + rollouts.span_B
    for row_R in passes:
        assert len(row_R) <= (micro_batch or len(rollouts))
        assert len(row_R) == 1 or len(row_R) * length_B[row_R].max() <= (micro_tokens or 10**9)


def test_rows_of_similar_length_share_a_pass(trainer):
    rollouts = generated(trainer())
    length_B = rollouts.prompt_mask_BP.sum(1) + rollouts.span_B
    longest = [int(length_B[row_R].max()) for row_R in rollouts.passes(0, 60)]
    assert len(longest) > 2 and longest == sorted(longest, reverse=True)


class Counting(Scorer):
    def __init__(self, **limits):
        super().__init__(**limits)
        self.rows = []

    def _states(self, model, rollouts):
        self.rows.append((len(rollouts), rollouts.completion_ids_BT.shape[1], int(rollouts.span_B.max())))
        return super()._states(model, rollouts)


@pytest.mark.parametrize("limits", [{"micro_batch": 3}, {"micro_tokens": 40}], ids=["rows", "tokens"])
def test_scoring_without_gradients_obeys_the_limits_and_changes_no_number(trainer, limits):
    run = trainer()
    rollouts, scorer = generated(run), Counting(**limits)
    with torch.no_grad():
        parts = scorer.logps(run.policy.model, rollouts, 0.8, hidden=True)
        whole = Scorer().logps(run.policy.model, rollouts, 0.8, hidden=True)
        states = scorer.hidden_states(run.policy.model, rollouts)
    assert len(scorer.rows) > 4 and all(width == longest for _, width, longest in scorer.rows)
    mask_BT = rollouts.mask_BT
    for mine, other in [(parts.logp_BT, whole.logp_BT), (parts.entropy_BT, whole.entropy_BT)]:
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
    for mine in (parts.hidden_BTH, states):
        torch.testing.assert_close(mine[mask_BT], whole.hidden_BTH[mask_BT], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("more", [("fast=off",), ("algorithm=ppo",), ("policy.beta=0.05", "policy.minibatches=1")])
def test_a_token_budget_learns_the_same(trainer, more):
    whole, parts = trainer(*more, folder="whole"), trainer(*more, "optim.micro_tokens=60", folder="parts")
    for _ in range(2):
        mine, other = parts.train_step().metrics, whole.train_step().metrics
        for name in ("policy/loss", "policy/entropy", "optim/grad_norm", "reward/mean"):
            assert mine[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=1e-5)
