"""A training state as files and back: weights, optimizer, and the integers from which everything random follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import torch
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn


@dataclass
class Progress:
    """Where a run stands, apart from its weights. All of it is stored with a checkpoint."""

    seed: int
    step: int = 0
    """The last finished step."""
    salt: int = 0
    """Raised when a rollback wants other prompts and other random numbers than last time."""
    cursor: int = 0
    """Prompts drawn so far."""
    tokens: int = 0
    """Prompt and completion tokens so far."""
    reference: bool = False
    """Whether the reference model has been loaded, and the KL to it measured."""
    lineage: dict[str, int] = field(default_factory=dict)
    """Attempt (as text) -> the step it began after. A checkpoint off this line was left behind by a rollback."""

    def on_line(self, step: int, attempt: int) -> bool:
        """Whether the state after `step` of `attempt` is part of this run's past, and not of an abandoned branch."""
        later = [begin for other, begin in self.lineage.items() if int(other) > attempt]
        return str(attempt) in self.lineage and step <= min(later, default=step)


def to_files(
    model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, knobs: Mapping[str, float]
) -> dict[str, bytes]:
    """The state as named bytes. Weights keep their bits, NaN included."""
    moments = {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    return {
        "model.safetensors": to_safetensors({name: t.detach().contiguous() for name, t in _tensors(model).items()}),
        "optimizer.safetensors": to_safetensors(moments),
        "state.json": json.dumps({"progress": asdict(progress), "knobs": dict(knobs)}, indent=1).encode(),
    }


@torch.no_grad()
def from_files(
    files: Mapping[str, bytes], model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, float]]:
    """Load weights and optimizer state in place; returns the rest. ValueError when the model is another."""
    saved, tensors = from_safetensors(files["model.safetensors"]), _tensors(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in saved.items()}:
        raise ValueError("the checkpoint holds another model than the configuration names")
    for name, tensor in tensors.items():
        tensor.copy_(saved[name])
    optimizer.state.clear()
    parameters = dict(model.named_parameters())
    for key, value in from_safetensors(files["optimizer.safetensors"]).items():
        name, _, quantity = key.rpartition("/")
        optimizer.state[parameters[name]][quantity] = value.clone().to(parameters[name].device)
    state = json.loads(files["state.json"])
    return Progress(**state["progress"]), state["knobs"]


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and stored buffers, each memory once: tied weights appear under their first name."""
    unique: dict[tuple[int, int], str] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        unique.setdefault((tensor.data_ptr(), tensor.numel()), name)
    return {name: state[name] for name in unique.values()}
