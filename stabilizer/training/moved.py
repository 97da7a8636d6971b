"""How far a step moves the weights, told from some of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

MEASURED = 5_000
"""Weights that are looked at: of a larger model a slice from the middle of every tensor. From so many the ratio of two
lengths is known to a hundredth or two, and in the midst of a step more would come from memory, not from a cache."""


class Moved:
    """The change of a model's weights from the end of one step with updates to the end of the next."""

    def __init__(self, parameters: Sequence[Tensor], limit: int = MEASURED):
        self._views = slices(parameters, limit)
        self._left = torch.cat(self._views)
        """The weights as the last step left them."""
        self._now, self._change = torch.empty_like(self._left), torch.empty_like(self._left)

    def start_anew(self) -> None:
        """Other weights were put in place: the next step begins with these."""
        torch.cat(self._views, out=self._left)

    def in_step(self) -> float:
        """L2 norm of the change, in that of the weights before; asked once at the end of a step."""
        size = torch.linalg.vector_norm  # what `Tensor.norm` is, without its detours
        before, now = self._left, torch.cat(self._views, out=self._now)
        ratio = float(size(torch.sub(now, before, out=self._change)) / size(before))
        self._left, self._now = now, before
        return ratio


def slices(tensors: Sequence[Tensor], limit: int) -> list[Tensor]:
    """About `limit` numbers as views that follow the tensors: the same share of each, from its middle."""
    share = min(1.0, limit / sum(tensor.numel() for tensor in tensors))
    views = [tensor.detach().view(-1) for tensor in tensors]
    sizes = [math.ceil(share * len(view)) for view in views]
    return [view[(len(view) - n) // 2 :][:n] for view, n in zip(views, sizes, strict=True)]
