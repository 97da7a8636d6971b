"""Read checkpoints and the policy in them without the rest of training: no problems, rewards or optimizer.

A policy can be exported after its data is gone: that needs only the weights and the model's description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from stabilizer.core.json_text import loads_python
from stabilizer.core.knobs import Checkpoint
from stabilizer.training import checkpoint as disk
from stabilizer.training.model import Policy, add_adapters, load_policy, merged_state
from stabilizer.training.settings import TrainConfig
from stabilizer.training.state import (
    NEEDED,
    Loaded,
    Progress,
    Weights,
    apply_weights,
    decode,
    decode_progress,
    decode_weights,
    most_bytes,
)
from stabilizer.training.tasks import random_bits


def read_state(checkpoint: Checkpoint, most: int | None = None) -> dict[str, bytes]:
    """The files of a state, verified and complete enough to continue from; CheckpointDamaged otherwise."""
    files = disk.read(checkpoint, most)
    if lacks := NEEDED - files.keys():
        raise disk.CheckpointDamaged(f"{checkpoint.path}: its manifest names no {min(lacks)}")
    try:
        loads_python(files["state.json"])
    except ValueError as error:
        raise disk.CheckpointDamaged(f"{checkpoint.path / 'state.json'}: {error}") from None
    return files


def load_state(checkpoint: Checkpoint, weights: Weights, held: Mapping[str, bytes] | None = None) -> Loaded:
    """A state that is sound and fits the models, from its files on disk or `held` in memory; CheckpointDamaged
    otherwise."""
    files = held or read_state(checkpoint, most_bytes(weights))
    try:
        loaded = decode(files, weights)
        if loaded.progress.step != checkpoint.step:
            raise ValueError(f"it is the state after step {loaded.progress.step}")
    except ValueError as error:
        raise disk.CheckpointDamaged(f"{checkpoint.path}: {error}") from error
    return loaded


def newest_progress(folder: Path) -> Progress | None:
    """The position of a run at the newest sound state of a folder; damaged ones are skipped."""
    for checkpoint in reversed(disk.scan(folder)):
        try:
            return decode_progress(read_state(checkpoint))
        except (ValueError, disk.CheckpointDamaged):
            continue
    return None


def starting_policy(config: TrainConfig, device: torch.device, dtype_name: str = "auto") -> Policy:
    """The model that a run starts from, before adapters are added; by default in the precision of the run."""
    name = dtype_name if dtype_name != "auto" else config.precision
    dtype = torch.bfloat16 if name == "bfloat16" else torch.float32
    return load_policy(config.model, config.task, device, dtype, attention=config.attention)


def adapt(policy: Policy, config: TrainConfig) -> None:
    """Add the adapters that the configuration requests, if any."""
    if lora := config.lora.rank:
        seed = random_bits(config.seed, "adapters") >> 1
        add_adapters(policy.model, rank=lora, alpha=config.lora.alpha, targets=config.lora.targets, seed=seed)


def saved_policy(config: TrainConfig, checkpoint: Checkpoint) -> Policy:
    """The policy of a state, on the CPU."""
    files = read_state(checkpoint)
    try:
        return policy_with(config, lambda weights: decode_weights(files, weights))
    except ValueError as error:
        raise disk.CheckpointDamaged(f"{checkpoint.path}: {error}") from error


def policy_with(config: TrainConfig, read: Callable[[Weights], Mapping[str, Mapping[str, Tensor]]]) -> Policy:
    """The policy of a configuration with other weights, on the CPU."""
    policy = starting_policy(config, torch.device("cpu"))
    adapt(policy, config)
    weights = Weights(policy.model, None)
    apply_weights(read(weights), weights)
    return policy


def write_policy(policy: Policy, config: TrainConfig, path: Path) -> None:
    """Write a policy, adapters merged in, as a folder that `transformers` and vLLM can load and `model` can name."""
    model = policy.model
    if config.lora.rank:
        model = starting_policy(config, model.device).model
        model.load_state_dict(merged_state(policy.model))
    model.save_pretrained(path)
    policy.tokenizer.save_pretrained(path)
