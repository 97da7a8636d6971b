"""Learning itself: from a fixed seed, in a bounded number of steps, and not at all when the mathematics is broken."""

import dataclasses

import numpy as np
import pytest

from stabilizer.trainer import learner

SETTINGS = ("rollout.prompts=8", "rollout.group_size=8", "seed=1", "policy.beta=0.02")


def solves_length(trainer, algorithm: str, steps: int = 35) -> bool:
    """Whether the policy learns to write about twenty characters: it starts nine away from that, on average."""
    run = trainer(*SETTINGS, f"algorithm={algorithm}", task="length")
    rewards = [run.train_step().metrics["reward/mean"] for _ in range(steps)]
    assert np.mean(rewards[:2]) < -6
    return np.mean(rewards[-5:]) > -2


def flipped_sign(loss):
    def broken(logp_BT, old_logp_BT, advantage_BT, mask_BT, **options):
        return loss(logp_BT, old_logp_BT, -advantage_BT, mask_BT, **options)

    return broken


def advantages_of_the_next_row(loss):
    def broken(logp_BT, old_logp_BT, advantage_BT, mask_BT, **options):
        return loss(logp_BT, old_logp_BT, advantage_BT.roll(1, 0), mask_BT, **options)

    return broken


def padding_instead_of_text(loss):
    def broken(logp_BT, old_logp_BT, advantage_BT, mask_BT, **options):
        return loss(logp_BT, old_logp_BT, advantage_BT, ~mask_BT, **options)

    return broken


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_it_learns(trainer, algorithm):
    assert solves_length(trainer, algorithm)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("broken", [flipped_sign, advantages_of_the_next_row, padding_instead_of_text])
def test_it_does_not_learn_with_broken_mathematics(trainer, monkeypatch, algorithm, broken):
    monkeypatch.setattr(learner, "policy_loss", broken(learner.policy_loss))
    assert not solves_length(trainer, algorithm)


def test_it_does_not_learn_from_log_probabilities_shifted_by_one(trainer, monkeypatch):
    forward = learner.completion_logps

    def shifted(*arguments, **options):
        stats = forward(*arguments, **options)
        return stats._replace(logp_BT=stats.logp_BT.roll(1, 1))

    monkeypatch.setattr(learner, "completion_logps", shifted)
    assert not solves_length(trainer, "grpo")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "task", "steps", "wanted"),
    [
        ("ppo", "sorting", 200, 0.7), ("ppo", "length", 100, 0.9), ("dapo", "sorting", 200, 0.5),
        ("gspo", "sorting", 200, 0.6), ("cispo", "sorting", 200, 0.6), ("sapo", "sorting", 200, 0.6),
        ("rloo", "sorting", 200, 0.5),
        ("reinforce_pp", "sorting", 200, 0.7), ("dr_grpo", "sorting", 200, 0.6),
        ("dr_grpo", "addition", 200, 0.5),
    ],
)  # fmt: skip
def test_every_algorithm_solves_a_task(tmp_path, algorithm, task, steps, wanted):
    from stabilizer.trainer.config import load_config
    from stabilizer.trainer.loop import Trainer

    # completions of six tokens: the published ranges of GSPO and the length penalty of DAPO are made for thousands
    fitting = {
        "gspo": ["policy.epsilon_low=0.1", "policy.epsilon_high=0.1"],
        "dapo": ["policy.overlong_buffer=0", "policy.entropy_coef=0.01"],
    }
    overrides = ["device=cpu", "validation.every=0", f"algorithm={algorithm}", *fitting.get(algorithm, [])]
    run = Trainer(dataclasses.replace(load_config(task, overrides), steps=steps), checkpoints=tmp_path)
    for _ in range(steps):
        run.train_step()
    assert run.validate()["accuracy/val"] > wanted
