"""The forward pass of Llama-like models (Llama, Mistral, Qwen2, Qwen3) in plain torch operations, for small models.

`transformers` spends more on modules, cache objects and masks than a small model spends on arithmetic, and it reads a
prompt once for every completion. Here tokens lie flat, one row each, whatever sequence they belong to, and a function
given by the caller says how they attend to one another: a prompt to itself, a new token to its cache, the completions
of a group to the one copy of their prompt.

Weights are read from the model at every call, so nothing can go stale; what they compute is proved equal to the model's
own forward by tests. `refusal` says what a model has that is not implemented here; such a model runs by its own code.

Shape letters: N tokens, H hidden, A attention heads, K key/value heads, D head size, P prompts, L prompt length,
B rows (completions), T completion length, S cache length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, linear, scaled_dot_product_attention, silu
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

MODELS = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
"""Exactly these classes: a subclass may compute something else."""
ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies don't change with the length."""

LARGEST = 500_000_000
"""Parameters above which a model is left to `transformers`: arithmetic is all its time then, and copies cost memory."""

Attend = Callable[[int, Tensor], Tensor]
"""(layer, heads of queries, keys and values) -> what each token takes from those it may see, (N, A x D)."""


class Linear(NamedTuple):
    """One or several linear layers, stacked."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def plus(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + self(x), without a pass over memory of its own for the sum."""
        return torch.addmm(residual if self.bias is None else residual + self.bias, x, self.weight.T)


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
    """Everything the forward pass reads of a model.

    In queries and keys the two numbers that a rotary embedding turns as a pair stand next to each other, half a head
    apart in the model. Their products don't notice.
    """

    embedding: Tensor
    padding: int | None
    """The token whose embedding never learns, though the model may write it."""
    layers: list[Layer]
    norm: Tensor
    head: Linear
    heads: int
    kv_heads: int
    head_dim: int
    eps: Tensor
    """A number, as a tensor on the model's device: making one anew for every norm would be a tenth of its cost."""
    frequencies: Tensor
    rope_scale: float


def refusal(model: nn.Module, *, training: bool) -> str | None:
    """What this model has that is not implemented here, in words; None when it can be computed here.

    With `training` also that which would compute the same, but not for its gradients or within its memory.
    """
    if type(model) not in MODELS:
        return f"architecture {type(model).__name__}"
    config = model.config
    if model.num_parameters() > LARGEST:
        return f"more than {LARGEST:,} parameters"
    if torch.is_autocast_enabled(model.device.type):
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
        if training and getattr(module, "gradient_checkpointing", False):
            return "gradient checkpointing"
    for module in _linears(model):
        if type(module) is not nn.Linear and (training or not _mergeable(module)):
            return f"a linear layer of type {type(module).__name__}"
    if type(model.model.embed_tokens) is not nn.Embedding:
        return f"an embedding of type {type(model.model.embed_tokens).__name__}"
    return None


def hooked(*modules: nn.Module) -> bool:
    """Whether calling one of these modules does more, or other things, than its class says."""
    return any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in modules)


def _linears(model: nn.Module) -> Iterator[nn.Module]:
    for block in model.model.layers:
        attention, mlp = block.self_attn, block.mlp
        yield from (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        yield from (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    yield model.lm_head


def _mergeable(module: nn.Module) -> bool:
    """Whether this is a linear layer of PEFT whose adapters are plain low-rank ones, so that they can be summed up."""
    return isinstance(getattr(module, "lora_A", None), nn.ModuleDict) and (
        type(module.base_layer) is nn.Linear and not module.lora_variant
    )


def read(model: nn.Module, *, training: bool) -> Weights:
    """The present weights. Query, key and value, and gate and up, become one matrix each: fewer, larger products.

    For sampling, matrices are copied in the order in memory that suits a product with few rows.
    """
    config, base = model.config, model.model
    head_dim = base.layers[0].self_attn.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    layers = []
    for block in base.layers:
        attention, mlp = block.self_attn, block.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            query, key = (_paired(norm.weight, head_dim) for norm in (attention.q_norm, attention.k_norm))
            norms = torch.cat([query.expand(heads, -1), key.expand(kv_heads, -1)])
        layers.append(
            Layer(
                attention_norm=block.input_layernorm.weight,
                qkv=_stack(
                    attention.q_proj, attention.k_proj, attention.v_proj, training=training, paired=(2, head_dim)
                ),
                head_norms=norms,
                out=_stack(attention.o_proj, training=training),
                mlp_norm=block.post_attention_layernorm.weight,
                gate_up=_stack(mlp.gate_proj, mlp.up_proj, training=training),
                down=_stack(mlp.down_proj, training=training),
            )
        )
    return Weights(
        embedding=base.embed_tokens.weight,
        padding=base.embed_tokens.padding_idx,
        layers=layers,
        norm=base.norm.weight,
        head=_stack(model.lm_head, training=training),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        eps=base.embed_tokens.weight.new_tensor(config.rms_norm_eps, dtype=_wide(base.embed_tokens.weight.dtype)),
        frequencies=base.rotary_emb.inv_freq,
        rope_scale=base.rotary_emb.attention_scaling,
    )


def _stack(*modules: nn.Module, training: bool, paired: tuple[int, int] = (0, 0)) -> Linear:
    """With `paired` (how many, head size) the heads that the first modules compute are in the order of `_paired`."""
    layers = [_merged(module) for module in modules]
    count, head_dim = paired
    layers[:count] = [Linear(*(_paired(x, head_dim) for x in layer)) for layer in layers[:count]]
    weight, bias = (_joined(parts) for parts in zip(*layers, strict=True))
    return Linear(weight if training else weight.T.contiguous().T, bias)


def _paired(x: Tensor | None, head_dim: int) -> Tensor | None:
    """Rows 0, 1, ..., D - 1 of every head in the order 0, D/2, 1, D/2 + 1, ..."""
    return None if x is None else x.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).reshape(x.shape)


def _joined(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    return parts[0] if parts[0] is None or len(parts) == 1 else torch.cat(parts)


def _merged(module: nn.Module) -> Linear:
    """A linear layer with its active low-rank adapters added to it, W + scale x B A."""
    if type(module) is nn.Linear:
        return Linear(module.weight, module.bias)
    weight = module.base_layer.weight
    if not module.disable_adapters and not module.merged:
        for name in module.active_adapters:
            if name in module.lora_A:
                weight = weight + module.get_delta_weight(name).to(weight.dtype)
    return Linear(weight, module.base_layer.bias)


def rope(weights: Weights, position: Tensor) -> Tensor:
    """What `hidden_states` turns queries and keys by at these positions: complex numbers, (..., 1, D / 2)."""
    angle = position[..., None].float() * weights.frequencies.float()
    return torch.complex(angle.cos() * weights.rope_scale, angle.sin() * weights.rope_scale).unsqueeze(-2)


def hidden_states(weights: Weights, ids_N: Tensor, rope: Tensor, attend: Attend) -> Tensor:
    """The normalised last hidden state of every token, (N, H)."""
    w = weights
    x = embedding(ids_N, w.embedding, w.padding)
    for i, layer in enumerate(w.layers):
        qkv = layer.qkv(norm(x, layer.attention_norm, w.eps))
        if layer.head_norms is not None:
            qkv = _head_norms(qkv, layer.head_norms, w.eps)
        qkv = turned(qkv, rope, (w.heads + w.kv_heads) * w.head_dim)
        x = layer.out.plus(x, attend(i, qkv.view(len(x), -1, w.head_dim)))
        x = layer.down.plus(x, gated(layer.gate_up(norm(x, layer.mlp_norm, w.eps))))
    return norm(x, w.norm, w.eps)


def _head_norms(qkv: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    qk, value = qkv.tensor_split([weight.numel()], dim=1)
    return torch.cat([norm(qk.view(-1, *weight.shape), weight, eps).flatten(1), value], dim=1)


def turned(qkv: Tensor, rope: Tensor, count: int) -> Tensor:
    """`qkv` itself, with the pairs among the first `count` numbers of each token turned."""
    if qkv.requires_grad and torch.is_grad_enabled():
        return _Turned.apply(qkv, rope, count)
    _turn(qkv, rope, count)
    return qkv


def _turn(qkv: Tensor, rope: Tensor, count: int) -> None:
    part = qkv[:, :count]
    pairs = torch.view_as_complex(part.to(_wide(part.dtype)).view(len(part), -1, rope.shape[-1], 2))
    if pairs.data_ptr() == part.data_ptr():
        pairs.mul_(rope)
    else:  # there are no complex numbers of half the precision
        part.copy_(torch.view_as_real(pairs * rope).flatten(1))


class _Turned(torch.autograd.Function):
    """By hand, so that it is done in place; a gradient is turned the other way."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, rope: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(rope)
        ctx.count = count
        ctx.mark_dirty(qkv)
        _turn(qkv, rope, count)
        return qkv

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        grad = grad.clone(memory_format=torch.contiguous_format)
        _turn(grad, ctx.saved_tensors[0].conj(), ctx.count)
        return grad, None, None


def norm(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, the first part in the dtype of eps."""
    if x.requires_grad and torch.is_grad_enabled():
        return _Norm.apply(x, weight, eps)
    return _normalised(x, eps)[0] * weight


def _normalised(x: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=eps.dtype)
    scale = torch.addcmul(eps, length, length, value=1 / x.shape[-1]).rsqrt_()
    return (x * scale).to(x.dtype), scale


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


class _Norm(torch.autograd.Function):
    """With y = x s the normalised input, H its size and g = grad * weight: dx = s (g - y mean(g y)), dweight = grad y.

    By hand, because autograd's way keeps four tensors and makes ten passes over memory, and memory is what it costs.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
        y, scale = _normalised(x, eps)
        ctx.save_for_backward(y, scale, weight)
        return y * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        y, scale, weight = ctx.saved_tensors
        grad_weight = grad * y
        # mean(g y) = mean(grad y weight): the product for the weight's own gradient serves a second time
        share = (grad_weight @ weight if weight.dim() == 1 else (grad_weight * weight).sum(-1)) / y.shape[-1]
        grad_x = torch.addcmul(grad * weight, y, share[..., None].to(y.dtype), value=-1.0).mul_(scale)
        return grad_x, grad_weight.sum(tuple(range(grad.dim() - weight.dim()))), None


def gated(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of the two halves of the last dimension."""
    if torch.is_grad_enabled() and gate_up.requires_grad:
        return _Gated.apply(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


class _Gated(torch.autograd.Function):
    """By hand, so that both halves' gradients are written where the product before wants them."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        open_gate = silu(gate)
        ctx.save_for_backward(gate_up, open_gate)
        return open_gate * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        gate_up, open_gate = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        out = torch.empty_like(gate_up)
        grad_gate, grad_up = out.chunk(2, dim=-1)
        torch.mul(grad, open_gate, out=grad_up)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=grad_gate)
        return out


# --- who attends to whom --------------------------------------------------------------------------------------------


class Cache:
    """Keys and values of rows being written, in memory taken once. A prompt is read once and copied to its group."""

    def __init__(self, weights: Weights, mask_PL: Tensor, group_size: int, max_new: int):
        prompts, self.length = mask_PL.shape
        rows = prompts * group_size
        self._heads = [weights.heads, 2 * weights.kv_heads]
        shape = (len(weights.layers), rows, 2 * weights.kv_heads, self.length + max_new, weights.head_dim)
        self._written = weights.embedding.new_empty(shape)
        """Of every layer and row: the key heads, and behind them the value heads."""
        self._group_size = group_size
        self._prompt_mask = mask_PL
        self._mask = None  # (rows, 1, 1, S), where some prompt is padded
        if not bool(mask_PL.all()):
            mask = mask_PL.repeat_interleave(group_size, 0)
            self._mask = torch.cat([mask, mask.new_ones(rows, max_new)], dim=1)[:, None, None]

    def read_prompts(self, layer: int, qkv: Tensor) -> Tensor:
        """`Attend` of all prompt tokens, which also fills the cache of every row."""
        prompts, length = self._prompt_mask.shape
        heads = qkv.unflatten(0, (prompts, length)).transpose(1, 2)
        query, written = heads.split_with_sizes(self._heads, dim=1)
        rows = self._written[layer].unflatten(0, (prompts, self._group_size))
        rows[:, :, :, :length] = written[:, None]
        mask = None if self._mask is None else causal(self._prompt_mask)
        return _attention(query, *written.chunk(2, dim=1), mask, is_causal=mask is None).flatten(0, 1)

    def read_token(self, layer: int, qkv: Tensor) -> Tensor:
        """`Attend` of one new token per row. The queries that share a key head stand in for a sequence of queries."""
        at = self.length
        query, new = qkv.split_with_sizes(self._heads, dim=1)
        written = self._written[layer, : len(query)]
        written[:, :, at] = new
        keys, values = written[:, :, : at + 1].chunk(2, dim=1)
        mask = None if self._mask is None else self._mask[:, :, :, : at + 1]
        grouped = query.unflatten(1, (keys.shape[1], -1))
        return scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).flatten(1)

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but these (ascending), which move up in place."""
        count, used = len(rows), self.length
        for layer in self._written:
            layer[:count, :, :used] = layer[:, :, :used].index_select(0, rows)
        if self._mask is not None:
            self._mask = self._mask[rows]


def shared_prompts(weights: Weights, prompt_mask_PL: Tensor, prompt_of_B: Tensor, num_completion: int) -> Attend:
    """`Attend` over P x L prompt tokens followed by B x T completion tokens, each completion behind its own prompt."""
    prompts, length = prompt_mask_PL.shape
    padded = not bool(prompt_mask_PL.all())
    prompt_mask = causal(prompt_mask_PL) if padded else None
    own = torch.ones(num_completion, num_completion, dtype=torch.bool, device=prompt_mask_PL.device).tril()
    before = prompt_mask_PL[prompt_of_B] if padded else prompt_mask_PL[:1]
    before = before[:, None, None].expand(-1, 1, num_completion, length)
    mask = torch.cat([before, own.expand(len(before), 1, -1, -1)], dim=-1)

    sizes, heads = [prompts * length, len(prompt_of_B) * num_completion], [weights.heads, 2 * weights.kv_heads]

    def attend(layer: int, qkv: Tensor) -> Tensor:
        of_prompt, own = qkv.split_with_sizes(sizes)
        query, read = of_prompt.unflatten(0, (prompts, length)).split_with_sizes(heads, dim=2)
        parts = (x.transpose(1, 2) for x in (query, *read.chunk(2, dim=2)))
        out = _attention(*parts, prompt_mask, is_causal=not padded).flatten(0, 1)
        if num_completion == 0:
            return out
        query, written = own.unflatten(0, (-1, num_completion)).split_with_sizes(heads, dim=2)
        seen = torch.cat([read.index_select(0, prompt_of_B), written], dim=1)
        completion = _attention(*(x.transpose(1, 2) for x in (query, *seen.chunk(2, dim=2))), mask)
        return torch.cat([out, completion.flatten(0, 1)])

    return attend


def causal(mask_PL: Tensor) -> Tensor:
    """(P, 1, L, L): a token sees real tokens up to itself. Padding sees itself alone: a row of nothing would be NaN."""
    length = mask_PL.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=mask_PL.device).tril()
    itself = torch.eye(length, dtype=torch.bool, device=mask_PL.device)
    return ((mask_PL[:, None] & earlier) | itself)[:, None]


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, is_causal: bool = False) -> Tensor:
    """(B, A, T, D) x (B, K, S, D) -> (B, T, A x D)."""
    grouped = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=is_causal, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(2)
