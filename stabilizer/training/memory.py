"""How much memory a training needs, from its configuration and the model's description: no weight is loaded.

The model's own code runs on fake tensors of torch, which have shapes and no content, and torch's memory tracker counts
what a pass with gradients keeps. The sizes of weights, gradients, moments, reference and cache are exact. What the
allocator cannot reuse comes on top. `python -m bench.train.predicted` compares the sums with trainings.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from stabilizer.training.fast.forward import Layout, hidden_states, rope
from stabilizer.training.fast.weights import _order, read, refusal
from stabilizer.training.head import CHUNK, CHUNK_CUDA
from stabilizer.training.model import source_of
from stabilizer.training.optimizer import kept_of
from stabilizer.training.settings import TrainConfig

BYTES = {"float32": 4, "bfloat16": 2}
SAMPLED = 4 + 4 + 8 + 4
"""Bytes per logit while a token is chosen: the logits, softmax, its running sum in float64, and log-softmax."""


class Need(NamedTuple):
    """Bytes in one process, by part."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    critic: int
    """A critic with its gradients and moments."""
    update: int
    """What a pass with gradients needs on top of gradients at its peak."""
    generation: int
    """The cache of keys and values, and the logits of one token; asynchronously also a copy of the weights."""
    process: int = 0
    """Python and its libraries, on a CPU: what this process holds before any model is made."""
    overlap: bool = False
    """Whether generation and updates go on at the same time."""

    @property
    def peak(self) -> int:
        """The most at one time."""
        parts = (self.update, self.generation)
        return sum(self[:5]) + self.process + (sum(parts) if self.overlap else max(parts))


def needed(config: TrainConfig, *, prompt_tokens: int, processes: int = 1, device: str = "cpu") -> Need:
    """The need of each process, with prompts of this length and completions of the greatest length."""
    folder, more = source_of(config.model, config.task)
    process = _resident() if device == "cpu" else 0
    description = AutoConfig.from_pretrained(folder, trust_remote_code=False, **more)
    dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
    parts = processes if config.sharding == "full" else 1
    with FakeTensorMode(), torch.device("cpu"):
        model = _model(config, description, dtype)
        learns = _adapters(model, config) if config.lora.rank else list(model.parameters())
        weights = _bytes(list(model.parameters()))
        learning, moments = _bytes(learns), sum(_moments(p, config.optim.kind) for p in learns)
        update = _update(config, model, prompt_tokens, processes, device)
    copied = config.rollout.asynchronous and config.rollout.engine == "builtin"
    separate = config.critic.kind == "separate"
    critic = weights + learning + moments if separate else 0
    return Need(
        weights=weights if config.rollout.engine == "builtin" else weights // parts,
        gradients=learning // parts,
        optimizer=moments // parts,
        reference=_reference(config, model, weights) // parts,
        critic=critic // parts,
        update=2 * update if separate else update,  # one pass goes through both models
        generation=_generation(config, description, dtype, prompt_tokens, processes) + (weights if copied else 0),
        process=process,
        overlap=copied,
    )


def _resident() -> int:
    """Bytes of this process now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _model(config: TrainConfig, description: Any, dtype: torch.dtype) -> PreTrainedModel:
    chosen = {} if config.attention == "auto" else {"attn_implementation": config.attention}
    model: PreTrainedModel = AutoModelForCausalLM.from_config(description, dtype=dtype, **chosen)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train(config.gradient_checkpointing)
    return model


def _adapters(model: PreTrainedModel, config: TrainConfig) -> list[nn.Parameter]:
    """Adapters in float32; their pass keeps about as much as that of the whole model."""
    wanted = config.lora.targets.split(",")
    layers = [
        part
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and part is not model.get_output_embeddings()
        if wanted == ["all-linear"] or name.rpartition(".")[2] in map(str.strip, wanted)
    ]
    return [nn.Parameter(torch.empty(config.lora.rank, part.in_features + part.out_features)) for part in layers]


def _bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _moments(parameter: Tensor, kind: str) -> int:
    """Bytes of the optimizer's state; the two moments of 8 bits are those with the parameter's shape."""
    kept, small = kept_of(parameter, kind), kind != "adamw" and parameter.numel() >= 4096
    return sum(prod(shape) * (1 if small and name in ("state1", "state2") else 4) for name, shape in kept.items())


def _reference(config: TrainConfig, model: PreTrainedModel, weights: int) -> int:
    policy = config.policy
    if config.policy.beta == 0 or config.lora.rank or (policy.reference_offload and config.device != "cpu"):
        return 0
    if policy.reference_dtype == "auto":
        return weights
    return sum(p.numel() for p in model.parameters()) * BYTES[policy.reference_dtype]


def _update(config: TrainConfig, model: PreTrainedModel, prompt: int, processes: int, device: str) -> int:
    """Bytes that the largest pass with gradients adds at its peak, without the gradients of the weights."""
    rollout = config.rollout
    rows = -(-rollout.prompts * rollout.group_size // config.policy.minibatches)
    rows = min(config.optim.micro_batch or rows, -(-rows // processes))
    length = prompt + rollout.max_completion
    if config.optim.micro_tokens:
        rows = max(1, min(rows, config.optim.micro_tokens // length))
    tracker = MemTracker()
    tracker.track_external(model)
    with tracker:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "mixed"):
            states = _states(config, model, rows, prompt, device)
        head: Any = model.get_output_embeddings()
        chunk = CHUNK_CUDA if device == "cuda" else CHUNK
        tokens = min(max(1, chunk // head.weight.shape[0]), rows * rollout.max_completion)
        logits = [torch.empty(tokens, head.weight.shape[0]) for _ in range(3)]
        if head.weight.requires_grad:
            head.weight.grad = torch.empty_like(head.weight)
        del logits
        states.backward(torch.empty_like(states))
    total = sum(counts["Total"] for counts in tracker.get_tracker_snapshot("peak").values())
    resident = _bytes(list(model.parameters())) + _bytes([p for p in model.parameters() if p.requires_grad])
    return max(0, total - resident)


def _states(config: TrainConfig, model: PreTrainedModel, rows: int, prompt: int, device: str) -> Tensor:
    """The last hidden states of a pass, by the code that training uses."""
    length = config.rollout.max_completion
    if config.fast == "off" or device == "cuda" or refusal(model) is not None:
        ids = torch.zeros(rows, prompt + length - 1, dtype=torch.int64)
        states: Tensor = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        return states
    prompts = -(-rows // config.rollout.group_size)
    tokens = prompts * prompt + rows * (length - 1)
    mask = torch.ones(rows, 1, length - 1, prompt + length - 1, dtype=torch.bool)
    of = torch.zeros(rows, dtype=torch.int64)
    at = Layout(prompts, prompt, length - 1, None, of, mask)
    _order.cache_clear()  # it may hold tensors that are not fake
    try:
        weights = read(model)
        return hidden_states(weights, torch.zeros(tokens, dtype=torch.int64), rope(weights, torch.zeros(tokens)), at)
    finally:
        _order.cache_clear()


def _generation(config: TrainConfig, description: Any, dtype: torch.dtype, prompt: int, processes: int) -> int:
    if config.rollout.engine != "builtin":
        return 0
    text = description.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    rows = -(-config.rollout.prompts // processes) * config.rollout.group_size
    kept = 2 * text.num_hidden_layers * heads * size * (prompt + config.rollout.max_completion) * dtype.itemsize
    return int(rows * (kept + text.vocab_size * SAMPLED))
