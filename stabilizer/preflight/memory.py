"""How much memory a training process needs on its GPU: an estimate from the usual formula, part by part.

Full fine-tuning with AdamW in mixed precision, for N parameters on R training processes:

    weights       2 N bytes (bf16)                                     divided by R under zero3 (also FSDP full shard)
    gradients     2 N                                                  divided by R under zero2 and zero3
    optimizer     12 N (fp32 copy and two moments)                     divided by R under zero2 and zero3
    reference     2 N, where the KL needs one                          divided by R under zero3
    activations   tokens x hidden x (2 layers + 34): a checkpoint per layer, and one layer being recomputed
    logits        completion tokens x vocabulary x 10: bf16, an fp32 copy, its gradient
    generation    without vLLM: the gathered weights (2 N) and the KV cache of the process's completions
    vllm          colocated: 2.2 N / tensor parallel + 1.5 GiB, and the KV cache of up to 64 sequences
    other         2 GiB of context and buffers, and two gathered layers

where tokens = per-device batch x (prompt + completion length). Training and generation follow each other, so the
larger of the two counts; a vLLM that doesn't sleep during training is added to both. Trainers that fuse the logits
away need less, longer prompts than stated need more: expect 20 % either way, and try the first plan.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

GIB = 2**30
SHARDINGS = ("zero3", "zero2", "none")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What of a model the formula needs."""

    parameters: float
    layers: int
    hidden: int
    kv_width: int
    """Key-value heads times their width."""
    vocabulary: int = 151_936


SHAPES = (
    Shape(parameters=0.5e9, layers=24, hidden=896, kv_width=128),
    Shape(parameters=1.5e9, layers=28, hidden=1536, kv_width=256),
    Shape(parameters=3.1e9, layers=36, hidden=2048, kv_width=256),
    Shape(parameters=7.6e9, layers=28, hidden=3584, kv_width=512),
    Shape(parameters=14.8e9, layers=48, hidden=5120, kv_width=1024),
    Shape(parameters=32.8e9, layers=64, hidden=5120, kv_width=1024),
    Shape(parameters=72.7e9, layers=80, hidden=8192, kv_width=1024),
)
"""The dense Qwen2.5 models; another size takes the layers and widths of the nearest."""


def model_shape(size: str) -> Shape:
    """`7B`, `1.5b` or `500M` as a shape; anything else is an error that says how to write it."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([BbMm])", size.strip())
    parameters = float(found[1]) * (1e9 if found[2] in "Bb" else 1e6) if found else 0.0
    if not 1e6 <= parameters <= 2e12:
        raise ValueError(f"{size!r} is not a model size; write it like 7B or 500M")
    like = min(SHAPES, key=lambda shape: abs(math.log(shape.parameters / parameters)))
    return replace(like, parameters=parameters)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """GiB on one GPU, by part."""

    weights: float
    gradients: float
    optimizer: float
    reference: float
    activations: float
    logits: float
    generation: float
    vllm: float
    vllm_sleeps: bool
    other: float

    @property
    def total(self) -> float:
        """The peak: what always lies there, and the larger of training and generating."""
        resident = self.weights + self.gradients + self.optimizer + self.reference + self.other
        train = self.activations + self.logits
        if self.vllm_sleeps:
            return resident + max(train, self.vllm)
        return resident + self.vllm + max(train, self.generation)


def kv_bytes(shape: Shape, sequences: int, length: int) -> float:
    """Bytes of the keys and values, bf16, of that many sequences."""
    return 2 * 2 * shape.layers * shape.kv_width * sequences * length


def engine_gib(shape: Shape, tensor_parallel: int, sequences: int, length: int) -> float:
    """GiB that a vLLM engine needs on each of its GPUs to be of use: weights, workspace, and a cache to batch in."""
    batch = kv_bytes(shape, min(sequences, 64), length)
    return (2.2 * shape.parameters + batch) / tensor_parallel / GIB + 1.5


def estimate(
    shape: Shape,
    *,
    ranks: int,
    sharding: str,
    reference: bool,
    per_device: int,
    prompt_length: int,
    completion_length: int,
    generated: int = 0,
    vllm: float = 0.0,
    vllm_sleeps: bool = False,
) -> Memory:
    """The formula above. `generated`: completions this process generates itself, 0 where vLLM does it."""
    n = shape.parameters
    whole = ranks if sharding == "zero3" else 1
    partly = ranks if sharding in ("zero3", "zero2") else 1
    length = prompt_length + completion_length
    gathered = 4 * n / shape.layers if sharding == "zero3" else 0.0
    generation = 0.0
    if generated:
        generation = kv_bytes(shape, generated, length) + (2 * n if sharding == "zero3" else 0.0)
    return Memory(
        weights=2 * n / whole / GIB,
        gradients=2 * n / partly / GIB,
        optimizer=12 * n / partly / GIB,
        reference=2 * n / whole / GIB if reference else 0.0,
        activations=per_device * length * shape.hidden * (2 * shape.layers + 34) / GIB,
        logits=per_device * completion_length * shape.vocabulary * 10 / GIB,
        generation=generation / GIB,
        vllm=vllm,
        vllm_sleeps=vllm_sleeps,
        other=2.0 + gathered / GIB,
    )
