"""The policy that KL is measured from: the starting weights, or a later policy after a reset of the reference.

It uses no memory until beta first leaves 0. With adapters (LoRA) there is no second model at all: the reference is the
base without adapters, or with an older copy of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


class Reference:
    """Weights that do not learn. Inside the context `model()`, the returned model computes the reference."""

    def __init__(
        self, policy: PreTrainedModel, load: Callable[[], PreTrainedModel], *, adapters: bool, offload: bool = False
    ):
        self._offload = offload
        self._policy = policy
        self._load = load
        self._adapters = adapters
        self._model: PreTrainedModel | None = None
        self._weights: dict[str, Tensor] | None = None

    @property
    def weights(self) -> dict[str, Tensor] | None:
        """A copy of the weights at the last reset; None while the reference is the starting policy."""
        return self._weights

    def reset(self, share: float = 1.0) -> None:
        """Make the current policy the reference, or mix a share of it into the old reference."""
        trained = {name: p.detach().clone() for name, p in self._policy.named_parameters() if p.requires_grad}
        if share < 1:
            with self.model() as model:
                before = dict(model.named_parameters())
                trained = {
                    name: torch.lerp(before[name].to(weight.dtype), weight, share) for name, weight in trained.items()
                }
        self.restore(trained)

    def restore(self, weights: dict[str, Tensor] | None) -> None:
        """Restore the weights of an earlier reset; None for the starting policy."""
        if weights is None and self._weights is not None:
            self._model = None  # to be loaded again
        self._weights = weights
        if weights is not None and not self._adapters:
            self._fill(self._loaded(), weights)
            own = dict(self._loaded().named_parameters())
            self._weights = {name: own[name] for name in weights}  # no second copy

    @contextlib.contextmanager
    def model(self) -> Iterator[PreTrainedModel]:
        """The reference, without gradients."""
        with torch.no_grad():
            if not self._adapters:
                with self._on_device(self._loaded()) as model:
                    yield model
            elif self._weights is None:
                self._policy.disable_adapters()
                try:
                    yield self._policy
                finally:
                    self._policy.enable_adapters()
            else:
                present = {name: p.detach().clone() for name, p in self._policy.named_parameters() if p.requires_grad}
                self._fill(self._policy, self._weights)
                try:
                    yield self._policy
                finally:
                    self._fill(self._policy, present)

    @contextlib.contextmanager
    def _on_device(self, model: PreTrainedModel) -> Iterator[PreTrainedModel]:
        if not self._offload:
            yield model
            return
        moved: Any = model
        moved.to(self._policy.device)
        try:
            yield model
        finally:
            moved.to("cpu")

    def _loaded(self) -> PreTrainedModel:
        if self._model is None:
            self._model = self._load()
        return self._model

    @staticmethod
    @torch.no_grad()
    def _fill(model: PreTrainedModel, weights: dict[str, Tensor]) -> None:
        parameters = dict(model.named_parameters())
        for name, weight in weights.items():
            parameters[name].copy_(weight)
