"""From hidden states to log-probabilities and entropies, without holding the logits of all tokens at once.

With a real vocabulary the logits are by far the largest tensor of a step: in float32, with the copies made by
log-softmax, entropy and their gradients, about five times tokens x vocabulary x 4 bytes. Here rows are processed in
chunks: a chunk's logits exist until its results are known, and are computed again for its gradients. Input that fits in
one chunk is kept.

Shape letters: N tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 2**23
"""Logits in memory at a time: 32 MB in float32. With fewer rows, reading the weights would dominate the time of a
chunk."""
CHUNK_CUDA = 2**27
"""The same on a GPU, where a small chunk would leave most of the device idle."""


def token_stats(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    temperature: float,
    *,
    entropy_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """(logp_N of the targets, entropy_N) of softmax(logits / temperature), at least in float32.

    Gradients equal those of plain autograd. The entropy has a gradient only if requested. Inputs in a short precision
    on a GPU are multiplied as they are, with sums and logits in float32 (`widens`).
    """
    apply: Any = _TokenStats.apply  # torch does not annotate it
    logp_N, entropy_N = apply(hidden_NH, weight_VH, bias_V, target_N, temperature)
    return logp_N, entropy_N if entropy_grad else entropy_N.detach()


def widens(weight: Tensor) -> bool:
    """Whether products of this tensor come out in float32 without copies of the factors in float32.

    The products of two bfloat16 numbers are exact in float32, so only the order of the sums differs.
    """
    return weight.is_cuda and weight.dtype in (torch.bfloat16, torch.float16)


def _product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """A matrix product, in float32 if that costs no copies."""
    return torch.mm(a, b, out_dtype=torch.float32, out=out) if widens(b) else torch.mm(a, b, out=out)


def stats_of_logits(
    logits: Tensor, target: Tensor, temperature: float, *, entropy_grad: bool = False
) -> tuple[Tensor, Tensor]:
    """The same from logits (..., V) that a model computed itself: the plain definition, by autograd."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    all_logp = torch.log_softmax(logits.to(wide) / temperature, dim=-1)
    logp = all_logp.gather(-1, target[..., None])[..., 0]
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        p = all_logp.exp()
        # 0 * log 0 = 0, also where a model forbids a token with a logit of -inf; NaN remains NaN
        return logp, -(p * all_logp).masked_fill(p == 0, 0.0).sum(-1)


class _TokenStats(torch.autograd.Function):
    """With z the logits over the temperature, p = softmax(z), l = log p, H = -sum p l:

    d l_target / dz = onehot(target) - p          d H / dz = -p (l + H)
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, target_N: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        rows = max(1, (CHUNK_CUDA if hidden_NH.is_cuda else CHUNK) // len(weight_VH))
        logits = _Logits(weight_VH, bias_V, temperature, rows=min(rows, len(hidden_NH)))
        wide = logits.wide
        logp_N = hidden_NH.new_empty(len(hidden_NH), dtype=wide)
        entropy_N = torch.empty_like(logp_N)
        all_logp = None
        for start in range(0, len(hidden_NH), rows):
            part = slice(start, start + rows)
            all_logp = logits.log_softmax(hidden_NH[part])
            logp_N[part] = all_logp.gather(1, target_N[part, None])[:, 0]
            entropy_N[part] = _entropy(all_logp, logits.spare(all_logp))
        kept = all_logp if len(hidden_NH) <= rows else None
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, target_N, entropy_N, kept)
        ctx.rows, ctx.temperature = rows, temperature
        return logp_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp_N: Tensor, grad_entropy_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, target_N, entropy_N, kept = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        with_entropy = bool(grad_entropy_N.any())
        grad_hidden = torch.zeros_like(hidden_NH) if need_hidden else None
        # bfloat16 would lose the small terms of a sum over many chunks
        summed = torch.float32 if widens(weight_VH) else weight_VH.dtype
        grad_weight = torch.zeros_like(weight_VH, dtype=summed) if need_weight else None
        grad_bias = torch.zeros_like(bias_V) if need_bias else None
        # rows without gradient, as in a group with equal rewards, are not computed a second time
        active = ((grad_logp_N != 0) | (grad_entropy_N != 0)).nonzero()[:, 0]
        logits = _Logits(weight_VH, bias_V, ctx.temperature, rows=min(ctx.rows, len(active)))
        for part in active.split(ctx.rows):
            hidden = hidden_NH[part]
            grad = logits.log_softmax(hidden) if kept is None else kept[part]
            slope = grad_logp_N[part, None] / ctx.temperature
            if with_entropy:
                steep = grad_entropy_N[part, None] / ctx.temperature
                p = grad.exp()
                # p (l + H) is 0 where p is: there l is -inf
                bend = ((grad + entropy_N[part, None]) * p).masked_fill_(p == 0, 0.0)
                grad = p.mul_(-slope).addcmul_(bend, steep, value=-1.0)
            else:
                grad = grad.exp_().mul_(-slope)
            grad.scatter_add_(1, target_N[part, None], slope)
            grad = grad.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = grad @ weight_VH
            if grad_weight is not None and widens(weight_VH):
                grad_weight += _product(grad.T, hidden, out=torch.empty_like(grad_weight))
            elif grad_weight is not None:
                grad_weight.addmm_(grad.T, hidden)
            if grad_bias is not None:
                grad_bias += grad.sum(0)
        grad_weight = None if grad_weight is None else grad_weight.to(weight_VH.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None


class _Logits:
    """Log-softmax of one chunk after another in the same memory: allocating memory costs more than writing to it."""

    def __init__(self, weight_VH: Tensor, bias_V: Tensor | None, temperature: float, *, rows: int):
        self._weight, self._bias, self._temperature = weight_VH, bias_V, temperature
        self.wide = torch.promote_types(weight_VH.dtype, torch.float32)
        shape = (rows, len(weight_VH))
        self._raw = weight_VH.new_empty(shape, dtype=self.wide if widens(weight_VH) else weight_VH.dtype)
        self._logp = weight_VH.new_empty(shape, dtype=self.wide)

    def log_softmax(self, hidden: Tensor) -> Tensor:
        """Log-probabilities of the logits over the temperature; valid until the next call."""
        raw = _product(hidden, self._weight.T, out=self._raw[: len(hidden)])
        if self._bias is not None:
            raw += self._bias
        raw = raw.to(self.wide)
        if self._temperature != 1:
            raw /= self._temperature
        return torch.log_softmax(raw, dim=-1, out=self._logp[: len(hidden)])

    def spare(self, all_logp: Tensor) -> Tensor:
        """Memory of the chunk's shape that is free until the next call."""
        same = self._raw.dtype is self.wide
        return self._raw[: len(all_logp)] if same else torch.empty_like(all_logp)


def _entropy(all_logp: Tensor, spare: Tensor) -> Tensor:
    """-sum p log p of each row; `spare` is memory for the probabilities."""
    p = torch.exp(all_logp, out=spare)
    entropy = -torch.bmm(p[:, None], all_logp[:, :, None])[:, 0, 0]  # no tensor of products
    lost = entropy.isnan()  # 0 * log 0 = 0, also where a logit of -inf forbids a token; NaN remains NaN
    if bool(lost.any()):
        p, all_logp = p[lost], all_logp[lost]
        entropy[lost] = -(p * all_logp).masked_fill(p == 0, 0.0).sum(-1)
    return entropy
