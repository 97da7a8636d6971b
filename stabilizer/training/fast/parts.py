"""What is computed of rows, some of them in each of several threads, as one operation with gradients.

A thread goes through its own rows from beginning to end, forth and later back, and meets the others only there: between
two operations nobody waits for anybody, which is what makes a second thread worth while for a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from stabilizer.training.fast.threads import in_threads

Results = tuple[Tensor, ...]


def in_parts(function: Callable[[Any, Any], Results], parameters: Any, jobs: Sequence[Any]) -> Results:
    """`function(parameters, job)` of every job, each in a thread of its own, and then joined along the rows.

    Gradients reach `parameters`: tensors in tuples and lists, beside anything else. What a job holds gets none.
    """
    if len(jobs) == 1:
        return function(parameters, jobs[0])
    if not torch.is_grad_enabled():
        return _joined(in_threads(partial(_call, function, False, parameters), jobs))
    leaves, structure = tree_flatten(parameters)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def with_tensors(tensors: Sequence[Tensor]) -> Any:
        given = iter(tensors)
        return tree_unflatten([next(given) if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure)

    return _InParts.apply(function, with_tensors, jobs, *tensors)


def _call(function: Callable[[Any, Any], Results], grad: bool, parameters: Any, job: Any) -> Results:
    with torch.set_grad_enabled(grad):  # every thread has its own mind about that
        return function(parameters, job)


def _joined(results: Sequence[Results]) -> Results:
    return tuple(torch.cat(parts) for parts in zip(*results, strict=True))


class _InParts(torch.autograd.Function):
    """Every part keeps a graph of its own; parameters get the sum of what flows back through all of them."""

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[[Any, Any], Results],
        with_tensors: Callable[[Sequence[Tensor]], Any],
        jobs: Sequence[Any],
        *tensors: Tensor,
    ) -> Results:
        ctx.leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
        ctx.parts = in_threads(partial(_call, function, True, with_tensors(ctx.leaves)), jobs)
        joined = _joined([tuple(result.detach() for result in part) for part in ctx.parts])
        moving = [any(result.requires_grad for result in results) for results in zip(*ctx.parts, strict=True)]
        ctx.mark_non_differentiable(*(whole for whole, moves in zip(joined, moving, strict=True) if not moves))
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [leaf for leaf in ctx.leaves if leaf.requires_grad]
        split = [grad.split([len(part[0]) for part in ctx.parts]) for grad in grads]
        ways = list(zip(ctx.parts, zip(*split, strict=True), strict=True))
        sums = map(_sum, zip(*in_threads(partial(_back, wanted), ways), strict=True))
        return None, None, None, *(next(sums) if leaf.requires_grad else None for leaf in ctx.leaves)


def _back(leaves: Sequence[Tensor], way: tuple[Results, Results]) -> tuple[Tensor | None, ...]:
    """Gradients of one part."""
    pairs = [(result, grad) for result, grad in zip(*way, strict=True) if result.requires_grad]
    if not pairs:
        return (None,) * len(leaves)
    results, grads = zip(*pairs, strict=True)
    return torch.autograd.grad(results, leaves, grads, allow_unused=True)


def _sum(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return sum(known[1:], known[0]) if known else None
