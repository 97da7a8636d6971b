"""The weights of a Llama-like model (Llama, Mistral, Qwen2, Qwen3) as the few matrices that `forward` computes with.

Weights are read from the model at every call, so they cannot become stale. `refusal` names the features of a model that
are not implemented here; such a model runs with its own code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stabilizer.training.rollout.logprobs import PLAIN_MODELS, hooked

ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings with frequencies that do not depend on the length."""

LARGEST = 500_000_000
"""Parameters above which a model is left to `transformers`: arithmetic then takes nearly all the time, and copies cost
memory."""


class Linear(NamedTuple):
    """One or several linear layers, stacked."""

    weight: Tensor
    bias: Tensor | None


class Layer(NamedTuple):
    """The weights of one block."""

    attention_norm: Tensor
    qkv: Linear
    head_norms: Tensor | None
    """Qwen3's norms of every query and key, one row per head."""
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Weights(NamedTuple):
    """All weights of a model that the forward pass reads.

    In queries and keys, the two numbers that a rotary embedding rotates as a pair are neighbours here; in the model
    they are half a head apart. Products of queries and keys are the same in either order.
    """

    embedding: Tensor
    padding: int | None
    """The token whose embedding gets no gradient."""
    layers: list[Layer]
    norm: Tensor
    head: Linear
    heads: int
    kv_heads: int
    head_dim: int
    eps: Tensor
    """Added to mean squares before the square root. A tensor, because every norm needs it as one."""
    frequencies: Tensor
    rope_scale: float


def refusal(model: nn.Module) -> str | None:
    """A feature of this model that is not implemented here, in words; None if the model is supported."""
    if type(model) not in PLAIN_MODELS:
        return f"architecture {type(model).__name__}"
    llama: Any = model
    config = llama.config
    if llama.device.type != "cpu":
        return f"device {llama.device.type}"  # its attention has a mask and shared keys: no fused kernel takes both
    if sum(parameter.numel() for parameter in model.parameters()) > LARGEST:
        return f"more than {LARGEST:,} parameters"
    if torch.is_autocast_enabled(llama.device.type):
        return "mixed precision"
    kind = config.rope_parameters["rope_type"]
    if kind not in ROPES:
        return f"rotary embedding {kind!r}"
    if getattr(config, "sliding_window", None) is not None:
        return f"sliding window of {config.sliding_window} tokens"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act!r}"
    if model.training and config.attention_dropout > 0:
        return "dropout"
    for name, module in model.named_modules():
        if hooked(module):
            return f"a hook or another forward on {name or 'the model'}"
        if vars(module).get("gradient_checkpointing"):
            return "gradient checkpointing"
    for module in _linears(llama):
        if type(module) is not nn.Linear:
            return f"a linear layer of type {type(module).__name__}"
    if type(llama.model.embed_tokens) is not nn.Embedding:
        return f"an embedding of type {type(llama.model.embed_tokens).__name__}"
    return None


def _linears(model: Any) -> Iterator[nn.Module]:
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            yield from (module for name, module in part.named_children() if name.endswith("_proj"))
    yield model.lm_head


def read(model: Any) -> Weights:
    """The current weights. Query, key and value become one matrix, and so do gate and up: fewer, larger products."""
    config, base = model.config, model.model
    dtype, device = base.embed_tokens.weight.dtype, base.embed_tokens.weight.device
    head_dim = base.layers[0].self_attn.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    order = _order(heads, kv_heads, head_dim).to(device)
    layers = []
    for block in base.layers:
        attention, mlp = block.self_attn, block.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            query, key = attention.q_norm.weight, attention.k_norm.weight
            norms = torch.cat([query.expand(heads, -1), key.expand(kv_heads, -1)])
            norms = norms.flatten()[order[: norms.numel()]].view(norms.shape)
        qkv = _stack(attention.q_proj, attention.k_proj, attention.v_proj)
        layers.append(
            Layer(
                attention_norm=block.input_layernorm.weight,
                qkv=Linear(qkv.weight[order], None if qkv.bias is None else qkv.bias[order]),
                head_norms=norms,
                out=_stack(attention.o_proj),
                mlp_norm=block.post_attention_layernorm.weight,
                gate_up=_stack(mlp.gate_proj, mlp.up_proj),
                down=_stack(mlp.down_proj),
            )
        )
    return Weights(
        embedding=base.embed_tokens.weight,
        padding=base.embed_tokens.padding_idx,
        layers=layers,
        norm=base.norm.weight,
        head=_stack(model.lm_head),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        eps=torch.tensor(config.rms_norm_eps, dtype=torch.promote_types(dtype, torch.float32), device=device),
        frequencies=base.rotary_emb.inv_freq,
        rope_scale=base.rotary_emb.attention_scaling,
    )


@functools.cache
def _order(heads: int, kv_heads: int, head_dim: int) -> Tensor:
    """Rows 0, 1, ..., D - 1 of every query and key head in the order 0, D/2, 1, D/2 + 1, ...; values unchanged."""
    row = torch.arange((heads + 2 * kv_heads) * head_dim).view(-1, head_dim)
    row[: heads + kv_heads] = row[: heads + kv_heads].unflatten(1, (2, -1)).transpose(1, 2).flatten(1)
    return row.flatten()


def _stack(*layers: nn.Linear) -> Linear:
    if len(layers) == 1:
        return Linear(layers[0].weight, layers[0].bias)
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return Linear(torch.cat([layer.weight for layer in layers]), torch.cat(biases) if biases else None)
