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

LOGS = ("_logs", "_textual_logs")
"""Where TRL keeps the newest completions with their rewards: since 0.22, and before."""
KEPT = ("_metrics", *LOGS, "_total_train_tokens", "_pending_extra_logs", "_pending_metrics", "_step")
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
            trainer._generate_and_score_completions(inputs)
        finally:
            trainer.model.train(before)
        found = totals(trainer)[-len(inputs) :]
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


def logged(trainer: Any) -> Mapping[str, Any]:
    """TRL's columns of the newest completions: prompt, completion, advantages, and a reward for each function."""
    return next((found for name in LOGS if (found := getattr(trainer, name, None))), {})


def tell_apart(trainer: Any) -> list[str]:
    """Number the reward functions that share a name: TRL mixes what it logs of them. Returns the names given."""
    names = getattr(trainer, "reward_func_names", None) or []
    shared = {i for i, name in enumerate(names) if names.count(name) > 1}
    before = list(names)
    for i in shared:
        names[i] = f"{names[i]}-{before[: i + 1].count(before[i])}"
    return [names[i] for i in sorted(shared)]


def totals(trainer: Any) -> np.ndarray:
    """The weighted rewards of the newest completions; none if the columns of the functions do not belong together."""
    weights = [float(weight) for weight in getattr(trainer, "reward_weights", ())]
    columns = [list(values) for values in dict(logged(trainer).get("rewards", {})).values()]
    if not columns or len(columns) != len(weights) or len({*map(len, columns)}) > 1:
        return np.empty(0)
    parts = np.array(columns, float)  # None, where a function does not apply, becomes NaN
    return np.asarray(np.nansum(parts * np.array(weights)[:, None], axis=0))


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
