"""A training state as files and back: weights, optimizer, and the integers that determine all random numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from torch import Tensor, nn

from stabilizer.core import json_text
from stabilizer.core.knobs import Checkpoint
from stabilizer.training.optimizer import kept_of, possible
from stabilizer.training.rollout.ahead import Waiting, from_parts, to_parts
from stabilizer.training.sharding import is_part, like
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

    def __init__(self, model: nn.Module, critic: nn.Module | None, optimizer: str = "adamw"):
        self.optimizer = optimizer
        """The kind of optimizer whose state belongs to the weights."""
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
    waiting: Waiting | None = None,
) -> dict[str, bytes | TensorFile]:
    """The state as named files. Weights keep their bits, NaN included, and are read when a file is written."""
    moments = {
        f"{name}/{key}": torch.as_tensor(value)
        for name, parameter in weights.parameters().items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    tensors: dict[str, Mapping[str, Tensor]] = {f"{kind}.safetensors": named for kind, named in weights.named().items()}
    tensors["optimizer.safetensors"] = moments
    if reference:
        tensors["reference.safetensors"] = reference
    state = {"progress": asdict(progress), "knobs": dict(knobs)}
    if waiting:
        tensors["ahead.safetensors"], state["ahead"] = to_parts(waiting)
    files = {file: TensorFile(named) for file, named in tensors.items()}
    return files | {"state.json": json.dumps(state, indent=1).encode()}


@dataclass(frozen=True)
class Loaded:
    """A state that was read and fits the model, before anything of it is applied."""

    models: Mapping[str, Mapping[str, Tensor]]
    moments: Mapping[str, Mapping[str, Tensor]]
    """The optimizer's tensors of each parameter."""
    reference: Mapping[str, Tensor] | None
    progress: Progress
    knobs: Mapping[str, float]
    waiting: Waiting | None = None
    """The batch that was generated ahead."""


def decode(files: Mapping[str, bytes], weights: Weights) -> Loaded:
    """Read a whole state without applying it. ValueError when it can't be read, or belongs to another model."""
    try:
        models, moments = decode_weights(files, weights), _moments(files, weights)
        knobs = {str(name): float(value) for name, value in _position(files)["knobs"].items()}
        return Loaded(models, moments, _reference(files, weights), decode_progress(files), knobs, _waiting(files))
    except (SafetensorError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"it does not load ({type(error).__name__}: {error})") from error


def _moments(files: Mapping[str, bytes], weights: Weights) -> dict[str, dict[str, Tensor]]:
    """The optimizer's tensors of each parameter. ValueError where one does not fit, or is missing."""
    moments: dict[str, dict[str, Tensor]] = {}
    parameters = weights.parameters()
    kept = {name: kept_of(parameter, weights.optimizer) for name, parameter in parameters.items()}
    for key, value in from_safetensors(files["optimizer.safetensors"]).items():
        name, _, quantity = key.rpartition("/")
        if tuple(value.shape) != kept.get(name, {}).get(quantity):
            raise ValueError(f"its optimizer has {key} {list(value.shape)}, which fits no parameter of the model")
        if not possible(quantity, value, parameters[name], weights.optimizer):
            raise ValueError(f"its optimizer has {key} with values that no optimizer keeps ({value.dtype})")
        moments.setdefault(name, {})[quantity] = value
    for name, held in moments.items():
        if lacks := kept[name].keys() - held.keys():
            raise ValueError(f"its optimizer lacks {name}/{min(lacks)}")
    return moments


def decode_weights(files: Mapping[str, bytes], weights: Weights) -> dict[str, dict[str, Tensor]]:
    """The models of a state. ValueError for those of another model, or for what can't be read."""
    try:
        saved = {kind: from_safetensors(files.get(f"{kind}.safetensors", _NOTHING)) for kind in weights.models}
    except SafetensorError as error:
        raise ValueError(f"its weights do not load ({error})") from error
    if _forms(saved) != _forms(weights.named()):
        raise ValueError("the checkpoint does not belong to the model in the configuration")
    return saved


@torch.no_grad()
def apply_weights(saved: Mapping[str, Mapping[str, Tensor]], weights: Weights) -> None:
    """Copy weights into the models."""
    for kind, tensors in weights.named().items():
        for name, tensor in tensors.items():
            tensor.copy_(like(saved[kind][name], tensor))


def apply(loaded: Loaded, weights: Weights, optimizer: torch.optim.Optimizer) -> dict[str, Tensor] | None:
    """Put weights and optimizer state in place; returns the reference on their device."""
    apply_weights(loaded.models, weights)
    optimizer.state.clear()
    parameters = weights.parameters()
    for name, held in loaded.moments.items():
        parameter = parameters[name]
        moments = {quantity: like(value.clone(), parameter) for quantity, value in held.items()}
        optimizer.state[parameter].update(moments)
    if loaded.reference is None:
        return None
    return {name: like(tensor, parameters[f"model:{name}"]) for name, tensor in loaded.reference.items()}


def most_bytes(weights: Weights) -> int:
    """The largest state that can belong to these models. A larger one is not read."""
    return MOST_BYTES_PER_PARAMETER * sum(p.numel() for p in weights.parameters().values()) + MOST_BYTES_BESIDE


def _reference(files: Mapping[str, bytes], weights: Weights) -> dict[str, Tensor] | None:
    if "reference.safetensors" not in files:
        return None
    reference = from_safetensors(files["reference.safetensors"])
    shapes = {name: p.shape for name, p in weights.models["model"].named_parameters()}
    if odd := [name for name, tensor in reference.items() if shapes.get(name) != tensor.shape]:
        raise ValueError(f"its reference has {odd[0]}, which does not fit the model")
    return dict(reference)


def _waiting(files: Mapping[str, bytes]) -> Waiting | None:
    if "ahead.safetensors" not in files:
        return None
    return from_parts(from_safetensors(files["ahead.safetensors"]), _position(files)["ahead"])


def decode_progress(files: Mapping[str, bytes]) -> Progress:
    """The position in a state, with every field of its own type; ValueError otherwise."""
    try:
        progress = Progress(**_position(files)["progress"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"its position can't be read ({type(error).__name__}: {error})") from error
    wrong = [
        name for name, like in vars(Progress(seed=0, best=0.0)).items() if not _fits(getattr(progress, name), like)
    ]
    if wrong and (wrong != ["best"] or progress.best is not None):
        raise ValueError(f"its {wrong[0]} is {str(getattr(progress, wrong[0]))[:40]!r}")
    if not _plausible(progress):
        raise ValueError("its position holds values that are no numbers of a run")
    return progress


def _plausible(progress: Progress) -> bool:
    """Whether the values are possible in a run. ValueError where an attempt is no number."""
    steps = (*progress.kept, *progress.lineage.values(), *map(int, progress.lineage))
    counts = [value for name, value in vars(progress).items() if type(value) is int and name != "seed"]
    amounts = (progress.beta_scale, progress.entropy_bonus, *progress.norms)
    return all(isinstance(step, int) and step >= 0 for step in (*steps, *counts)) and all(
        isinstance(amount, (int, float)) and 0 <= amount < math.inf for amount in amounts
    )


def _fits(value: object, like: object) -> bool:
    """Whether a value has the type of another; a whole number is a number too."""
    return type(value) is type(like) or (isinstance(like, float) and type(value) is int)


NEEDED = frozenset({"optimizer.safetensors", "state.json"})
"""Files that every state must have, whatever its models are."""

MOST_BYTES_PER_PARAMETER = 32
"""Weights, their copy in float32, two moments and the reference are 20 bytes; the rest is room for headers."""

MOST_BYTES_BESIDE = 64 * 1024 * 1024
"""Bytes of a state beside its tensors: buffers, headers, and the position."""

_NOTHING = bytes(TensorFile({}))


def _position(files: Mapping[str, bytes]) -> dict[str, Any]:
    state = json_text.loads_python(files["state.json"])
    if not isinstance(state, dict):
        raise ValueError("its state.json is no object")
    return state


def _forms(models: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, tuple[object, ...]]]:
    """The shape of each tensor, and whether it holds fractions."""
    return {
        kind: {name: (*t.shape, t.is_floating_point()) for name, t in tensors.items()}
        for kind, tensors in models.items()
    }


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    unique: dict[tuple[int, ...], str] = {}
    state = model.state_dict(keep_vars=True)
    whole = all(p.requires_grad for p in model.parameters())
    for name, tensor in state.items():
        if whole or tensor.requires_grad:
            place = (id(tensor),) if is_part(tensor) else (tensor.data_ptr(), tensor.numel())
            unique.setdefault(place, name)
    return {name: state[name] for name in unique.values()}
