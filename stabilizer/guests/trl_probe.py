"""What the weights of a checkpoint would earn now, beside the present ones: both answer the same prompts in TRL.

The prompts are the next rows of the training data in the order of the data set, not of the sampler, so no prompt is
taken from the training. Weights, random numbers and TRL's own metrics are afterwards what they were.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.core.earnings import BATCHES, Paid
from stabilizer.guests.trl_state import random_numbers_kept, trained_weights

KEPT = ("_metrics", "_logs", "_total_train_tokens", "_pending_extra_logs", "_pending_metrics", "_step")
"""Attributes of the trainer that an answer changes."""


class TrlProbe:
    """Measures rewards of one trainer's weights."""

    def __init__(self, trainer: Any):
        self._trainer = trainer
        self._at = 0

    def __call__(self, files: Mapping[str, Path] | None) -> Paid:
        """Mean reward of each prompt, of the present weights or of those in a checkpoint's files."""
        with random_numbers_kept(), _metrics_kept(self._trainer), self._weights(files):
            rewards = [self._answered(batch) for batch in range(BATCHES)]
        return Paid(np.concatenate(rewards))

    def _answered(self, batch: int) -> np.ndarray:
        trainer = self._trainer
        group = int(trainer.num_generations)
        count = max(1, int(trainer.args.generation_batch_size) // group)
        data, start = trainer.train_dataset, batch * count
        rows = [data[(start + i) % len(data)] for i in range(count)]
        inputs = [row for row in rows for _ in range(group)]
        before = trainer.model.training
        trainer.model.train()
        try:
            found = _rewards(trainer, inputs)
        finally:
            trainer.model.train(before)
        return np.asarray(np.nanmean(found.reshape(count, group), axis=1))

    @contextmanager
    def _weights(self, files: Mapping[str, Path] | None) -> Iterator[None]:
        """The weights of a checkpoint for a while."""
        if files is None:
            yield
            return
        import torch
        from safetensors.torch import load_file

        here = trained_weights(self._trainer)
        kept = {name: tensor.detach().clone() for name, tensor in here.items()}
        try:
            with torch.no_grad():
                for name, value in load_file(files["model.safetensors"]).items():
                    here[name].copy_(value)
            yield
        finally:
            with torch.no_grad():
                for name, value in kept.items():
                    here[name].copy_(value)


def _rewards(trainer: Any, inputs: list[dict[str, Any]]) -> np.ndarray:
    """The weighted rewards of answers to some rows of the data."""
    seen: list[Any] = []
    plain = trainer._calculate_rewards

    def remembered(*args: Any, **named: Any) -> Any:
        seen.append(plain(*args, **named))
        return seen[-1]

    trainer._calculate_rewards = remembered
    try:
        trainer._generate_and_score_completions(inputs)
    finally:
        trainer._calculate_rewards = plain
    weights = trainer.reward_weights.to(seen[0].device)
    total = (seen[0] * weights).nansum(dim=1)
    return np.asarray(total.detach().cpu().float().numpy(), dtype=float)


@contextmanager
def _metrics_kept(trainer: Any) -> Iterator[None]:
    kept = {name: getattr(trainer, name) for name in KEPT if hasattr(trainer, name)}
    for name, value in kept.items():
        setattr(trainer, name, copy.deepcopy(value))
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(trainer, name, value)
