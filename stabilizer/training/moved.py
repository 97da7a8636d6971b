"""How far a step moves the weights, estimated from a sample of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stabilizer.training.ranks import ALONE, Ranks
from stabilizer.training.sharding import first_of, own

MEASURED = 5_000
"""Weights in the sample; for a larger model it is a slice from the middle of every tensor. This many give the ratio of
two norms to one or two percent. More would have to be read from memory instead of a cache."""


class Moved:
    """The change of a model's weights from the end of one step with updates to the end of the next."""

    def __init__(self, parameters: Sequence[Tensor], limit: int = MEASURED, sharers: Ranks = ALONE):
        self._views = slices(parameters, limit)
        self._sharers = sharers
        self._left = torch.cat(self._views)
        """The weights after the last step."""
        self._now, self._change = torch.empty_like(self._left), torch.empty_like(self._left)

    def start_anew(self) -> None:
        """Other weights were loaded: the next step begins with these."""
        torch.cat(self._views, out=self._left)

    def in_step(self) -> float:
        """L2 norm of the change relative to the weights before it; call once at the end of a step."""
        before, now = self._left, torch.cat(self._views, out=self._now)
        ratio = float(self._size(torch.sub(now, before, out=self._change)) / self._size(before))
        self._left, self._now = now, before
        return ratio

    def _size(self, values: Tensor) -> Tensor:
        """L2 norm of the values of all ranks that share the weights."""
        norm: Tensor = torch.linalg.vector_norm(values)  # like `Tensor.norm`, without its overhead
        parts = self._sharers.gather(norm)
        if len(parts) > 1:
            norm = torch.linalg.vector_norm(torch.stack(parts))
        return norm


def slices(tensors: Sequence[Tensor], limit: int) -> list[Tensor]:
    """About `limit` numbers as views into the tensors: the same share of each, from its middle.

    Of a tensor that is divided between ranks, these are the views into the part of this rank.
    """
    share = min(1.0, limit / sum(tensor.numel() for tensor in tensors))
    return [_middle(tensor, share) for tensor in tensors]


def _middle(tensor: Tensor, share: float) -> Tensor:
    count = math.ceil(share * tensor.numel())
    start = (tensor.numel() - count) // 2 - first_of(tensor)
    return own(tensor).detach().view(-1)[max(0, start) : max(0, start + count)]
