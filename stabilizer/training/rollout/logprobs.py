"""Log-probabilities and entropy of given completions: the learner's counterpart of the sampler's values.

Shape letters: B rows, L prompt positions, T completion positions, N tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from stabilizer.training.head import stats_of_logits, token_stats, widens
from stabilizer.training.rollout.rollouts import Rollouts, position_ids
from stabilizer.training.sharding import family, is_sharded, within

PLAIN_MODELS = (LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM)
"""Classes whose logits are a linear layer of the last hidden state. A subclass may compute something else."""


class TokenStats(NamedTuple):
    """The learner's numbers for every completion token. Padding holds log-probability 0 and entropy 0."""

    logp_BT: Tensor
    entropy_BT: Tensor
    hidden_BTH: Tensor | None
    """The last hidden state from which each token was predicted, for a value head; None unless requested."""
    balance_BT: Tensor | None = None
    """The load-balancing loss of a mixture of experts over the pass of each row, at its first position; None unless
    requested."""


class Scorer:
    """Scores given completions with a model of `transformers`, using the model's own code.

    A call without gradients is made in as many passes as the limits of a pass require. A call with gradients is one
    pass: its caller divides the rows, because the activations of a pass live until its backward pass.
    """

    def __init__(self, *, micro_batch: int = 0, micro_tokens: int = 0):
        self._limits = micro_batch, micro_tokens

    def logps(
        self,
        model: PreTrainedModel,
        rollouts: Rollouts,
        temperature: float,
        *,
        entropy_grad: bool = False,
        hidden: bool = False,
        balance: bool = False,
        head_dtype: torch.dtype | None = torch.float32,
    ) -> TokenStats:
        """Log-probabilities and entropies of the completions, both at the sampling temperature.

        At another temperature the ratio to the sampler's log-probabilities would not be 1 on fresh rollouts. The
        entropy has a gradient only with `entropy_grad`. The last product is computed at least in `head_dtype` if the
        model `has_plain_head`; None leaves the precision to the model, or to autocast.
        """

        def scored(rows: Rollouts) -> TokenStats:
            return self._logps(
                model,
                rows,
                temperature,
                entropy_grad=entropy_grad,
                hidden=hidden,
                balance=balance,
                head_dtype=head_dtype,
            )

        logp_BT, entropy_BT, hidden_BTH, balance_BT = self._in_passes(scored, rollouts)
        assert logp_BT is not None and entropy_BT is not None
        return TokenStats(logp_BT, entropy_BT, hidden_BTH, balance_BT)

    def hidden_states(self, model: PreTrainedModel, rollouts: Rollouts) -> Tensor:
        """Last hidden states at the positions that predict completion tokens, (B, T, H)."""
        (states_BTH,) = self._in_passes(lambda rows: (self._states(model, rows),), rollouts)
        assert states_BTH is not None
        return states_BTH

    def _in_passes(
        self, scored: Callable[[Rollouts], tuple[Tensor | None, ...]], rollouts: Rollouts
    ) -> tuple[Tensor | None, ...]:
        """What `scored` returns for all rows, from passes without unneeded padding."""
        width = rollouts.completion_ids_BT.shape[1]
        passes = [] if torch.is_grad_enabled() else rollouts.passes(*self._limits)
        if len(passes) < 2:
            return tuple(_widened(value, width) for value in scored(rollouts.trimmed()))
        parts = [scored(rollouts.rows(row_R).trimmed()) for row_R in passes]
        back_B = torch.cat(passes).argsort()
        return tuple(_joined(values, width, back_B) for values in zip(*parts, strict=True))

    def _logps(
        self,
        model: PreTrainedModel,
        rollouts: Rollouts,
        temperature: float,
        *,
        entropy_grad: bool,
        hidden: bool,
        balance: bool,
        head_dtype: torch.dtype | None,
    ) -> TokenStats:
        if not (_is_plain(model) and has_plain_head(model)):
            with _head_in(model, head_dtype):
                return _stats_of_own_logits(
                    model, rollouts, temperature, entropy_grad=entropy_grad, hidden=hidden, balance=balance
                )
        return within(
            model,
            lambda: self._stats_in_chunks(
                model, rollouts, temperature, entropy_grad=entropy_grad, hidden=hidden, head_dtype=head_dtype
            ),
        )

    def _stats_in_chunks(
        self,
        model: PreTrainedModel,
        rollouts: Rollouts,
        temperature: float,
        *,
        entropy_grad: bool,
        hidden: bool,
        head_dtype: torch.dtype | None,
    ) -> TokenStats:
        """Without the logits of all tokens at once."""
        hidden_BTH, mask_BT = self._states(model, rollouts), rollouts.mask_BT
        head = model.get_output_embeddings()
        assert isinstance(head, nn.Linear)
        dtype = head.weight.dtype if widens(head.weight) else _head_dtype(head.weight, head_dtype)
        with torch.autocast(head.weight.device.type, enabled=False):
            values = token_stats(
                hidden_BTH[mask_BT].to(dtype),
                head.weight.to(dtype),
                None if head.bias is None else head.bias.to(dtype),
                rollouts.completion_ids_BT[mask_BT],
                temperature,
                entropy_grad=entropy_grad,
            )
        logp_BT, entropy_BT = (_spread(value_N, mask_BT) for value_N in values)
        return TokenStats(logp_BT, entropy_BT, hidden_BTH if hidden else None)

    def _states(self, model: PreTrainedModel, rollouts: Rollouts) -> Tensor:
        """Last hidden states of one pass."""
        rows = _rows(rollouts)
        return rows.in_place(model.base_model(**rows.inputs, use_cache=False).last_hidden_state)


def _widened(value: Tensor | None, width: int) -> Tensor | None:
    """(B, t) or (B, t, H) with zeros up to `width` positions."""
    if value is None or value.shape[1] == width:
        return value
    return pad(value, (0,) * (2 * value.dim() - 4) + (0, width - value.shape[1]))


def _joined(values: Sequence[Tensor | None], width: int, back_B: Tensor) -> Tensor | None:
    """The values of several passes in the order of the rows."""
    known = [wide for value in values if (wide := _widened(value, width)) is not None]
    return torch.cat(known)[back_B] if known else None


def _head_dtype(weight: Tensor, wanted: torch.dtype | None) -> torch.dtype:
    if wanted is not None:
        return torch.promote_types(wanted, weight.dtype)
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def _spread(value_N: Tensor, mask_BT: Tensor) -> Tensor:
    """Values of the tokens under the mask, put back in their places; 0 elsewhere."""
    return torch.zeros_like(mask_BT, dtype=value_N.dtype).masked_scatter(mask_BT, value_N)


class _Rows(NamedTuple):
    """Prompts and completions as inputs of a model of `transformers`."""

    inputs: dict[str, Tensor | None]
    target_BT: Tensor
    """The tokens that the last outputs predict."""
    place_BT: Tensor | None
    """The positions of each completion's tokens among these; None: unchanged."""

    def in_place(self, value: Tensor) -> Tensor:
        """The outputs that predict completions, (B, T) or (B, T, H)."""
        value = value[:, -self.target_BT.shape[1] :]
        if self.place_BT is None:
            return value
        place = self.place_BT if value.dim() == 2 else self.place_BT[..., None].expand(-1, -1, value.shape[2])
        return value.gather(1, place)


def _rows(rollouts: Rollouts) -> _Rows:
    """If prompts differ in length, rows are aligned at their ends. The block is then as wide as the longest row. The
    longest prompt next to the longest completion could exceed the model's positions."""
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


def _is_plain(model: PreTrainedModel) -> bool:
    return family(model) in PLAIN_MODELS and (is_sharded(model) or not hooked(model))


def hooked(module: nn.Module) -> bool:
    """Whether calling this module does more than its class defines, or something else."""
    own = vars(module)
    return bool(own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own)


def has_plain_head(model: PreTrainedModel) -> bool:
    """Whether the last layer is a plain linear one, without adapter or hook. Its product can then be computed in
    another precision, whatever the model does with the result."""
    head = model.get_output_embeddings()
    return type(head) is nn.Linear and not hooked(head)


@contextlib.contextmanager
def _head_in(model: PreTrainedModel, wanted: torch.dtype | None) -> Iterator[None]:
    """Make a model compute its last linear layer at least in this precision; gradients reach the layer's weights."""
    if wanted is None or not has_plain_head(model):
        yield
        return
    head: Any = model.get_output_embeddings()
    dtype = _head_dtype(head.weight, wanted)

    def product(hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return linear(hidden.to(dtype), head.weight.to(dtype), None if head.bias is None else head.bias.to(dtype))

    head.forward = product
    try:
        yield
    finally:
        del head.forward


def _stats_of_own_logits(
    model: PreTrainedModel, rollouts: Rollouts, temperature: float, *, entropy_grad: bool, hidden: bool, balance: bool
) -> TokenStats:
    """From the logits that the model returns, which it may have modified."""
    rows = _rows(rollouts)
    kept = rows.target_BT.shape[1]
    more = {"output_router_logits": True} if balance else {}
    out = model(**rows.inputs, use_cache=False, logits_to_keep=kept, output_hidden_states=hidden, **more)
    stats = stats_of_logits(out.logits, rows.target_BT, temperature, entropy_grad=entropy_grad)
    logp_BT, entropy_BT = (rows.in_place(value).masked_fill(~rollouts.mask_BT, 0.0) for value in stats)
    balance_BT = out.aux_loss.expand(len(rollouts), 1) if balance else None
    return TokenStats(logp_BT, entropy_BT, rows.in_place(out.hidden_states[-1]) if hidden else None, balance_BT)
