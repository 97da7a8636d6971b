"""How many of the threads that torch may use a computation is worth.

Waking a second thread for every operation, and waiting for it, costs more than it saves where an operation is done in
some hundred microseconds: a small model writes, and learns, faster on one. The choice depends on sizes alone, so that a
resumed run chooses alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

WORTH = 2**27
"""Multiplications in a block of layers that are worth a second thread: about two milliseconds of one core."""


@contextlib.contextmanager
def threads_for(model: nn.Module, tokens: int) -> Iterator[None]:
    """Inside, one thread if passes of `model` over so many tokens at once are small; otherwise as it was."""
    blocks = max(1, getattr(model.config, "num_hidden_layers", 1))
    allowed = torch.get_num_threads()
    if model.num_parameters() * tokens < WORTH * blocks:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(allowed)
