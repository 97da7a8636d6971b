"""Rows that no advantage moves are measured without gradients, and nothing that is learned depends on it."""

from __future__ import annotations

import pytest
import torch

from stabilizer.trainer import learner

QUIET = ("rollout.prompts=8", "policy.beta=0", "policy.minibatches=1", "seed=3")


def _three_steps(trainer, *overrides: str, folder: str):
    run = trainer(*QUIET, *overrides, folder=folder)
    metrics = [run.train_step().metrics for _ in range(3)]
    return metrics, [parameter.detach().clone() for parameter in run.policy.model.parameters()]


@pytest.fixture
def passes(monkeypatch):
    """Rows of every pass of the policy, and whether it was made for its gradients."""
    seen = []
    plain = learner.completion_logps

    def counted(model, rollouts, *args, **named):
        seen.append((len(rollouts), torch.is_grad_enabled()))
        return plain(model, rollouts, *args, **named)

    monkeypatch.setattr(learner, "completion_logps", counted)
    return seen


@pytest.mark.parametrize("more", [(), ("policy.minibatches=2",), ("optim.micro_batch=8",), ("policy.surrogate=cispo",)])
def test_the_same_is_learned_and_measured_as_with_gradients_of_every_row(trainer, monkeypatch, passes, more):
    metrics, weights = _three_steps(trainer, *more, folder="apart")
    assert any(not gradients for _, gradients in passes)
    monkeypatch.setattr(learner, "IDLE", 2.0)
    whole_metrics, whole_weights = _three_steps(trainer, *more, folder="whole")
    for mine, whole in zip(weights, whole_weights, strict=True):
        torch.testing.assert_close(mine, whole, rtol=0, atol=2e-6)
    for mine, whole in zip(metrics, whole_metrics, strict=True):
        assert mine.keys() == whole.keys()
        for name in mine:
            if not name.startswith("time/"):
                assert mine[name] == pytest.approx(whole[name], rel=1e-3, abs=1e-5, nan_ok=True), name


def test_rows_without_advantage_are_computed_without_gradients(trainer, passes):
    metrics, _ = _three_steps(trainer, folder="apart")
    alike = [round(step["reward/zero_std_frac"] * 32) for step in metrics]
    assert [rows for rows, gradients in passes if not gradients] == [rows for rows in alike if rows >= 8]


@pytest.mark.parametrize("more", [("policy.beta=0.01",), ("policy.entropy_coef=0.01",)])
def test_what_moves_every_row_has_gradients_in_every_row(trainer, passes, more):
    _three_steps(trainer, *more, folder="pulled")
    assert passes == [(32, True)] * 3


def test_a_step_in_which_no_row_teaches_is_an_ordinary_update(trainer, passes, monkeypatch):
    run = trainer(*QUIET, folder="nothing")
    monkeypatch.setattr(learner.Learner, "_idle", lambda self, batch, knobs: torch.ones(len(batch), dtype=torch.bool))
    assert run.train_step().metrics["batch/updates"] == 1
    assert passes == [(32, True)]
