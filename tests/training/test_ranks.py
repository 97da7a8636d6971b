"""A run in two processes gives the numbers of a run in one."""

import numpy as np
import pytest

from stabilizer.training import loop
from stabilizer.training.loop import Trainer
from stabilizer.training.ranks import Ranks, launched, refuse
from tests.training.rank_processes import run_ranks, weights

CLOSE = 2e-6
"""Largest difference of a weight after 20 steps at a learning rate of 5e-5, which move weights by about 1e-3.

It comes from another order of sums. `optim.micro_batch` in one process makes as large a difference.
"""


def twenty_steps(trainer):
    return [trainer.train_step().metrics for _ in range(20)]


def assert_equal(config, tmp_path, trainer, *, lead=twenty_steps, close=CLOSE, size=2):
    """The same metrics and weights in one process and in several, and bit-equal weights on all ranks."""
    expected = lead(trainer)
    alone = weights(trainer).numpy()
    found, *shared = run_ranks(size, lead, config, tmp_path / "ranks")
    for other in shared[1:]:
        assert np.array_equal(other, shared[0])
    assert np.abs(shared[0] - alone).max() <= close
    for ours, theirs in zip(expected, found, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            if not name.startswith("time/"):
                assert theirs[name] == pytest.approx(ours[name], rel=2e-3, abs=2e-5), name


def test_two_ranks_train_grpo_like_one_process(small, trainer, tmp_path):
    overrides = "rollout.prompts=5", "validation.every=10", "optim.lr=5e-5"  # an uneven division
    assert_equal(small(*overrides), tmp_path, trainer(*overrides))


REFUSED = {
    "rollout.engine = 'vllm': with several processes it must be builtin": ("rollout.engine=vllm",),
    "with several processes no task may search": ("task=search",),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_several_processes_cannot_do_is_refused_before_a_model_is_loaded(words, small, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "starting_policy", None)
    with pytest.raises(ValueError, match=words):
        Trainer(small(*REFUSED[words]), checkpoints=tmp_path, ranks=Ranks(0, 2))


def test_more_processes_than_gpus_are_refused(small, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ValueError, match="2 processes on a machine with 1 GPUs"):
        refuse(small("device=auto"), Ranks(0, 2, 0, on_this_machine=2))
    refuse(small("device=cpu"), Ranks(0, 2, 0, on_this_machine=2))


def test_a_world_size_without_the_rest_is_explained(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="WORLD_SIZE = 2 without RANK: start several processes with `torchrun"):
        launched()
