"""How many of the threads that torch may use a computation is worth, and in which way.

Waking a second thread for every operation, and waiting for it, costs more than it saves where an operation is done in
some hundred microseconds: a small model learns faster on one. Where its rows don't need one another, each thread takes
some of them from beginning to end instead. The choice depends on sizes alone, so that a resumed run chooses alike.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from stabilizer.trainer.scripted import unlocked

Job = TypeVar("Job")
Result = TypeVar("Result")

WORTH = 2**27
"""Multiplications in a block of layers that are worth a second thread: some milliseconds of one core."""
FEWEST = 8
"""Rows below which a part of them costs as much as more would."""

_idle = 0
"""Threads that nothing is done in while torch is held to one."""
_sizes: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()


def num_parameters(model: nn.Module) -> int:
    """Parameters of a model when it was first asked about: to count them takes longer than a small product."""
    if model not in _sizes:
        _sizes[model] = sum(parameter.numel() for parameter in model.parameters())
    return _sizes[model]


@contextlib.contextmanager
def threads_for(model: nn.Module, tokens: int) -> Iterator[None]:
    """Inside, one thread if passes of `model` over so many tokens at once are small; otherwise as it was.

    Threads that torch leaves idle then may be given rows by `parts_for`.
    """
    global _idle
    allowed, idle = torch.get_num_threads(), _idle
    blocks = max(1, getattr(model.config, "num_hidden_layers", 1))
    if num_parameters(model) * tokens < WORTH * blocks:
        torch.set_num_threads(1)
        _idle = max(idle, allowed - 1) if model.device.type == "cpu" and unlocked() else 0
    try:
        yield
    finally:
        torch.set_num_threads(allowed)
        _idle = idle


def parts_for(groups: int, rows: int) -> int:
    """In how many parts, one for each thread, rows that don't need one another are best taken: whole groups of them."""
    return max(1, min(1 + _idle, groups, rows // FEWEST))


def in_threads(function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
    """The results of all jobs, each done in a thread of its own, the first in this one, on which torch then waits."""
    others = [_pool().submit(function, job) for job in jobs[1:]]
    try:
        first = function(jobs[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


def in_parts(function: Callable[[Any, Job], Tensor], parameters: Any, jobs: Sequence[Job]) -> Tensor:
    """`function(parameters, job)` of all jobs, one behind the other, each computed in a thread of its own, and so are
    its gradients. `parameters` may be tensors, and tuples and lists of such and of what is none."""
    if len(jobs) == 1:
        return function(parameters, jobs[0])
    leaves, structure = tree_flatten(parameters)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def call(tensors: Sequence[Tensor], job: Job) -> Tensor:
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return function(tree_unflatten(filled, structure), job)

    if torch.is_grad_enabled():
        return _InParts.apply(call, jobs, *tensors)

    def plain(job: Job) -> Tensor:
        with torch.no_grad():
            return call(tensors, job)

    return torch.cat(in_threads(plain, jobs))


class _InParts(torch.autograd.Function):
    """Each job has a graph of its own, made and gone back through in its thread; parameters get the sum over them."""

    @staticmethod
    def forward(ctx: Any, call: Callable[..., Tensor], jobs: Sequence[Any], *tensors: Tensor) -> Tensor:
        ctx.leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]

        def own(job: Any) -> Tensor:
            with torch.enable_grad():
                return call(ctx.leaves, job)

        ctx.results = in_threads(own, jobs)
        return torch.cat([result.detach() for result in ctx.results])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [leaf for leaf in ctx.leaves if leaf.requires_grad]
        grads = grad.split([len(result) for result in ctx.results])
        ways = zip(ctx.results, grads, strict=True)
        parts = in_threads(lambda way: torch.autograd.grad(way[0], wanted, way[1], allow_unused=True), list(ways))
        del ctx.results
        sums = iter([_sum(of_one) for of_one in zip(*parts, strict=True)])
        return None, None, *(next(sums) if leaf.requires_grad else None for leaf in ctx.leaves)


def _sum(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return sum(known[1:], known[0]) if known else None


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """As many threads as were ever needed at once, in each of which torch uses no further one."""
    return ThreadPoolExecutor(1024, "stabilizer", initializer=torch.set_num_threads, initargs=(1,))
