"""Llama-like models (Llama, Mistral, Qwen2, Qwen3) as the few matrices and numbers that `forward` computes with.

`transformers` spends more on modules, cache objects and masks than a small model spends on arithmetic, and it reads a
prompt once for every completion. Here tokens lie flat, one row each, whatever sequence they belong to: a prompt reads
itself, a new token its cache, the completions of a group the one copy of their prompt.

Weights are read from the model at every call, so nothing can go stale; what they compute is proved equal to the model's
own forward by tests. `refusal` says what a model has that is not implemented here; such a model runs by its own code.

Shape letters: N tokens, H hidden, A attention heads, K key/value heads, D head size, P prompts, L prompt length,
B rows (completions), T completion length, S cache length.
"""

# Annotations are not postponed here: TorchScript could not read those of the tuples.
import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from stabilizer.training.fast.threads import num_parameters

MODELS = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
"""Exactly these classes: a subclass may compute something else."""
ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies don't change with the length."""

LARGEST = 500_000_000
"""Parameters above which a model is left to `transformers`: arithmetic is all its time then, and copies cost memory."""


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


class Layout(NamedTuple):
    """Where tokens stand: first those of P prompts, L each, then those of B completions, T each."""

    num_prompts: int
    prompt_length: int
    num_completion: int
    """T; 0 without completions."""
    prompt_mask: Tensor | None
    """Which tokens of a prompt each of its tokens reads; None: itself and all before it."""
    prompt_of_B: Tensor | None
    """The prompt that each completion stands behind."""
    completion_mask: Tensor | None
    """Which tokens of its prompt, and then of itself, each token of a completion reads."""


def refusal(model: nn.Module, *, training: bool) -> str | None:
    """What this model has that is not implemented here, in words; None when it can be computed here.

    With `training` also that which would compute the same, but not for its gradients or within its memory.
    """
    if type(model) not in MODELS:
        return f"architecture {type(model).__name__}"
    config = model.config
    if num_parameters(model) > LARGEST:
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
    for module in _modules(model):
        if hooked(module):
            name = next(name for name, named in model.named_modules() if named is module)
            return f"a hook or another forward on {name or 'the model'}"
        if training and vars(module).get("gradient_checkpointing"):
            return "gradient checkpointing"
    for module in _linears(model):
        if type(module) is not nn.Linear and (training or not _mergeable(module)):
            return f"a linear layer of type {type(module).__name__}"
    if type(model.model.embed_tokens) is not nn.Embedding:
        return f"an embedding of type {type(model.model.embed_tokens).__name__}"
    return None


def hooked(module: nn.Module) -> bool:
    """Whether calling this module does more, or other things, than its class says."""
    own = vars(module)
    return bool(own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own)


def _modules(model: nn.Module) -> list[nn.Module]:
    """All of a model, without the names that torch's own way makes up for each: this is asked at every pass."""
    found, seen = [model], {model}
    for module in found:  # which grows
        for inner in module._modules.values():
            if inner is not None and inner not in seen:
                seen.add(inner)
                found.append(inner)
    return found


def _linears(model: nn.Module) -> Iterator[nn.Module]:
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            yield from (module for name, module in part._modules.items() if name.endswith("_proj"))
    yield model.lm_head


def _mergeable(module: nn.Module) -> bool:
    """Whether this is a linear layer of PEFT whose adapters are plain low-rank ones, so that they can be summed up."""
    return isinstance(getattr(module, "lora_A", None), nn.ModuleDict) and (
        type(module.base_layer) is nn.Linear and not module.lora_variant
    )


def read(model: nn.Module) -> Weights:
    """The present weights. Query, key and value, and gate and up, become one matrix each: fewer, larger products."""
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
                qkv=Linear(*(None if x is None else x.index_select(0, order) for x in qkv)),
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
@torch.inference_mode(False)  # it is kept, and used again where there are gradients
def _order(heads: int, kv_heads: int, head_dim: int) -> Tensor:
    """Rows 0, 1, ..., D - 1 of every query and key head in the order 0, D/2, 1, D/2 + 1, ...; values as they are."""
    row = torch.arange((heads + 2 * kv_heads) * head_dim).view(-1, head_dim)
    row[: heads + kv_heads] = row[: heads + kv_heads].unflatten(1, (2, -1)).transpose(1, 2).flatten(1)
    return row.flatten()


def _stack(*modules: nn.Module) -> Linear:
    weights, biases = zip(*map(_merged, modules), strict=True)
    return Linear(_joined(weights), _joined(biases))


def _joined(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    return parts[0] if parts[0] is None or len(parts) == 1 else torch.cat(parts)


def _merged(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear layer with its active low-rank adapters added to it, W + scale x B A."""
    if type(module) is nn.Linear:
        own = module._parameters  # an attribute of a module is looked up in many places first
        return own["weight"], own["bias"]
    weight = module.base_layer.weight
    if not module.disable_adapters and not module.merged:
        for name in module.active_adapters:
            if name in module.lora_A:
                weight = weight + module.get_delta_weight(name).to(weight.dtype)
    return weight, module.base_layer.bias


def rope(weights: Weights, position: Tensor) -> Tensor:
    """What queries and keys are turned by at these positions: complex numbers, (..., 1, D / 2)."""
    angle = position[..., None].float() * weights.frequencies.float()
    return torch.complex(angle.cos() * weights.rope_scale, angle.sin() * weights.rope_scale).unsqueeze(-2)


# --- who attends to whom --------------------------------------------------------------------------------------------


class Cache:
    """Keys and values of rows being written, in memory taken once. A prompt is read once and copied to its group."""

    def __init__(self, weights: Weights, mask_PL: Tensor, group_size: int, max_new: int):
        prompts, self.length = mask_PL.shape
        rows = prompts * group_size
        shape = (len(weights.layers), rows, 2 * weights.kv_heads, self.length + max_new, weights.head_dim)
        self.written = weights.embedding.new_empty(shape)
        """Of every layer and row: the key heads, and behind them the value heads. They are filled by `forward`."""
        self.mask: Tensor | None = None
        """Where some prompt is padded, (rows, 1, 1, S)."""
        if not bool(mask_PL.all()):
            mask = mask_PL.repeat_interleave(group_size, 0)
            self.mask = torch.cat([mask, mask.new_ones(rows, max_new)], dim=1)[:, None, None]

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but these (ascending), which move up in place."""
        count, used = len(rows), self.length
        for layer in self.written:
            layer[:count, :, :used] = layer[:, :, :used].index_select(0, rows)
        if self.mask is not None:
            self.mask = self.mask[rows]


def layout(mask_PL: Tensor, prompt_of_B: Tensor | None = None, num_completion: int = 0) -> Layout:
    """Prompts alone, or B completions of so many tokens behind them too, each behind its own."""
    prompts, length = mask_PL.shape
    padded = not bool(mask_PL.all())
    prompt_mask = causal(mask_PL) if padded else None
    if prompt_of_B is None or num_completion == 0:
        return Layout(prompts, length, 0, prompt_mask, None, None)
    own = torch.ones(num_completion, num_completion, dtype=torch.bool, device=mask_PL.device).tril()
    before = mask_PL[prompt_of_B] if padded else mask_PL[:1]
    before = before[:, None, None].expand(-1, 1, num_completion, length)
    mask = torch.cat([before, own.expand(len(before), 1, -1, -1)], dim=-1)
    return Layout(prompts, length, num_completion, prompt_mask, prompt_of_B, mask)


def causal(mask_PL: Tensor) -> Tensor:
    """(P, 1, L, L): a token sees real tokens up to itself. Padding sees itself alone: a row of nothing would be NaN."""
    length = mask_PL.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=mask_PL.device).tril()
    itself = torch.eye(length, dtype=torch.bool, device=mask_PL.device)
    return ((mask_PL[:, None] & earlier) | itself)[:, None]
