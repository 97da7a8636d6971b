"""Log-probabilities and entropy of given completions: the learner's half of what the sampler reported.

Shape letters: B rows, P distinct prompts, L prompt positions, T completion positions, N tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from stabilizer.training.fast import decoder
from stabilizer.training.fast.forward import completion_states
from stabilizer.training.fast.parts import in_parts
from stabilizer.training.fast.scripted import run_scripted
from stabilizer.training.fast.threads import parts_for
from stabilizer.training.fast.writing import tempered, told
from stabilizer.training.head import stats_of_logits, token_stats
from stabilizer.training.rollout.rollouts import Rollouts, position_ids

AT_ONCE = 2**20
"""Logits up to which all of them are kept, as they are when tokens are written: to spare them costs more time."""


class TokenStats(NamedTuple):
    """What the learner says of every completion token. Padding holds log-probability 0 and entropy 0."""

    logp_BT: Tensor
    entropy_BT: Tensor
    hidden_BTH: Tensor | None
    """The last hidden state from which each token was predicted, for a value head; None unless asked for."""


def completion_logps(
    model: nn.Module,
    rollouts: Rollouts,
    temperature: float,
    *,
    entropy_grad: bool = False,
    hidden: bool = False,
    head_dtype: torch.dtype | None = torch.float32,
) -> TokenStats:
    """Log-probabilities and entropies of the completions, both at the sampling temperature.

    At another temperature the ratio to the sampler's log-probabilities would not be 1 on fresh rollouts. Logits are
    made for tokens under the mask and for no others; the entropy has no gradient unless paid for. The last product is
    computed at least in `head_dtype` where the model `has_plain_head`; None leaves it to the model, or to autocast.
    """
    if not _ends_in_a_linear_layer(model):
        with _head_in(model, head_dtype):
            return _stats_full(model, rollouts, temperature, entropy_grad=entropy_grad, hidden=hidden)
    head = model.get_output_embeddings()
    dtype = _head_dtype(head.weight, head_dtype)

    def stats(hidden_BTH: Tensor, weight: Tensor, bias: Tensor | None, rollouts: Rollouts) -> tuple[Tensor, ...]:
        mask_BT = rollouts.mask_BT
        states_NH, weight, bias = (None if x is None else x.to(dtype) for x in (hidden_BTH[mask_BT], weight, bias))
        target_N = rollouts.completion_ids_BT[mask_BT]
        with torch.autocast(weight.device.type, enabled=False):
            values = token_stats(states_NH, weight, bias, target_N, temperature, entropy_grad=entropy_grad)
        logp_BT, entropy_BT = (_spread(value_N, mask_BT) for value_N in values)
        return (logp_BT, entropy_BT, hidden_BTH) if hidden else (logp_BT, entropy_BT)

    def lean(weights: decoder.Weights, rollouts: Rollouts) -> tuple[Tensor, ...]:
        alike = weights.norm.dtype == head.weight.dtype == dtype
        if alike and rollouts.mask_BT.numel() * len(head.weight) <= AT_ONCE:
            given = *_as_written(rollouts), rollouts.mask_BT
            found = run_scripted(completion_stats, weights, *given, temperature, entropy_grad)
            return found if hidden else found[:2]
        return stats(_hidden_lean(weights, rollouts), *weights.head, rollouts)

    if _is_lean(model):
        logp_BT, entropy_BT, *states = in_parts(lean, decoder.read(model), _parts(rollouts))
    else:
        logp_BT, entropy_BT, *states = stats(_hidden_full(model, rollouts), head.weight, head.bias, rollouts)
    return TokenStats(logp_BT, entropy_BT, states[0] if states else None)


def completion_hidden(model: nn.Module, rollouts: Rollouts) -> Tensor:
    """Last hidden states at the positions that predict completion tokens, (B, T, H)."""
    if not _is_lean(model):
        return _hidden_full(model, rollouts)
    (hidden_BTH,) = in_parts(lambda *part: (_hidden_lean(*part),), decoder.read(model), _parts(rollouts))
    return hidden_BTH


def _is_lean(model: nn.Module) -> bool:
    return decoder.refusal(model, training=torch.is_grad_enabled()) is None


def _parts(rollouts: Rollouts) -> list[Rollouts]:
    """Rows as they are shared out over threads."""
    rows = len(rollouts)
    count = parts_for(rows, rows)
    edges = [rows * part // count for part in range(count + 1)]
    return [rollouts] if count == 1 else [rollouts.rows(slice(*edge)) for edge in pairwise(edges)]


def _hidden_full(model: nn.Module, rollouts: Rollouts) -> Tensor:
    rows = _rows(rollouts)
    return rows.in_place(model.base_model(**rows.inputs, use_cache=False).last_hidden_state)


def _head_dtype(weight: Tensor, wanted: torch.dtype | None) -> torch.dtype:
    if wanted is not None:
        return torch.promote_types(wanted, weight.dtype)
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def _spread(value_N: Tensor, mask_BT: Tensor) -> Tensor:
    """Values of the tokens under the mask back in their places, 0 elsewhere."""
    return torch.zeros_like(mask_BT, dtype=value_N.dtype).masked_scatter(mask_BT, value_N)


def _hidden_lean(weights: decoder.Weights, rollouts: Rollouts) -> Tensor:
    hidden_BTH, _ = run_scripted(_narrow_states, weights, *_as_written(rollouts))
    return _widened(hidden_BTH, rollouts.mask_BT.shape[1])


def _as_written(rollouts: Rollouts) -> tuple[Tensor, ...]:
    return rollouts.prompt_ids_BP, rollouts.prompt_mask_BP, rollouts.completion_ids_BT, rollouts.span_B


def completion_stats(
    w: decoder.Weights, prompt_ids_BP: Tensor, prompt_mask_BP: Tensor, ids_BT: Tensor, span_B: Tensor, mask_BT: Tensor,
    temperature: float, entropy_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(logp_BT, entropy_BT, hidden_BTH), all of few tokens and a small vocabulary in one call that needs no Python."""
    hidden_BTH, written_BT = _narrow_states(w, prompt_ids_BP, prompt_mask_BP, ids_BT, span_B)
    mine_BT = mask_BT.narrow(1, 0, written_BT.shape[1])
    if bool(mine_BT.all()):
        states_NH, token_N = hidden_BTH.flatten(0, 1), written_BT.flatten()
    else:
        states_NH, token_N = hidden_BTH[mine_BT], written_BT[mine_BT]
    logits_NV = tempered(linear(states_NH, w.head.weight, w.head.bias), temperature)
    logp_N, entropy_N = told(logits_NV, token_N, entropy_grad)
    return _spread(logp_N, mask_BT), _spread(entropy_N, mask_BT), _widened(hidden_BTH, mask_BT.shape[1])


def _narrow_states(
    w: decoder.Weights, prompt_ids_BP: Tensor, prompt_mask_BP: Tensor, ids_BT: Tensor, span_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Hidden states, and tokens, as wide as the longest of these rows: there may be longer ones in the batch."""
    longest = int(prompt_mask_BP.sum(1).max())
    start = prompt_ids_BP.shape[1] - longest
    ids_BL, mask_BL = prompt_ids_BP.narrow(1, start, longest), prompt_mask_BP.narrow(1, start, longest)
    written_BT = ids_BT.narrow(1, 0, int(span_B.max()))
    return completion_states(w, ids_BL, mask_BL, written_BT), written_BT


def _widened(value_BTH: Tensor, num_tokens: int) -> Tensor:
    return pad(value_BTH, [0, 0, 0, num_tokens - value_BTH.shape[1]])


class _Rows(NamedTuple):
    """Prompts and completions as a model of `transformers` is called with them."""

    inputs: dict[str, Tensor | None]
    target_BT: Tensor
    """What the last outputs predict."""
    place_BT: Tensor | None
    """Where among these each completion has its tokens; None: where they are."""

    def in_place(self, value: Tensor) -> Tensor:
        """The outputs that predict completions, (B, T) or (B, T, H)."""
        value = value[:, -self.target_BT.shape[1] :]
        if self.place_BT is None:
            return value
        place = self.place_BT if value.dim() == 2 else self.place_BT[..., None].expand(-1, -1, value.shape[2])
        return value.gather(1, place)


def _rows(rollouts: Rollouts) -> _Rows:
    """Where prompts differ in length, rows end together: the block is then as wide as the longest row, where the
    longest prompt and the longest completion beside it could be more than the model has positions for."""
    ids = torch.cat([rollouts.prompt_ids_BP, rollouts.completion_ids_BT], dim=1)
    if not rollouts.padded:
        inputs = {"input_ids": ids[:, :-1], "attention_mask": None, "position_ids": None}
        return _Rows(inputs, rollouts.completion_ids_BT, None)
    prompt, num_tokens = rollouts.prompt_ids_BP.shape[1], rollouts.completion_ids_BT.shape[1]
    span_B1, length_B1 = rollouts.span_B[:, None], (rollouts.prompt_mask_BP.sum(1) + rollouts.span_B)[:, None]
    longest, width = int(span_B1.max()), int(length_B1.max())
    place_BW = torch.arange(width, device=ids.device) + prompt + span_B1 - width
    ids = ids.gather(1, place_BW.clamp_min(0))
    mask = (place_BW >= prompt + span_B1 - length_B1)[:, :-1]
    inputs = {"input_ids": ids[:, :-1], "attention_mask": mask, "position_ids": position_ids(mask)}
    place_BT = torch.arange(num_tokens, device=ids.device) + longest - span_B1
    return _Rows(inputs, ids[:, -longest:], place_BT.clamp_max(longest - 1))


def _ends_in_a_linear_layer(model: nn.Module) -> bool:
    """Whether the logits are known to be a plain linear layer of the base model's last hidden state."""
    return type(model) in decoder.MODELS and not decoder.hooked(model) and has_plain_head(model)


def has_plain_head(model: nn.Module) -> bool:
    """Whether the last layer is linear and no more, with no adapter and no hook of somebody's: its product can then be
    computed in another precision, whatever the model does with it afterwards."""
    head = model.get_output_embeddings()
    return type(head) is nn.Linear and not decoder.hooked(head)


@contextlib.contextmanager
def _head_in(model: nn.Module, wanted: torch.dtype | None) -> Iterator[None]:
    """Have a model compute its last linear layer at least in this precision; gradients go to the weights it has."""
    if wanted is None or not has_plain_head(model):
        yield
        return
    head = model.get_output_embeddings()
    dtype = _head_dtype(head.weight, wanted)

    def product(hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return linear(hidden.to(dtype), head.weight.to(dtype), None if head.bias is None else head.bias.to(dtype))

    head.forward = product
    try:
        yield
    finally:
        del head.forward


def _stats_full(
    model: nn.Module, rollouts: Rollouts, temperature: float, *, entropy_grad: bool, hidden: bool
) -> TokenStats:
    """By the model's own logits, for whatever it does with them."""
    rows = _rows(rollouts)
    kept = rows.target_BT.shape[1]
    out = model(**rows.inputs, use_cache=False, logits_to_keep=kept, output_hidden_states=hidden)
    stats = stats_of_logits(out.logits, rows.target_BT, temperature, entropy_grad=entropy_grad)
    logp_BT, entropy_BT = (rows.in_place(value).masked_fill(~rollouts.mask_BT, 0.0) for value in stats)
    return TokenStats(logp_BT, entropy_BT, rows.in_place(out.hidden_states[-1]) if hidden else None)
