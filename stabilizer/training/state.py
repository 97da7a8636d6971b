"""A training state as files and back: weights, optimizer, and the integers that determine all random numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

import torch
from safetensors.torch import load as from_safetensors
from torch import Tensor, nn

from stabilizer.core import json_text
from stabilizer.core.knobs import Checkpoint
from stabilizer.training.tensor_file import TensorFile


@dataclass
class Progress:
    """The position of a run, without its weights. All of it is stored in a checkpoint."""

    seed: int
    step: int = 0
    """The last finished step."""
    salt: int = 0
    """Incremented when a rollback needs other prompts and random numbers than before."""
    cursor: int = 0
    """Prompts drawn so far."""
    tokens: int = 0
    """Prompt and completion tokens so far."""
    reference: bool = False
    """Whether the reference model has been loaded, and the KL to it measured."""
    reference_step: int = 0
    """The step after which the reference was last reset; 0 for the starting policy."""
    optimizer_step: int = 0
    """The step after which the optimizer's running averages were last reset."""
    reuse: bool = True
    """Whether the sampler's log-probabilities have always equalled the learner's, so that they may replace them."""
    beta_scale: float = 1.0
    """Factor of an adaptive coefficient on beta."""
    entropy_bonus: float = 0.0
    """Addition to the entropy coefficient while the entropy is below its target."""
    entropy_low: bool = False
    """Whether the entropy was below its target at the last step."""
    norms: list[float] = field(default_factory=list)
    """Gradient norms stored for adaptive clipping."""
    best: float | None = None
    """Best validation so far."""
    best_step: int = 0
    """The step of the best validation."""
    since_best: int = 0
    """Validations since then."""
    kept: list[int] = field(default_factory=list)
    """Steps whose states the user or a remedy asked to keep: they are never thinned out."""
    lineage: dict[str, int] = field(default_factory=dict)
    """Attempt (as text) -> the step after which it began. A rollback abandoned all checkpoints off this line."""

    def on_line(self, step: int, attempt: int) -> bool:
        """Whether the state after `step` of `attempt` is part of this run's past, and not of an abandoned branch."""
        later = [begin for other, begin in self.lineage.items() if int(other) > attempt]
        return str(attempt) in self.lineage and step <= min(later, default=step)

    def line(self, states: Iterable[Checkpoint]) -> list[Checkpoint]:
        """The checkpoints that are part of this run's past, oldest first."""
        present = [state for state in states if self.on_line(state.step, state.attempt)]
        return sorted(present, key=lambda state: (state.step, state.attempt))


class Weights:
    """The tensors in a checkpoint: all trained ones, and the stored buffers if the whole model is trained.

    For a model with adapters only these are kept: the rest never changes and is loaded from its source.
    """

    def __init__(self, model: nn.Module, critic: nn.Module | None):
        self.models = {"model": model} | ({"critic": critic} if critic else {})

    def named(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of each model, without duplicates: tied weights appear under their first name."""
        return {name: _tensors(model) for name, model in self.models.items()}

    def parameters(self) -> dict[str, Tensor]:
        """All parameters for which an optimizer may hold state, under unique names."""
        return {f"{kind}:{name}": p for kind, model in self.models.items() for name, p in model.named_parameters()}


def to_files(
    weights: Weights,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    knobs: Mapping[str, float],
    reference: Mapping[str, Tensor] | None = None,
) -> dict[str, bytes | TensorFile]:
    """The state as named files. Weights keep their bits, NaN included, and are read when a file is written."""
    moments = {
        f"{name}/{key}": value
        for name, parameter in weights.parameters().items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    tensors: dict[str, Mapping[str, Tensor]] = {f"{kind}.safetensors": named for kind, named in weights.named().items()}
    tensors["optimizer.safetensors"] = moments
    if reference:
        tensors["reference.safetensors"] = reference
    files = {file: TensorFile(named) for file, named in tensors.items()}
    state = {"progress": asdict(progress), "knobs": dict(knobs)}
    return files | {"state.json": json.dumps(state, indent=1).encode()}


@torch.no_grad()
def load_weights(files: Mapping[str, bytes], weights: Weights) -> None:
    """Load weights in place; ValueError for another model."""
    saved = {kind: from_safetensors(files.get(f"{kind}.safetensors", _NOTHING)) for kind in weights.models}
    present = weights.named()
    if _shapes(saved) != _shapes(present):
        raise ValueError("the checkpoint does not belong to the model in the configuration")
    for kind, tensors in present.items():
        for name, tensor in tensors.items():
            tensor.copy_(saved[kind][name])


def from_files(
    files: Mapping[str, bytes], weights: Weights, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, float], dict[str, Tensor] | None]:
    """Load weights and optimizer state in place; returns the rest. ValueError for another model."""
    load_weights(files, weights)
    optimizer.state.clear()
    parameters = weights.parameters()
    for key, value in from_safetensors(files["optimizer.safetensors"]).items():
        name, _, quantity = key.rpartition("/")
        optimizer.state[parameters[name]][quantity] = value.clone().to(parameters[name].device)
    state = json_text.loads_python(files["state.json"])
    device = next(iter(parameters.values())).device
    reference = None
    if "reference.safetensors" in files:
        reference = {name: t.to(device) for name, t in from_safetensors(files["reference.safetensors"]).items()}
    return Progress(**state["progress"]), state["knobs"], reference


NEEDED = frozenset({"optimizer.safetensors", "state.json"})
"""Files that every state must have, whatever its models are."""

_NOTHING = bytes(TensorFile({}))


def _shapes(models: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, tuple[int, ...]]]:
    return {kind: {name: tuple(t.shape) for name, t in tensors.items()} for kind, tensors in models.items()}


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    unique: dict[tuple[int, int], str] = {}
    state = model.state_dict(keep_vars=True)
    whole = all(p.requires_grad for p in model.parameters())
    for name, tensor in state.items():
        if whole or tensor.requires_grad:
            unique.setdefault((tensor.data_ptr(), tensor.numel()), name)
    return {name: state[name] for name in unique.values()}
