"""Small runs of the built-in model: a second or two each, on one thread."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer
from stabilizer.training.settings import TrainConfig

SMALL = (
    "rollout.prompts=4", "rollout.group_size=4", "validation.every=0", "validation.problems=16",
    "device=cpu", "optim.lr=4e-4", "optim.schedule=constant", "policy.beta=0.005", "policy.entropy_coef=0",
)  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread_and_the_same_draws():
    torch.set_num_threads(1)
    torch.manual_seed(0)  # so that no test depends on those before it


@pytest.fixture
def small():
    """A function giving a small configuration: 4 prompts x 4 completions, changed by 'key=value' texts."""

    def build(*overrides: str, task: str = "addition") -> TrainConfig:
        return load_config(task, [*SMALL, *overrides])

    return build


@pytest.fixture
def trainer(small, tmp_path: Path):
    """A function giving a trainer of such a configuration."""

    def build(*overrides: str, task: str = "addition", folder: str = "checkpoints") -> Trainer:
        return Trainer(small(*overrides, task=task), checkpoints=tmp_path / folder)

    return build
