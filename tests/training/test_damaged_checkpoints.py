"""A checkpoint that verifies and does not load is passed over like a damaged one, and its reason is reported."""

from __future__ import annotations

import resource

import pytest
import torch

from bench.trust.damage import BEHIND_A_VALID_HASH
from stabilizer.core.knobs import Checkpoint
from stabilizer.training.checkpoint import CheckpointDamaged
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer
from tests.training.conftest import SMALL
from tests.training.test_loop import weights

MOST_MEMORY = 1024**3
"""Bytes that refusing a state may add to the process, far below the 8 GB that one of them claims."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two states of a run, as files, and its configuration."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    config = load_config("addition", [*SMALL, "policy.minibatches=1"])
    run = Trainer(config, checkpoints=folder)
    states = []
    for _ in range(2):
        run.train_step()
        states.append(run.save_checkpoint())
    return config, [{path.name: path.read_bytes() for path in state.path.iterdir()} for state in states]


@pytest.fixture
def stored(saved, tmp_path):
    """The states again, in a folder of their own; returns the configuration, the folder, and the newer state."""
    config, states = saved
    for number, files in enumerate(states, start=1):
        place = tmp_path / "checkpoints" / f"step-{number}-a0"
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
    return config, tmp_path / "checkpoints", Checkpoint(2, 0, tmp_path / "checkpoints" / "step-2-a0")


@pytest.fixture(scope="module")
def other(saved, tmp_path_factory):
    """A trainer of the same configuration."""
    return Trainer(saved[0], checkpoints=tmp_path_factory.mktemp("other"))


@pytest.mark.parametrize("what", BEHIND_A_VALID_HASH)
def test_a_state_that_does_not_load_falls_back_and_says_why(stored, other, what):
    _, folder, newest = stored
    BEHIND_A_VALID_HASH[what](newest.path)
    other._folder = folder
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert other.resume().step == 1 and other.step == 1
    assert len(other.passed_over) == 1 and "step-2-a0" in other.passed_over[0]
    kept = weights(other)
    if "knob" not in what:  # a return keeps the knobs of the run, so they may be anything in the state
        with pytest.raises(CheckpointDamaged, match="step-2-a0"):
            other.load_checkpoint(newest, vary_data=False)
        assert other.whole and other.step == 1 and torch.equal(weights(other), kept)
    other.train_step()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < MOST_MEMORY


def test_undamaged_states_pass_nothing_over(stored, other):
    other._folder = stored[1]
    assert other.resume().step == 2 and other.passed_over == []
