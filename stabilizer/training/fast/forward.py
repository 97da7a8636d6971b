"""The forward pass of `decoder.Weights` in plain torch operations: of whole sequences, and of one token more on each.

All of it is of the kind that `scripted` can run without Python, and has the gradients of plain autograd. Between small
operations a view costs as much as any: `narrow` is one, what brackets do are several.

Shape letters: N tokens, H hidden, A attention heads, K key/value heads, D head size, P prompts, L prompt length,
B rows (completions), T completion length, S cache length, V vocabulary.
"""

# Annotations are not postponed here: TorchScript could not read those of the tuples.
import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, scaled_dot_product_attention, silu

from stabilizer.training.fast.decoder import Layer, Layout, Linear, Weights, layout, rope
from stabilizer.training.rollout.rollouts import position_ids


def hidden_states(w: Weights, ids_N: Tensor, turns: Tensor, at: Layout, cache: Tensor | None) -> Tensor:
    """The normalised last hidden state of every token, (N, H).

    `turns` is the `rope` of every token. Keys and values of prompts are written to the `cache` of their rows, if any.
    """
    x = embedding(ids_N, w.embedding, w.padding)
    for i, layer in enumerate(w.layers):
        qkv = _queries_keys_values(w, layer, x, turns)
        x = _update(w, layer, x, _read_all(w, qkv, at, None if cache is None else cache[i]))
    return _norm(x, w.norm, w.eps)


def completion_states(w: Weights, prompt_ids_BL: Tensor, prompt_mask_BL: Tensor, completion_ids_BT: Tensor) -> Tensor:
    """The hidden states from which each token of the completions is predicted, (B, T, H).

    A prompt that stands on several rows one after another is read once.
    """
    prompt_PL, prompt_of_B = torch.unique_consecutive(
        prompt_ids_BL.masked_fill(~prompt_mask_BL, -1), return_inverse=True, dim=0
    )
    mask_PL = prompt_PL >= 0
    prompts, length = mask_PL.shape
    rows, later = completion_ids_BT.shape[0], completion_ids_BT.shape[1] - 1  # the last token predicts nothing here
    first_B = mask_PL.sum(1)[prompt_of_B]
    position_BT = first_B.unsqueeze(1) + torch.arange(later, device=first_B.device)
    states_NH = hidden_states(
        w,
        torch.cat([prompt_PL.clamp_min(0).flatten(), completion_ids_BT.narrow(1, 0, later).flatten()]),
        rope(w, torch.cat([position_ids(mask_PL).flatten(), position_BT.flatten()])),
        layout(mask_PL, prompt_of_B, later),
        None,
    )
    prompt_NH, later_NH = states_NH.split_with_sizes([prompts * length, rows * later])
    last_PH = prompt_NH.view([prompts, length, -1]).select(1, length - 1)
    return torch.cat([last_PH[prompt_of_B].unsqueeze(1), later_NH.view([rows, later, last_PH.shape[1]])], dim=1)


def next_logits(w: Weights, ids_B: Tensor, turns: Tensor, cache: Tensor, mask: Tensor | None, place: int) -> Tensor:
    """The logits of what follows one token more on every row, (B, V); its keys and values are written at `place`.

    `cache` and `mask` are those of a `decoder.Cache`.
    """
    x = w.embedding.index_select(0, ids_B)
    rows = cache.narrow(1, 0, len(ids_B))
    for i, layer in enumerate(w.layers):
        qkv = _queries_keys_values(w, layer, x, turns)
        x = _update(w, layer, x, _read_cache(w, qkv, rows[i], mask, place))
    return linear(_norm(x, w.norm, w.eps), w.head.weight, w.head.bias)


# --- a block of layers, but for who reads whom ----------------------------------------------------------------------


def _queries_keys_values(w: Weights, layer: Layer, x: Tensor, turns: Tensor) -> Tensor:
    """(N, A + 2 K, D), queries and keys turned by their positions."""
    qkv = linear(_norm(x, layer.attention_norm, w.eps), layer.qkv.weight, layer.qkv.bias)
    norms = layer.head_norms
    if norms is not None:
        qk, value = torch.tensor_split(qkv, [norms.numel()], dim=1)
        qk = _norm(qk.view([len(qk), w.heads + w.kv_heads, w.head_dim]), norms, w.eps)
        qkv = torch.cat([qk.flatten(1), value], dim=1)
    turn(qkv, turns, (w.heads + w.kv_heads) * w.head_dim)
    return qkv.view([len(x), w.heads + 2 * w.kv_heads, w.head_dim])


def _update(w: Weights, layer: Layer, x: Tensor, read: Tensor) -> Tensor:
    """x + out(read), and that + down(silu(gate) * up)."""
    x = _plus(x, read, layer.out)
    both = linear(_norm(x, layer.mlp_norm, w.eps), layer.gate_up.weight, layer.gate_up.bias)
    if torch.is_grad_enabled():  # the gradient of two narrow halves is twice that of a chunk
        gate, up = both.chunk(2, dim=-1)
        return _plus(x, silu(gate) * up, layer.down)
    half = both.shape[1] // 2
    return _plus(x, silu(both.narrow(1, 0, half), inplace=True).mul_(both.narrow(1, half, half)), layer.down)


def _plus(residual: Tensor, x: Tensor, layer: Linear) -> Tensor:
    """residual + layer(x); where no gradient needs it, the sum takes the place of `residual`."""
    bias = layer.bias
    if bias is not None:
        residual = residual + bias
    if torch.is_grad_enabled():
        return torch.addmm(residual, x, layer.weight.t())
    return residual.addmm_(x, layer.weight.t())


def _norm(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, the first part in the dtype of eps."""
    length = torch.linalg.vector_norm(x, 2.0, [-1], True, dtype=eps.dtype)
    scale = torch.addcmul(eps, length, length, value=1 / x.shape[-1]).rsqrt()
    return (x * scale).to(x.dtype) * weight


def turn(qkv: Tensor, turns: Tensor, count: int) -> None:
    """Turn the pairs among the first `count` numbers of each token, in place."""
    part = qkv.narrow(1, 0, count)
    pairs = [len(part), -1, turns.shape[-1], 2]
    if part.dtype == torch.float32 or part.dtype == torch.float64:
        torch.view_as_complex(part.view(pairs)).mul_(turns)
    else:  # there are no complex numbers of half the precision
        part.copy_(torch.view_as_real(torch.view_as_complex(part.float().view(pairs)) * turns).flatten(1))


# --- who reads whom -------------------------------------------------------------------------------------------------


def _read_cache(w: Weights, qkv: Tensor, cache: Tensor, mask: Tensor | None, place: int) -> Tensor:
    """What one new token a row takes from those before it and itself, (B, A x D)."""
    cache.select(2, place).copy_(qkv.narrow(1, w.heads, 2 * w.kv_heads))
    read = cache.narrow(2, 0, place + 1)
    keys, values = read.narrow(1, 0, w.kv_heads), read.narrow(1, w.kv_heads, w.kv_heads)
    # the queries that share a key head stand in for a sequence of queries
    query = qkv.narrow(1, 0, w.heads).view([len(qkv), w.kv_heads, -1, w.head_dim])
    seen = None if mask is None else mask.narrow(3, 0, place + 1)
    return scaled_dot_product_attention(query, keys, values, attn_mask=seen).flatten(1)


def _read_all(w: Weights, qkv: Tensor, at: Layout, cache: Tensor | None) -> Tensor:
    """What each token of prompts and completions takes from those it may see, (N, A x D)."""
    heads, num_prompt_tokens = [w.heads, 2 * w.kv_heads], at.num_prompts * at.prompt_length
    of_prompt = qkv[:num_prompt_tokens].unflatten(0, [at.num_prompts, at.prompt_length])
    query, new = of_prompt.split_with_sizes(heads, dim=2)
    if cache is not None:
        rows = cache.unflatten(0, [at.num_prompts, -1])
        rows[:, :, :, : at.prompt_length] = new.transpose(1, 2)[:, None]
    read = _attention(query, new, at.prompt_mask).flatten(0, 1)
    prompt_of_B = at.prompt_of_B
    if prompt_of_B is None:
        return read
    query, own = qkv[num_prompt_tokens:].unflatten(0, [-1, at.num_completion]).split_with_sizes(heads, dim=2)
    seen = torch.cat([new.index_select(0, prompt_of_B), own], dim=1)
    return torch.cat([read, _attention(query, seen, at.completion_mask).flatten(0, 1)])


def _attention(query: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
    """(B, T, A, D) of queries x (B, S, 2 K, D) of keys and values -> (B, T, A x D)."""
    key, value = seen.chunk(2, dim=2)
    grouped = query.shape[2] != key.shape[2]
    out = scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask, is_causal=mask is None,
        enable_gqa=grouped,
    )  # fmt: skip
    return out.transpose(1, 2).flatten(2)
