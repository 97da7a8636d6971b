"""The forward pass of `Weights` in plain torch operations.

`transformers` reads a prompt once for every completion. Here all tokens are rows of one flat tensor, and the
completions of a group share one copy of their prompt. Tests verify that the results equal those of the model's own
forward.

Shape letters: N tokens, H hidden, A attention heads, K key/value heads, D head size, P prompts, L prompt length,
B rows (completions), T completion length, S keys.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, scaled_dot_product_attention, silu

from stabilizer.training.fast.weights import Layer, Linear, Weights
from stabilizer.training.rollout.rollouts import position_ids


class Layout(NamedTuple):
    """The order of the tokens: first those of P prompts, L each, then those of B completions, T each."""

    num_prompts: int
    prompt_length: int
    num_completion: int
    """T; 0 if every completion is one token, which is predicted from its prompt."""
    prompt_mask: Tensor | None
    """The tokens of a prompt that each of its tokens attends to; None: itself and all before it."""
    prompt_of_B: Tensor
    """The prompt of each completion."""
    completion_mask: Tensor
    """The tokens of its prompt, and then of itself, that each token of a completion attends to."""


def layout(mask_PL: Tensor, prompt_of_B: Tensor, num_completion: int) -> Layout:
    """Prompts followed by B completions of `num_completion` tokens each."""
    prompts, length = mask_PL.shape
    padded = not bool(mask_PL.all())
    prompt_mask = _causal(mask_PL) if padded else None
    own = torch.ones(num_completion, num_completion, dtype=torch.bool, device=mask_PL.device).tril()
    before = mask_PL[prompt_of_B] if padded else mask_PL[:1]
    before = before[:, None, None].expand(-1, 1, num_completion, length)
    mask = torch.cat([before, own.expand(len(before), 1, -1, -1)], dim=-1)
    return Layout(prompts, length, num_completion, prompt_mask, prompt_of_B, mask)


def _causal(mask_PL: Tensor) -> Tensor:
    """(P, 1, L, L): a token attends to real tokens up to itself. Padding attends to itself, because an empty row would
    be NaN."""
    length = mask_PL.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=mask_PL.device).tril()
    itself = torch.eye(length, dtype=torch.bool, device=mask_PL.device)
    return ((mask_PL[:, None] & earlier) | itself)[:, None]


def rope(weights: Weights, position: Tensor) -> Tensor:
    """The rotation of queries and keys at these positions: complex numbers, (..., 1, D / 2)."""
    angle = position[..., None].float() * weights.frequencies.float()
    return torch.complex(angle.cos() * weights.rope_scale, angle.sin() * weights.rope_scale).unsqueeze(-2)


def hidden_states(w: Weights, ids_N: Tensor, turns: Tensor, at: Layout) -> Tensor:
    """The normalised last hidden state of every token, (N, H); `turns` is the `rope` of every token."""
    x = embedding(ids_N, w.embedding, w.padding)
    for layer in w.layers:
        qkv = _queries_keys_values(w, layer, x, turns)
        x = _update(w, layer, x, _read(w, qkv, at))
    return _norm(x, w.norm, w.eps)


def completion_states(w: Weights, prompt_ids_BL: Tensor, prompt_mask_BL: Tensor, completion_ids_BT: Tensor) -> Tensor:
    """The hidden states from which each token of the completions is predicted, (B, T, H).

    Neighbouring rows with the same prompt share one computation of it.
    """
    prompt_PL, prompt_of_B = torch.unique_consecutive(
        prompt_ids_BL.masked_fill(~prompt_mask_BL, -1), return_inverse=True, dim=0
    )
    mask_PL = prompt_PL >= 0
    prompts, length = mask_PL.shape
    rows, later = completion_ids_BT.shape[0], completion_ids_BT.shape[1] - 1  # the last token predicts nothing
    first_B = mask_PL.sum(1)[prompt_of_B]
    position_BT = first_B[:, None] + torch.arange(later, device=first_B.device)
    states_NH = hidden_states(
        w,
        torch.cat([prompt_PL.clamp_min(0).flatten(), completion_ids_BT[:, :later].flatten()]),
        rope(w, torch.cat([position_ids(mask_PL).flatten(), position_BT.flatten()])),
        layout(mask_PL, prompt_of_B, later),
    )
    prompt_NH, later_NH = states_NH.split_with_sizes([prompts * length, rows * later])
    last_PH = prompt_NH.view(prompts, length, -1)[:, -1]
    return torch.cat([last_PH[prompt_of_B][:, None], later_NH.view(rows, later, last_PH.shape[1])], dim=1)


# --- a block of layers without its attention -------------------------------------------------------------------------


def _queries_keys_values(w: Weights, layer: Layer, x: Tensor, turns: Tensor) -> Tensor:
    """(N, A + 2 K, D), queries and keys turned by their positions."""
    qkv = linear(_norm(x, layer.attention_norm, w.eps), layer.qkv.weight, layer.qkv.bias)
    turned = (w.heads + w.kv_heads) * w.head_dim
    if layer.head_norms is not None:
        qk = _norm(qkv[:, :turned].view(len(x), -1, w.head_dim), layer.head_norms, w.eps)
        qkv = torch.cat([qk.flatten(1), qkv[:, turned:]], dim=1)
    turn(qkv, turns, turned)
    return qkv.view(len(x), w.heads + 2 * w.kv_heads, w.head_dim)


def _update(w: Weights, layer: Layer, x: Tensor, read: Tensor) -> Tensor:
    """x + out(read), and that + down(silu(gate) * up)."""
    x = _plus(x, read, layer.out)
    gate, up = linear(_norm(x, layer.mlp_norm, w.eps), layer.gate_up.weight, layer.gate_up.bias).chunk(2, dim=-1)
    return _plus(x, silu(gate) * up, layer.down)


def _plus(residual: Tensor, x: Tensor, layer: Linear) -> Tensor:
    """residual + layer(x)."""
    if layer.bias is not None:
        residual = residual + layer.bias
    return torch.addmm(residual, x, layer.weight.t())


def _norm(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, the first part in the dtype of eps."""
    length = torch.linalg.vector_norm(x, 2.0, -1, True, dtype=eps.dtype)
    scale = torch.addcmul(eps, length, length, value=1 / x.shape[-1]).rsqrt()
    return (x * scale).to(x.dtype) * weight


def turn(qkv: Tensor, turns: Tensor, count: int) -> None:
    """Turn the pairs among the first `count` numbers of each token, in place."""
    part = qkv[:, :count]
    pairs = (len(part), -1, turns.shape[-1], 2)
    if part.dtype in (torch.float32, torch.float64):
        torch.view_as_complex(part.view(pairs)).mul_(turns)
    else:  # torch has no complex numbers of half precision
        part.copy_(torch.view_as_real(torch.view_as_complex(part.float().view(pairs)) * turns).flatten(1))


# --- attention -------------------------------------------------------------------------------------------------------


def _read(w: Weights, qkv: Tensor, at: Layout) -> Tensor:
    """The attention output of each token of prompts and completions, over the tokens it may attend to, (N, A x D)."""
    heads, num_prompt_tokens = [w.heads, 2 * w.kv_heads], at.num_prompts * at.prompt_length
    of_prompt = qkv[:num_prompt_tokens].unflatten(0, (at.num_prompts, at.prompt_length))
    query, new = of_prompt.split_with_sizes(heads, dim=2)
    read = _attention(query, new, at.prompt_mask).flatten(0, 1)
    if at.num_completion == 0:
        return read
    query, own = (
        qkv[num_prompt_tokens:].unflatten(0, (len(at.prompt_of_B), at.num_completion)).split_with_sizes(heads, dim=2)
    )
    seen = torch.cat([new[at.prompt_of_B], own], dim=1)
    return torch.cat([read, _attention(query, seen, at.completion_mask).flatten(0, 1)])


def _attention(query: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
    """(B, T, A, D) of queries x (B, S, 2 K, D) of keys and values -> (B, T, A x D)."""
    query = query.transpose(1, 2)
    key, value = (part.transpose(1, 2) for part in seen.chunk(2, dim=2))
    grouped = query.shape[1] != key.shape[1]
    causal = mask is None
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(2)
