"""How many of the threads that torch may use a computation is worth, and in which way.

Waking a second thread for every operation, and waiting for it, costs more than it saves where an operation is done in
some hundred microseconds: a small model learns faster on one. Where its rows don't need one another, each thread takes
some of them from beginning to end instead. The choice depends on sizes alone, so that a resumed run chooses alike.
"""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import local
from typing import TypeVar

import torch
from torch import nn

from stabilizer.training.fast.scripted import unlocked

Job = TypeVar("Job")
Result = TypeVar("Result")

WORTH = 2**27
"""Multiplications in a block of layers from which on each operation is worth a second thread: some milliseconds of one
core."""
FEWEST = 8
"""Rows below which a part of them costs as much as more would."""

_held = local()
"""Of each thread, as torch's own number is: `idle`, how many it may use and does not while it is held to one."""
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
    allowed, idle = torch.get_num_threads(), _idle()
    blocks = max(1, getattr(model.config, "num_hidden_layers", 1))
    if num_parameters(model) * tokens < WORTH * blocks:
        torch.set_num_threads(1)
        _held.idle = max(idle, allowed - 1) if model.device.type == "cpu" and unlocked() else 0
    try:
        yield
    finally:
        torch.set_num_threads(allowed)
        _held.idle = idle


def _idle() -> int:
    return getattr(_held, "idle", 0)


def parts_for(groups: int, rows: int) -> int:
    """In how many parts, one for each thread, rows that don't need one another are best taken: whole groups of them."""
    return max(1, min(1 + _idle(), groups, rows // FEWEST))


def in_threads(function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
    """The results of all jobs, each done in a thread of its own, the first in this one; then all are over."""
    others = [_pool().submit(function, job) for job in jobs[1:]]
    try:
        first = function(jobs[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """As many threads as were ever needed at once, in each of which torch uses no further one."""
    return ThreadPoolExecutor(1024, "stabilizer", initializer=torch.set_num_threads, initargs=(1,))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # which has none of the threads
