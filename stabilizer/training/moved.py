"""How far a step moves the weights, estimated from a sample of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

MEASURED = 5_000
"""Weights in the sample; for a larger model it is a slice from the middle of every tensor. This many give the ratio of
two norms to one or two percent. More would have to be read from memory instead of a cache."""


class Moved:
    """The change of a model's weights from the end of one step with updates to the end of the next."""

    def __init__(self, parameters: Sequence[Tensor], limit: int = MEASURED):
        self._views = slices(parameters, limit)
        self._left = torch.cat(self._views)
        """The weights after the last step."""
        self._now, self._change = torch.empty_like(self._left), torch.empty_like(self._left)

    def start_anew(self) -> None:
        """Other weights were loaded: the next step begins with these."""
        torch.cat(self._views, out=self._left)

    def in_step(self) -> float:
        """L2 norm of the change relative to the weights before it; call once at the end of a step."""
        size = torch.linalg.vector_norm  # like `Tensor.norm`, without its overhead
        before, now = self._left, torch.cat(self._views, out=self._now)
        ratio = float(size(torch.sub(now, before, out=self._change)) / size(before))
        self._left, self._now = now, before
        return ratio


def slices(tensors: Sequence[Tensor], limit: int) -> list[Tensor]:
    """About `limit` numbers as views into the tensors: the same share of each, from its middle."""
    share = min(1.0, limit / sum(tensor.numel() for tensor in tensors))
    views = [tensor.detach().view(-1) for tensor in tensors]
    sizes = [math.ceil(share * len(view)) for view in views]
    return [view[(len(view) - n) // 2 :][:n] for view, n in zip(views, sizes, strict=True)]
