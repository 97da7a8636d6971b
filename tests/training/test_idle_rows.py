"""Rows that no advantage moves cost no gradients, and no pass while they are known; nothing learned depends on it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from stabilizer.training import learner
from stabilizer.training.fast.scorer import FastScorer

QUIET = ("rollout.prompts=8", "policy.beta=0", "policy.minibatches=1", "seed=3")


def _three_steps(trainer, *overrides: str, folder: str):
    run = trainer(*QUIET, *overrides, folder=folder)
    metrics = [run.train_step().metrics for _ in range(3)]
    return metrics, [parameter.detach().clone() for parameter in run.policy.model.parameters()]


@pytest.fixture
def passes(monkeypatch):
    """Rows of every pass of the policy, and whether it was made for its gradients."""
    seen = []
    plain = FastScorer.logps

    def counted(self, model, rollouts, *args, **named):
        if next(model.parameters()).requires_grad:  # the policy, not the reference
            seen.append((len(rollouts), torch.is_grad_enabled()))
        return plain(self, model, rollouts, *args, **named)

    monkeypatch.setattr(FastScorer, "logps", counted)
    return seen


@pytest.mark.parametrize(
    "more",
    [(), ("policy.minibatches=2",), ("policy.inner_epochs=2",), ("optim.micro_batch=8",), ("policy.surrogate=cispo",)],
)
def test_the_same_is_learned_and_measured_as_with_gradients_of_every_row(trainer, monkeypatch, passes, more):
    metrics, weights = _three_steps(trainer, *more, folder="apart")
    with_gradients = sum(rows for rows, gradients in passes if gradients)
    monkeypatch.setattr(learner.Learner, "_idle", lambda self, batch, knobs: torch.zeros(len(batch), dtype=torch.bool))
    passes.clear()
    whole_metrics, whole_weights = _three_steps(trainer, *more, folder="whole")
    assert with_gradients < sum(rows for rows, _ in passes)
    for mine, whole in zip(weights, whole_weights, strict=True):
        torch.testing.assert_close(mine, whole, rtol=0, atol=2e-6)
    for mine, whole in zip(metrics, whole_metrics, strict=True):
        assert mine.keys() == whole.keys()
        for name in mine:
            if not name.startswith("time/"):
                assert mine[name] == pytest.approx(whole[name], rel=1e-3, abs=1e-5, nan_ok=True), name


def test_rows_without_advantage_are_not_computed_as_long_as_they_are_known(trainer, passes):
    metrics, _ = _three_steps(trainer, folder="apart")
    alike = [round(step["reward/zero_std_frac"] * 32) for step in metrics]
    assert max(alike) > 0 and passes == [(32 - rows, True) for rows in alike]


def test_once_weights_moved_they_are_computed_without_gradients(trainer, passes):
    metrics, _ = _three_steps(trainer, "policy.inner_epochs=2", folder="again")
    alike = [round(step["reward/zero_std_frac"] * 32) for step in metrics]
    assert [rows for rows, gradients in passes if not gradients] == [rows for rows in alike if rows >= 8]


def test_what_the_sampler_says_of_a_row_counts_for_it_until_it_was_caught_lying(trainer, monkeypatch):
    run = trainer(*QUIET, folder="lying")
    generate = run.engine.generate

    def lying(*args):
        rollouts = generate(*args)
        return replace(rollouts, logp_BT=rollouts.logp_BT - 0.5, entropy_BT=rollouts.entropy_BT + 9.0)

    monkeypatch.setattr(run.engine, "generate", lying)
    first, second = (run.train_step().metrics for _ in range(2))
    assert first["policy/ratio_first_error"] > 0.5  # the rows that pull are computed, and give it away
    assert second["policy/ratio_first_error"] < 1e-4 and second["policy/entropy"] < 5 < first["policy/entropy"]


@pytest.mark.parametrize("more", [("policy.beta=0.01",), ("policy.entropy_coef=0.01",)])
def test_what_moves_every_row_has_gradients_in_every_row(trainer, passes, more):
    _three_steps(trainer, *more, folder="pulled")
    assert passes == [(32, True)] * 3


def test_a_step_in_which_no_row_teaches_is_an_ordinary_update(trainer, passes, monkeypatch):
    run = trainer(*QUIET, folder="nothing")
    monkeypatch.setattr(learner.Learner, "_idle", lambda self, batch, knobs: torch.ones(len(batch), dtype=torch.bool))
    assert run.train_step().metrics["batch/updates"] == 1
    assert passes == [(32, True)]
